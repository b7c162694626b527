// Segments and their blocks at one moment: what is used, what is free, and which blocks keep free memory from going back.

const WHOSE = ["the pool", "PyTorch", "mapped memory", "", "the pool"];

/** What the device's allocators held at a time: segments by address, each with its blocks. */
function stateAt(run, device, time) {
  const { stay, life, group } = run;
  const segments = [], loose = [], again = [];
  const starts = stay.time;
  const n = before(starts, time) + 1;
  for (let i = 0; i < n; i++) {
    if (stay.device[i] !== device.device || run.stayed(i) <= time) continue;
    // Mapped a second time, for a block that is stitched together from several places: no memory of its own.
    if (stay.home[i]) again.push({ from: stay.address[i], bytes: stay.bytes[i], home: stay.home[i] });
    else segments.push({ from: stay.address[i], bytes: stay.bytes[i], since: stay.time[i], whose: stay.whose[i], blocks: [], parts: 1 });
  }
  segments.sort((a, b) => a.from - b.from);
  again.sort((a, b) => a.from - b.from);
  // Memory that is mapped piece by piece, side by side, is one segment.
  const joined = [];
  for (const s of segments) {
    const last = joined[joined.length - 1];
    if (last && (s.whose === 2 || s.whose === 4) && last.whose === s.whose && last.from + last.bytes === s.from) {
      last.bytes += s.bytes;
      last.parts++;
      last.since = Math.min(last.since, s.since);
    } else joined.push(s);
  }
  const froms = joined.map((s) => s.from), seconds = again.map((a) => a.from);
  const place = (block) => {
    const s = joined[before(froms, block.from)];
    if (block.from && s && block.from < s.from + s.bytes) s.blocks.push(block);
    else loose.push(block);
  };
  const lives = before(life.time, time) + 1;
  for (let i = 0; i < lives; i++) {
    const g = life.group[i];
    if (group.device[g] !== device.device || run.endOf(i) <= time) continue;
    const from = life.address[i], to = from + life.bytes[i];
    let n = before(seconds, from);
    if (n < 0 || from >= again[n].from + again[n].bytes) place({ i, from, bytes: to - from });
    // Such a block is shown where its memory lies, in pieces.
    else for (; n < again.length && again[n].from < to; n++) {
      const a = again[n], start = Math.max(from, a.from), end = Math.min(to, a.from + a.bytes);
      place({ i, from: a.home + start - a.from, bytes: end - start });
    }
  }
  // What lies in no segment came from the driver by itself.
  for (const b of loose) joined.push({ from: b.from, bytes: b.bytes, since: life.time[b.i], whose: 3, blocks: [b], parts: 1, kind: group.kind[life.group[b.i]] });
  for (const s of joined) {
    s.blocks.sort((a, b) => a.from - b.from);
    s.used = 0;
    s.gaps = [];
    let at = s.from;
    for (const b of s.blocks) {
      if (b.from > at) s.gaps.push({ from: at, bytes: b.from - at });
      s.used += b.bytes;
      at = Math.max(at, b.from + b.bytes);
    }
    if (at < s.from + s.bytes) s.gaps.push({ from: at, bytes: s.from + s.bytes - at });
    if (s.whose === 3) s.gaps = [];
    s.free = s.gaps.reduce((sum, gap) => sum + gap.bytes, 0);
  }
  return joined;
}

