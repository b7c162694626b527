// The timeline: a device's layers stacked, marks and regions under them, and the whole history above for orientation.

/** Pixels of a region that was open at the end. */
const OPEN = 90;
const AXIS = 20;

class Timeline {
  constructor(app) {
    this.app = app;
    const hooks = {
      pick: (t) => app.pick(t),
      hover: (p, e) => this.hover(p, e),
      nudge: (d) => app.nudge(d),
      step: (d) => app.stepMoment(d),
      centre: () => app.centre(),
    };
    this.pane = new TimePane("timeline", 240, app.view, hooks);
    this.pane.paint = (g, w, h) => this.paint(g, w, h);
    this.lanes = new TimePane("lanes", 20, app.view, { pick: hooks.pick, hover: (p, e) => this.hoverLanes(p, e) });
    this.lanes.paint = (g, w) => this.paintLanes(g, w);
    this.over = new Pane("overview", 34);
    this.over.paint = (g, w, h) => this.paintOverview(g, w, h);
    this.listenOverview();
    this.hidden = new Set();
    this.laneList = [];
  }
  /** Another device: which layers are there, and which of them would hide all others. */
  device(device) {
    this.hidden.clear();
    const top = device.grid[device.grid.length - 1];
    const most = (l) => l.last.reduce((m, v, i) => Math.max(m, v + l.over[i]), 0);
    const sizes = top.layers.map((l) => [l.layer, most(l)]);
    const rest = sizes.find(([l]) => l === 7), others = sizes.filter(([l]) => l !== 7).reduce((s, [, n]) => s + n, 0);
    if (rest && rest[1] > others) this.hidden.add(7);
    const key = ([l, n]) => {
      const box = el("input", { type: "checkbox", checked: !this.hidden.has(l), "data-layer": l, onchange: (e) => {
        if (e.target.checked) this.hidden.delete(l);
        else this.hidden.add(l);
        this.redraw();
      } });
      return el("label", {}, box, el("span.key", { style: `background: var(--layer-${l})` }), `${this.app.meta.layers[l]} `, el("span.dim", {}, `up to ${bytes(n)}`));
    };
    $("legend").replaceChildren(...sizes.map(key));
    this.layoutLanes();
    this.redraw();
  }
  redraw() {
    this.pane.redraw();
    this.lanes.redraw();
    this.over.redraw();
  }
  /** The points of the stacked curve between two times: x, and bytes of each shown layer. */
  points(device, pane, from, to, hidden = this.hidden) {
    const px = (to - from) / Math.max(1, pane.width - GUTTER);
    const shown = device.grid[0].layers.map((l, i) => i).filter((i) => !hidden.has(device.grid[0].layers[i].layer));
    const xs = [], rows = [];
    const at = (t) => GUTTER + ((t - from) / (to - from)) * (pane.width - GUTTER);
    let most = 0, top = 0;
    device.walk(from, to, 1.2 * px, (level, i, start, stop) => {
      const { layers } = device.grid[level];
      const high = shown.map((l) => layers[l].last[i] + layers[l].over[i] - layers[l].less[i]);
      const sum = high.reduce((a, b) => a + b, 0), x = at(start);
      most = Math.max(most, sum);
      const wide = stop - start > 1.2 * px;
      // Of several buckets in a pixel the highest is seen, and right of it the one that lasts.
      if (x - xs[xs.length - 1] < 0.6) {
        if (sum >= top) (rows[rows.length - 1] = high), (top = sum);
        if (wide) {
          xs.push(xs[xs.length - 1] + 0.6);
          rows.push(shown.map((l) => layers[l].last[i]));
          top = 0;
        }
        return;
      }
      top = sum;
      xs.push(x);
      rows.push(high);
      // A bucket of many changes that is wider than a pixel: its highest moment first, then where it ended.
      if (wide && device.leaf > 1) {
        xs.push(at((start + stop) / 2));
        rows.push(shown.map((l) => layers[l].last[i]));
      } else if (wide) rows[rows.length - 1] = shown.map((l) => layers[l].last[i]);
    });
    // Of ranks that share one time some end earlier.
    if (to > device.run.end) {
      xs.push(at(device.run.end));
      rows.push(shown.map(() => 0));
    }
    return { xs, rows, shown: shown.map((i) => device.grid[0].layers[i].layer), most };
  }
  /** Fills the stacked layers. */
  fill(g, points, width, y) {
    const { xs, rows, shown } = points;
    const under = new Float64Array(xs.length);
    for (let l = 0; l < shown.length; l++) {
      g.fillStyle = theme.layers[shown[l]];
      g.beginPath();
      for (let i = 0; i < xs.length; i++) {
        const top = y(under[i] + rows[i][l]);
        g.lineTo(xs[i], i ? y(under[i - 1] + rows[i - 1][l]) : top);
        g.lineTo(xs[i], top);
      }
      const n = xs.length - 1;
      if (n < 0) continue;
      g.lineTo(width, y(under[n] + rows[n][l]));
      g.lineTo(width, y(under[n]));
      for (let i = n; i >= 0; i--) {
        g.lineTo(xs[i], y(under[i]));
        if (i) g.lineTo(xs[i], y(under[i - 1]));
      }
      g.fill();
      for (let i = 0; i < xs.length; i++) under[i] += rows[i][l];
    }
  }
  paint(g, width, height) {
    const { app, pane } = this, { device, run } = app;
    if (!device) return;
    const points = this.points(device, pane, app.view.from, app.view.to);
    const total = device.bytes;
    const most = Math.max(points.most * 1.06, 1);
    this.most = most;
    const y = (v) => height - AXIS - (v / most) * (height - AXIS - 6);
    byteAxis(g, width, height, most, 6, AXIS);
    g.save();
    g.beginPath();
    g.rect(GUTTER, 0, width - GUTTER, height - AXIS);
    g.clip();
    this.fill(g, points, width, y);
    if (total && total < most) {
      g.strokeStyle = theme.bad;
      g.setLineDash([6, 3]);
      g.strokeRect(GUTTER, Math.round(y(total)) + 0.5, width, 0);
      g.setLineDash([]);
    }
    g.restore();
    for (const m of run.moments) if (m.label.startsWith("out of memory")) timeLine(g, pane, m.time, theme.bad, [3, 2]);
    timeAxis(g, pane, height - AXIS);
    timeLine(g, pane, app.picked, theme.pick);
    pane.selection(g);
  }
  listenOverview() {
    const c = this.over.canvas, { view } = this.app;
    const to = (e) => {
      const x = (this.over.point(e).x - GUTTER) / (this.over.width - GUTTER);
      const t = view.first + x * (view.last - view.first);
      view.move(t - (view.from + view.to) / 2);
    };
    c.addEventListener("pointerdown", (e) => (c.setPointerCapture(e.pointerId), to(e)));
    c.addEventListener("pointermove", (e) => e.buttons && to(e));
  }
  /** The picture of the whole history: the same until something else than the view changes. */
  whole(device, width, height) {
    const key = [device.run.index, device.label, width, this.over.ratio, theme.name, ...this.hidden].join("/");
    if (this.wholeKey === key) return this.wholeCanvas;
    const { view } = this.app, c = document.createElement("canvas");
    c.width = this.over.canvas.width;
    c.height = this.over.canvas.height;
    const g = c.getContext("2d");
    g.scale(this.over.ratio, this.over.ratio);
    const points = this.points(device, this.over, view.first, view.last), most = Math.max(points.most, 1);
    g.globalAlpha = 0.55;
    this.fill(g, points, width, (v) => height - (v / most) * (height - 2));
    this.wholeKey = key;
    return (this.wholeCanvas = c);
  }
  paintOverview(g, width, height) {
    const { view, device, run } = this.app;
    if (!device) return;
    g.drawImage(this.whole(device, width, height), 0, 0, width, height);
    const x = (t) => GUTTER + ((t - view.first) / (view.last - view.first)) * (width - GUTTER);
    for (const m of this.app.momentList.filter((m) => m.label)) {
      g.fillStyle = m.label.startsWith("out of memory") ? theme.bad : theme.dim;
      g.fillRect(x(m.time) - 0.5, 0, 1, 6);
    }
    g.fillStyle = theme.pick;
    g.fillRect(x(this.app.picked) - 0.5, 0, 1.5, height);
    const [a, b] = [x(view.from), x(view.to)];
    g.fillStyle = theme.panel;
    g.globalAlpha = 0.7;
    g.fillRect(GUTTER, 0, a - GUTTER, height);
    g.fillRect(b, 0, width - b, height);
    g.globalAlpha = 1;
    g.strokeStyle = theme.accent;
    g.strokeRect(a + 0.5, 0.5, Math.max(2, b - a - 1), height - 1);
    g.fillStyle = theme.dim;
    g.textAlign = "right";
    g.textBaseline = "middle";
    g.fillText("all", GUTTER - 6, height / 2);
  }
  hover(p, e) {
    const { app, pane } = this, { device, run } = app;
    if (!device || p.x < GUTTER) return tip.hide();
    const t = pane.time(p.x);
    const rows = device.at(t).filter((r) => r.bytes > 0 || r.high > 0).reverse();
    const sum = rows.filter((r) => !this.hidden.has(r.layer)).reduce((s, r) => s + r.bytes, 0);
    const range = (r) => (device.leaf > 1 && r.high > r.low ? ` (${bytes(r.low)} to ${bytes(r.high)} around)` : "");
    const row = (r) => el("tr", {}, el("td", {}, el("span.key", { style: `background: var(--layer-${r.layer})` })), el("td", {}, app.meta.layers[r.layer]), el("td", {}, bytes(r.bytes) + range(r)));
    const near = this.near(run, t, (app.view.span / pane.width) * 6);
    tip.show(e.clientX, e.clientY, el("b", {}, clock(t, app.view.span / 500)), ` ${bytes(sum)} shown`, el("table", {}, rows.map(row)), near.map((n) => el("p", {}, n)));
  }
  /** Marks, named moments and regions at a time. */
  near(run, t, reach) {
    const found = [];
    const { mark, region } = run;
    const last = before(mark.time, t + reach);
    for (let i = last; i >= 0 && mark.time[i] >= t - reach && found.length < 3; i--) found.push(`mark: ${run.texts[mark.text[i]]}`);
    for (const m of this.app.momentList) if (m.label && Math.abs(m.time - t) <= reach) found.push(m.label);
    for (let i = 0; i < region.start.length && found.length < 8; i++) {
      const name = run.texts[region.text[i]];
      // One that never ended has a beginning, and no more is known.
      if (region.open[i]) {
        if (Math.abs(region.start[i] - t) <= reach) found.push(`${name} begins, and is open at the end`);
      } else if (region.start[i] <= t && region.start[i] + region.length[i] >= t) found.push(`in ${name}`);
    }
    return found;
  }
  /** One lane for marks, then one for each depth of each thread's regions. */
  layoutLanes() {
    const { run } = this.app, { region, mark } = run;
    const lanes = new Map();
    for (let i = 0; i < region.start.length; i++) {
      const key = region.thread[i] * 64 + Math.min(region.depth[i], 63);
      if (!lanes.has(key)) lanes.set(key, []);
      lanes.get(key).push(i);
    }
    this.marks = mark.time.length > 0 || this.app.momentList.some((m) => m.label);
    this.laneList = [...lanes.entries()].sort((a, b) => a[0] - b[0]).slice(0, 12);
    this.lanes.height = (this.marks ? 16 : 0) + this.laneList.length * 16 + 2;
    this.lanes.canvas.hidden = this.lanes.height <= 2;
    const names = [...new Set([...region.text].map((t) => run.texts[t]))].slice(0, 20);
    this.lanes.canvas.setAttribute("aria-label", `${plural(mark.time.length, "mark")} and ${plural(region.start.length, "region")} over time${names.length ? `: ${names.join(", ")}` : ""}`);
  }
  paintLanes(g, width) {
    const { run, view } = this.app, { region, mark } = run, pane = this.lanes;
    g.textBaseline = "middle";
    const gutter = (text, y) => {
      g.fillStyle = theme.dim;
      g.textAlign = "right";
      g.fillText(text, GUTTER - 6, y);
    };
    g.save();
    let y = 0;
    if (this.marks) {
      gutter("marks", 8);
      let free = GUTTER;
      const flag = (t, text, paint, next) => {
        const x = pane.x(t);
        if (x < GUTTER || x > width) return;
        g.fillStyle = paint;
        g.fillRect(x - 0.5, 0, 1.5, 14);
        if (x < free || !text) return;
        g.textAlign = "left";
        const room = Math.min(150, next - x - 8);
        if (room < 24) return;
        const words = clip(g, text, room);
        g.fillText(words, x + 4, 8);
        free = x + g.measureText(words).width + 12;
      };
      const marks = [];
      for (let i = Math.max(0, before(mark.time, view.from)); i < mark.time.length && mark.time[i] <= view.to; i++) marks.push([mark.time[i], run.texts[mark.text[i]], theme.ink]);
      for (const m of this.app.momentList) if (m.label && m.time >= view.from && m.time <= view.to && !marks.some(([t]) => t === m.time)) marks.push([m.time, m.label, m.label.startsWith("out of memory") ? theme.bad : theme.accent]);
      marks.sort((a, b) => a[0] - b[0]).forEach((m, i) => flag(...m, i + 1 < marks.length ? pane.x(marks[i + 1][0]) : width));
      y = 16;
    }
    for (const [key, list] of this.laneList) {
      const thread = Math.floor(key / 64), depth = key % 64;
      if (depth === 0) gutter(thread ? run.threadNames.get(thread) || `thread ${thread}` : "process", y + 8);
      let drawn = -1;
      for (const i of list) {
        const begin = pane.x(region.start[i]);
        const a = Math.max(GUTTER, begin), b = Math.min(width, region.open[i] ? begin + OPEN : pane.x(region.start[i] + region.length[i]));
        // What is no wider than what was drawn there is not seen.
        if (b < GUTTER || a > width || b <= drawn) continue;
        const paint = colour(run.texts[region.text[i]]);
        if (region.open[i]) {
          // It fades, as what is known of it does.
          const fade = g.createLinearGradient(begin, 0, begin + OPEN, 0);
          fade.addColorStop(0, paint);
          fade.addColorStop(1, "transparent");
          g.fillStyle = fade;
        } else g.fillStyle = paint;
        g.fillRect(a, y + 1, Math.max(0.75, b - a - 0.5), 14);
        drawn = Math.max(b, a + 0.75);
        if (b - a > 26) {
          g.fillStyle = theme.name === "dark" ? "#fff" : "#10141a";
          g.textAlign = "left";
          g.fillText(clip(g, run.texts[region.text[i]], b - a - 6), a + 3, y + 8);
        }
      }
      y += 16;
    }
    g.restore();
    timeLine(g, pane, this.app.picked, theme.pick);
  }
  hoverLanes(p, e) {
    const { run, view } = this.app;
    const near = this.near(run, this.lanes.time(p.x), (view.span / this.lanes.width) * 5);
    if (near.length && p.x >= GUTTER) tip.show(e.clientX, e.clientY, near.map((n) => el("p", {}, n)));
    else tip.hide();
  }
}

/** A text cut to a width. */
function clip(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let n = Math.max(1, Math.floor((text.length * width) / g.measureText(text).width) - 1);
  while (n > 1 && g.measureText(`${text.slice(0, n)}…`).width > width) n--;
  return n > 1 ? `${text.slice(0, n)}…` : "";
}
