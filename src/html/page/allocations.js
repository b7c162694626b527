// The allocations that cover most of what is shown, one on top of the other over time; all smaller ones as one band.

/** Allocations drawn at once. */
const DRAWN = 1500;

/** Rectangles drawn at once. */
const RUNS = 16000;

class Allocations {
  constructor(app) {
    this.app = app;
    this.pane = new TimePane("allocations", 300, app.view, {
      pick: (t) => app.pick(t),
      click: (p) => this.click(p),
      hover: (p, e) => this.hover(p, e),
      out: () => this.light(-1),
      nudge: (d) => app.nudge(d),
      step: (d) => app.stepMoment(d),
      centre: () => app.centre(),
      key: (e) => this.key(e),
    });
    this.pane.paint = (g, w, h) => this.paint(g, w, h);
    this.lit = -1;
    this.pinned = -1;
  }
  redraw() {
    this.pane.redraw();
  }
  /** Those worth drawing between two times: the tool's choice where there are too many to look at all. */
  candidates(run, device, from, to) {
    if (run.whole) {
      if (this.mine !== device) {
        this.mine = device;
        const { group } = run.life, list = [];
        for (let i = 0; i < group.length; i++) if (run.group.device[group[i]] === device.device) list.push(i);
        this.all = list;
      }
      return this.all;
    }
    const levels = [...new Set(device.tileList.map((t) => t.level))].sort((a, b) => b - a);
    for (const level of levels) {
      const tiles = device.tileList.filter((t) => t.level === level && t.end >= from && t.start <= to);
      if (level === 0 || tiles.length <= 6) {
        const seen = new Set();
        for (const t of tiles) for (const i of t.members) seen.add(i);
        return [...seen].sort((a, b) => a - b);
      }
    }
    return [];
  }
  choose(run, device, from, to) {
    const { time: starts, length, bytes: sizes } = run.life, mine = this.candidates(run, device, from, to);
    const found = new Int32Array(mine.length), areas = new Float64Array(mine.length);
    let n = 0;
    for (const i of mine) {
      const start = starts[i];
      // In the order of their beginnings.
      if (start > to) break;
      const stop = length[i] ? start + length[i] - 1 : Infinity;
      if (stop < from) continue;
      found[n] = i;
      areas[n++] = sizes[i] * (Math.min(stop, to) - Math.max(start, from));
    }
    if (n <= DRAWN) return { list: Array.from(found.subarray(0, n)), cut: false };
    const least = areas.slice(0, n).sort()[n - DRAWN], list = [];
    for (let k = 0; k < n && list.length < DRAWN; k++) if (areas[k] >= least) list.push(found[k]);
    return { list, cut: true };
  }
  /** Where each allocation lies: runs of [allocation, from x, to x, bytes below]. */
  layout(run, list, from, to, fine = 0.7) {
    const { pane } = this, { life } = run;
    const n = list.length, size = list.map((i) => life.bytes[i]);
    const events = [];
    for (let k = 0; k < n; k++) {
      events.push([Math.max(from, life.time[list[k]]), 1, k]);
      const stop = run.endOf(list[k]);
      if (stop < to) events.push([stop, 0, k]);
    }
    // What ends at a time makes room for what begins then.
    events.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
    const since = new Float64Array(n), below = new Float64Array(n), stack = [], runs = [];
    let sum = 0, most = 0;
    const put = (k, x) => {
      runs.push([list[k], since[k], x, below[k]]);
      since[k] = x;
    };
    for (const [t, begins, k] of events) {
      const x = pane.x(t);
      if (begins) {
        since[k] = x;
        below[k] = sum;
        stack.push(k);
        sum += size[k];
        most = Math.max(most, sum);
        continue;
      }
      put(k, x);
      const at = stack.lastIndexOf(k);
      if (at < 0) continue;
      stack.splice(at, 1);
      for (let j = at; j < stack.length; j++) {
        const over = stack[j];
        // What moves within a pixel is drawn once.
        if (x - since[over] >= fine) put(over, x);
        below[over] -= size[k];
      }
      sum -= size[k];
    }
    const end = pane.x(Math.min(to, run.end));
    for (const k of stack) put(k, end);
    // Where everything moves all the time, steps as wide as a few pixels do.
    if (runs.length > RUNS && fine < 12) return this.layout(run, list, from, to, fine * 4);
    return { runs, most };
  }
  paint(g, width, height) {
    const { app, pane } = this, { run, device, view } = app;
    if (!device) return;
    const chosen = this.choose(run, device, view.from, view.to);
    const layout = this.layout(run, chosen.list, view.from, view.to);
    const inactive = new Set([3, 4, 5, 6, 7]);
    const band = app.timeline.points(device, pane, view.from, view.to, inactive);
    const most = Math.max(band.most, layout.most, 1) * 1.04;
    const y = (v) => height - AXIS - (v / most) * (height - AXIS - 6);
    byteAxis(g, width, height, most, 6, AXIS);
    g.save();
    g.beginPath();
    g.rect(GUTTER, 0, width - GUTTER, height - AXIS);
    g.clip();
    // All that is active, as the band; what is drawn one by one covers it.
    const whole = { xs: band.xs, rows: band.rows.map((r) => [r.reduce((a, b) => a + b, 0)]), shown: [0] };
    const paints = theme.layers;
    theme.layers = [theme.band];
    app.timeline.fill(g, whole, width, y);
    theme.layers = paints;
    const { life } = run, groups = life.group;
    let now = "";
    const scale = (height - AXIS - 6) / most;
    this.boxes = [];
    for (const [i, a, b, under] of layout.runs) {
      if (b < GUTTER || a > width) continue;
      const h = life.bytes[i] * scale, top = y(under) - h;
      // Too low to be seen: the band is there.
      if (h < 0.05) continue;
      const paint = groupColour(run, groups[i]);
      if (paint !== now) g.fillStyle = now = paint;
      // A line of the background between one and the next, where there is room.
      const line = h > 3 && b - a > 2 ? 0.6 : 0;
      g.fillRect(a, top + line, Math.max(0.7, b - a), Math.max(0.35, h - line));
      this.boxes.push([i, a, b, top, top + h]);
    }
    for (const [i, paint] of [[this.lit, theme.ink], [this.pinned, theme.pick]]) {
      if (i < 0) continue;
      g.strokeStyle = paint;
      g.lineWidth = 2;
      for (const [k, a, b, top, bottom] of this.boxes) if (k === i) g.strokeRect(a, top, Math.max(1, b - a), Math.max(1, bottom - top));
      g.lineWidth = 1;
    }
    if (layout.runs.length) this.label(g, width);
    g.restore();
    timeAxis(g, pane, height - AXIS);
    timeLine(g, pane, app.picked, theme.pick);
    pane.selection(g);
    this.list = chosen.list;
    const cut = chosen.cut || !run.whole;
    $("allocations-note").textContent = `${plural(chosen.list.length, "allocation")}${cut ? ", those that cover most of what is shown; all others are the grey band" : ""}`;
  }
  /** Names in boxes that have room for them. */
  label(g, width) {
    const { run } = this.app;
    g.textAlign = "left";
    g.textBaseline = "middle";
    g.fillStyle = theme.name === "dark" ? "#fff" : "#10141a";
    let labels = 0;
    for (const [i, from, to, top, bottom] of this.boxes) {
      const a = Math.max(from, GUTTER), b = Math.min(to, width);
      if (bottom - top < 15 || b - a < 90 || labels++ > 40) continue;
      const line = lineOf(run, run.life.group[i]);
      g.fillText(clip(g, `${bytes(run.life.bytes[i])}  ${line.what}  ${line.place}`, b - a - 8), a + 4, (top + bottom) / 2);
    }
  }
  find(p) {
    const boxes = this.boxes || [];
    for (let k = boxes.length - 1; k >= 0; k--) {
      const [i, a, b, top, bottom] = boxes[k];
      if (p.x >= a - 0.5 && p.x <= Math.max(b, a + 1) && p.y >= top - 0.5 && p.y <= Math.max(bottom, top + 1)) return i;
    }
    return -1;
  }
  light(i) {
    if (i === this.lit) return;
    this.lit = i;
    this.redraw();
  }
  hover(p, e) {
    const i = p.x < GUTTER ? -1 : this.find(p);
    this.light(i);
    if (i < 0) {
      if (p.x < GUTTER) return tip.hide();
      return tip.show(e.clientX, e.clientY, clock(this.pane.time(p.x), this.app.view.span / 500), el("p.dim", {}, "grey: all smaller allocations together"));
    }
    tip.show(e.clientX, e.clientY, ...this.describe(i, this.pane.time(p.x)), stackShort(this.app.run, this.app.run.group.stack[this.app.run.life.group[i]]));
  }
  /** What is to be said of an allocation at a time. */
  describe(i, t) {
    const { run } = this.app, { life } = run;
    const g = life.group[i], stop = run.endOf(i), slack = life.slack[i];
    const kind = this.app.meta.kinds[run.group.kind[g]], region = run.texts[run.group.region[g]];
    const lives = stop === Infinity ? "never freed" : `freed after ${time(stop - life.time[i])}`;
    const age = t >= life.time[i] && t < stop ? `, ${time(t - life.time[i])} old here` : "";
    return [
      el("b", {}, bytes(life.bytes[i])), ` ${kind}${slack ? ` (${bytes(life.bytes[i] - slack)} asked for)` : ""}`,
      el("p", {}, `from ${clock(life.time[i], Math.max(1, this.app.view.span / 1000))}, ${lives}${age}`),
      region ? el("p", {}, `region ${region}`) : null,
      life.address[i] ? el("p.dim", {}, `at 0x${life.address[i].toString(16)}`) : null,
    ].filter(Boolean);
  }
  click(p) {
    const i = this.find(p);
    if (p.x < GUTTER || i < 0) return false;
    this.pin(this.pinned === i ? -1 : i);
    // The moment is picked as well: the rest of the page shows it.
    return false;
  }
  pin(i) {
    this.pinned = i;
    const box = $("pinned");
    box.hidden = i < 0;
    if (i >= 0) {
      const { run } = this.app, g = run.life.group[i];
      const close = el("button", { type: "button", onclick: () => this.pin(-1) }, "Unpin");
      box.replaceChildren(...this.describe(i, this.app.picked), stackList(run, run.group.stack[g]), close);
      announce(`${bytes(run.life.bytes[i])}: ${lineOf(run, g).what}`);
    }
    this.redraw();
  }
  /** With the keyboard: n and p go through the largest allocations of the moment. */
  key(e) {
    const { run, picked } = this.app;
    if (e.key === "Escape") return this.pin(-1);
    if (e.key !== "n" && e.key !== "p") return;
    const live = (this.list || []).filter((i) => run.life.time[i] <= picked && run.endOf(i) > picked).sort((a, b) => run.life.bytes[b] - run.life.bytes[a]);
    if (!live.length) return;
    const at = live.indexOf(this.pinned);
    this.pin(live[(at + (e.key === "n" ? 1 : -1) + live.length) % live.length]);
  }
}