class Allocator {
  constructor(app) {
    this.app = app;
    this.pane = new Pane("allocator", 260);
    this.pane.paint = (g, w, h) => this.paint(g, w, h);
    this.only = null;
    this.at = -1;
    const c = this.pane.canvas;
    c.addEventListener("pointermove", (e) => this.hover(e));
    c.addEventListener("pointerleave", () => tip.hide());
    c.addEventListener("click", (e) => this.choose(this.find(this.pane.point(e))));
    c.addEventListener("dblclick", (e) => {
      const piece = this.find(this.pane.point(e));
      if (piece) this.enter(piece.segment);
    });
    c.addEventListener("keydown", (e) => this.key(e));
    $("allocator-order").addEventListener("change", () => this.show());
    $("allocator-back").addEventListener("click", () => this.enter(null));
  }
  /** Another moment, or another device. */
  show() {
    const { run, device, app } = { ...this.app, app: this.app };
    if (!device) return;
    const moment = run.whole ? null : run.nearest(app.picked, device);
    this.time = moment ? moment.time : app.picked;
    this.untold = moment ? moment.untold : 0;
    const order = $("allocator-order").value;
    const all = stateAt(run, device, this.time);
    all.sort({ free: (a, b) => b.free - a.free || b.bytes - a.bytes, address: (a, b) => a.from - b.from, bytes: (a, b) => b.bytes - a.bytes }[order]);
    this.all = all;
    if (this.only) this.only = all.find((s) => s.from === this.only.from && s.whose === this.only.whose) || null;
    $("allocator-back").hidden = !this.only;
    this.at = -1;
    this.stats();
    this.pins();
    this.detail(null);
    this.pane.redraw();
  }
  enter(segment) {
    this.only = segment;
    $("allocator-back").hidden = !segment;
    this.at = -1;
    this.pane.redraw();
    if (segment) announce(`One segment of ${bytes(segment.bytes)}`);
  }
  stats() {
    const held = this.all.filter((s) => s.whose !== 3);
    const sum = (list, what) => list.reduce((n, s) => n + what(s), 0);
    const reserved = sum(held, (s) => s.bytes), free = sum(held, (s) => s.free);
    const empty = held.filter((s) => !s.blocks.length), pinned = held.filter((s) => s.blocks.length && s.free);
    const gaps = held.flatMap((s) => s.gaps);
    const largest = gaps.reduce((m, gap) => Math.max(m, gap.bytes), 0);
    const direct = this.all.filter((s) => s.whose === 3);
    const rows = [];
    if (held.length) {
      rows.push(tile(bytes(reserved), `in ${plural(held.length, "segment")}`), tile(bytes(reserved - free), "used by blocks"));
      if (free) rows.push(tile(bytes(free), `free in ${plural(gaps.length, "piece")}`), tile(bytes(largest), "largest free piece: more needs the driver"));
      if (empty.length) rows.push(tile(bytes(sum(empty, (s) => s.free)), `in ${plural(empty.length, "empty segment")}: could go back`));
      if (pinned.length) rows.push(tile(bytes(sum(pinned, (s) => s.free)), `free but pinned by blocks in ${plural(pinned.length, "segment")}`));
    }
    if (direct.length) rows.push(tile(bytes(sum(direct, (s) => s.bytes)), `in ${plural(direct.length, "allocation")} straight from the driver`));
    $("allocator-stats").replaceChildren(...rows);
    const note = this.untold ? `; ${plural(this.untold, "small allocation")} of this moment not kept` : "";
    $("allocator-note").textContent = `at ${clock(this.time, 1e3)}${note}`;
    this.pane.canvas.setAttribute("aria-label", `Segments and their blocks at ${time(this.time)}: ${bytes(reserved)} in ${plural(held.length, "segment")}, ${bytes(free)} free in ${plural(gaps.length, "piece")}, the largest ${bytes(largest)}`);
  }
  /** The segments whose free memory the fewest bytes keep from going back. */
  pins() {
    const worst = this.all.filter((s) => s.whose !== 3 && s.blocks.length && s.free > s.used && s.free >= 1 << 20).sort((a, b) => b.free - a.free).slice(0, 6);
    const box = $("pins");
    if (!worst.length) return box.replaceChildren();
    const { run } = this.app;
    const item = (s) => {
      const lines = new Map();
      for (const b of s.blocks) {
        const g = run.life.group[b.i], line = lineOf(run, g), key = `${line.what}  ${line.place}`;
        const sum = lines.get(key) || { line, n: 0, bytes: 0, oldest: Infinity };
        sum.n++;
        sum.bytes += b.bytes;
        sum.oldest = Math.min(sum.oldest, run.life.time[b.i]);
        lines.set(key, sum);
      }
      const by = [...lines.values()].sort((a, b) => b.bytes - a.bytes);
      const part = (l) => el("li", {}, `${bytes(l.bytes)} in ${plural(l.n, "block")}: `, el("code", {}, l.line.what), el("span.where", {}, `  ${l.line.place}`), `, the oldest ${time(this.time - l.oldest)} old`);
      return el("li", {}, el("button", { type: "button", onclick: () => (this.enter(s), this.pane.canvas.scrollIntoView({ block: "nearest" })) }, `${bytes(s.free)} free of ${bytes(s.bytes)}`), ` (${WHOSE[s.whose]}), kept by ${bytes(s.used)}`, el("ul.plain", {}, by.slice(0, 3).map(part), by.length > 3 ? el("li.dim", {}, `and ${by.length - 3} more`) : null));
    };
    box.replaceChildren(el("h4", {}, "What pins free memory"), el("ul.plain", {}, worst.map(item)));
  }
  /** The segments as one ribbon in rows, so that area is bytes at any size. */
  layout(width, height) {
    const shown = this.only ? [this.only] : this.all || [];
    const total = shown.reduce((n, s) => n + s.bytes, 0);
    this.pieces = [];
    if (!total) return;
    const rows = Math.max(1, Math.floor(height / 22)), pitch = height / rows, tall = pitch - 4;
    // A little room between segments.
    const gap = Math.min(3, (width * rows * 0.12) / shown.length);
    const scale = (width * rows - gap * shown.length) / total;
    let x = 0, row = 0;
    const put = (length, piece) => {
      while (length > 0.001 && row < rows) {
        const part = Math.min(length, width - x);
        this.pieces.push({ ...piece, x, y: row * pitch + 2, w: part, h: tall });
        x += part;
        length -= part;
        if (width - x < 0.01) (x = 0), row++;
      }
    };
    for (const s of shown) {
      let b = 0, f = 0, at = s.from;
      const pieces = [...s.blocks.map((k) => ({ block: k, from: k.from, bytes: k.bytes })), ...s.gaps.map((k) => ({ gap: k, from: k.from, bytes: k.bytes }))].sort((p, q) => p.from - q.from);
      for (const p of pieces) put(p.bytes * scale, { segment: s, ...p });
      x += gap;
      if (x >= width) (x = 0), row++;
    }
  }
  paint(g, width, height) {
    const { run } = this.app;
    this.layout(width, height);
    if (!this.pieces.length) {
      g.fillStyle = theme.dim;
      g.textAlign = "center";
      g.fillText("nothing is held at this moment", width / 2, height / 2);
      return;
    }
    for (const p of this.pieces) {
      if (p.block) {
        g.fillStyle = groupColour(run, run.life.group[p.block.i]);
        g.fillRect(p.x, p.y, Math.max(p.w, 0.5), p.h);
        if (p.w > 3) {
          g.fillStyle = theme.panel;
          g.fillRect(p.x, p.y, 0.7, p.h);
        }
      } else {
        g.fillStyle = theme.free;
        g.fillRect(p.x, p.y, p.w, p.h);
        g.strokeStyle = theme.dim;
        g.lineWidth = 0.6;
        if (p.w > 2) {
          // Hatched: free.
          g.save();
          g.beginPath();
          g.rect(p.x, p.y, p.w, p.h);
          g.clip();
          g.globalAlpha = 0.45;
          g.beginPath();
          for (let x = p.x - p.h; x < p.x + p.w; x += 6) {
            g.moveTo(x, p.y + p.h);
            g.lineTo(x + p.h, p.y);
          }
          g.stroke();
          g.restore();
        }
        g.lineWidth = 1;
      }
    }
    this.frames(g);
    g.textBaseline = "middle";
    g.textAlign = "left";
    for (const p of this.pieces) {
      if (p.w < 86) continue;
      g.fillStyle = p.block ? (theme.name === "dark" ? "#fff" : "#10141a") : theme.dim;
      const text = p.block ? `${bytes(p.bytes)}  ${lineOf(run, run.life.group[p.block.i]).what}` : `${bytes(p.bytes)} free`;
      if (!p.block) {
        const wide = g.measureText(clip(g, text, p.w - 8)).width;
        g.fillStyle = theme.free;
        g.fillRect(p.x + 2, p.y + 1, wide + 5, p.h - 2);
        g.fillStyle = theme.dim;
      }
      g.fillText(clip(g, text, p.w - 8), p.x + 4, p.y + p.h / 2);
    }
    const lit = this.order()[this.at];
    if (lit) {
      g.strokeStyle = theme.pick;
      g.lineWidth = 2;
      for (const p of this.pieces) if (p.segment === lit.segment && p.from === lit.from) g.strokeRect(p.x, p.y, Math.max(p.w, 2), p.h);
      g.lineWidth = 1;
    }
  }
  /** A line around each segment's parts in a row. */
  frames(g) {
    g.strokeStyle = theme.ink;
    g.globalAlpha = 0.55;
    let from = null, last = null;
    const close = () => from && last.x + last.w - from.x > 3 && g.strokeRect(from.x, from.y, last.x + last.w - from.x, from.h);
    for (const p of this.pieces) {
      if (from && (p.segment !== from.segment || p.y !== from.y)) close(), (from = null);
      from = from || p;
      last = p;
    }
    close();
    g.globalAlpha = 1;
  }
  find(p) {
    let best = null;
    for (const piece of this.pieces || []) {
      if (p.y < piece.y || p.y > piece.y + piece.h) continue;
      if (p.x >= piece.x - 0.5 && p.x <= piece.x + Math.max(piece.w, 1)) best = piece;
    }
    return best;
  }
  describe(piece, short) {
    const { run } = this.app, s = piece.segment;
    const where = s.whose === 3 ? null : el("p.dim", {}, `in a segment of ${bytes(s.bytes)} of ${WHOSE[s.whose]}, ${time(this.time - s.since)} old: ${bytes(s.used)} used, ${bytes(s.free)} free in ${plural(s.gaps.length, "piece")}${s.parts > 1 ? `, mapped in ${s.parts} parts` : ""}`);
    if (piece.block) {
      const number = run.group.stack[run.life.group[piece.block.i]];
      const pins = s.free > 0 && s.whose !== 3 ? el("p", {}, `It ${s.blocks.length === 1 ? "alone keeps" : `and ${plural(s.blocks.length - 1, "other block")} keep`} ${bytes(s.free)} of this segment from going back.`) : null;
      return [...this.app.allocations.describe(piece.block.i, this.time), where, pins, short ? stackShort(run, number) : stackList(run, number)].filter(Boolean);
    }
    const why = s.blocks.length ? `pinned by ${plural(s.blocks.length, "block")} of ${bytes(s.used)}` : "the segment is empty and could go back to the driver";
    const pins = s.blocks.slice().sort((a, b) => b.bytes - a.bytes).slice(0, short ? 3 : 12).map((b) => {
      const line = lineOf(run, run.life.group[b.i]);
      return el("li", {}, `${bytes(b.bytes)}  `, el("code", {}, line.what), el("span.where", {}, `  ${line.place}`), `, ${time(this.time - run.life.time[b.i])} old`);
    });
    return [el("b", {}, `${bytes(piece.bytes)} free`), `, ${why}`, where, pins.length ? el("ul.plain", {}, pins) : null].filter(Boolean);
  }
  hover(e) {
    const piece = this.find(this.pane.point(e));
    if (!piece) return tip.hide();
    tip.show(e.clientX, e.clientY, ...this.describe(piece, true));
  }
  /** The pieces one after the other, each once. */
  order() {
    const seen = new Set(), list = [];
    for (const p of this.pieces || []) {
      const key = `${p.segment.whose}/${p.segment.from}/${p.from}/${p.block ? p.block.i : "gap"}`;
      if (!seen.has(key)) seen.add(key), list.push(p);
    }
    return list;
  }
  choose(piece) {
    if (!piece) return;
    this.at = this.order().findIndex((p) => p.segment === piece.segment && p.from === piece.from && p.block === piece.block);
    this.detail(piece);
    this.pane.redraw();
  }
  detail(piece) {
    const box = $("allocator-detail");
    box.hidden = !piece;
    box.replaceChildren(...(piece ? this.describe(piece, false) : []));
  }
  key(e) {
    const list = this.order();
    const go = (n) => {
      e.preventDefault();
      if (!list.length) return;
      this.at = Math.min(Math.max(n, 0), list.length - 1);
      this.detail(list[this.at]);
      this.pane.redraw();
    };
    if (e.key === "ArrowRight") go(this.at + 1);
    else if (e.key === "ArrowLeft") go(this.at - 1);
    else if (e.key === "Home") go(0);
    else if (e.key === "End") go(list.length - 1);
    else if (e.key === "Enter" && list[this.at]) this.enter(list[this.at].segment);
    else if (e.key === "Escape") this.enter(null);
    else if (e.key === "[") this.app.stepMoment(-1);
    else if (e.key === "]") this.app.stepMoment(1);
  }
}
