// A flame graph of who holds memory: the outermost call on top, width is bytes.

class Icicle {
  constructor(app) {
    this.app = app;
    this.pane = new Pane("icicle", 200);
    this.pane.paint = (g, w) => this.paint(g, w);
    this.at = null;
    const c = this.pane.canvas;
    c.addEventListener("pointermove", (e) => this.hover(e));
    c.addEventListener("pointerleave", () => tip.hide());
    c.addEventListener("click", (e) => {
      const box = this.find(this.pane.point(e));
      if (box) this.enter(box.node === this.root && box.node.up ? box.node.up : box.node);
    });
    c.addEventListener("keydown", (e) => this.key(e));
    $("icicle-python").addEventListener("change", () => this.show(this.shares));
  }
  show(shares) {
    this.shares = shares;
    if (!shares) return;
    const { run } = this.app, python = $("icicle-python").checked;
    const top = { name: "all", place: "", bytes: 0, n: 0, below: new Map(), up: null };
    for (const [g, size, n] of shares.list) {
      const stack = run.stacks[run.group.stack[g]] || { frames: [] };
      let node = top;
      const add = (name, place, whose) => {
        const key = `${name}  ${place}`;
        let next = node.below.get(key);
        if (!next) node.below.set(key, (next = { name, place, whose, bytes: 0, n: 0, below: new Map(), up: node }));
        next.bytes += size;
        next.n += n;
        node = next;
      };
      top.bytes += size;
      top.n += n;
      for (let k = stack.frames.length - 1; k >= 0; k--) {
        const frame = run.frames[stack.frames[k]];
        if (!python || frame[2] !== "n") add(...frame);
      }
      const caller = run.callers[run.group.caller[g]];
      add(caller ? `${run.all.meta.kinds[run.group.kind[g]]} by ${caller}` : run.all.meta.kinds[run.group.kind[g]], "", "k");
    }
    this.top = this.root = top;
    this.at = null;
    this.resize();
  }
  enter(node) {
    this.root = node;
    this.at = node;
    this.resize();
    $("icicle-note").textContent = node === this.top ? "" : this.words(node);
  }
  words(node) {
    return `${node.name}${node.place ? `  ${node.place}` : ""}: ${bytes(node.bytes)}, ${percent(node.bytes, this.top.bytes)} of all, in ${plural(node.n, "allocation")}`;
  }
  resize() {
    const deep = (node, least, depth) => {
      let most = depth;
      for (const n of node.below.values()) if (n.bytes >= least) most = Math.max(most, deep(n, least, depth + 1));
      return most;
    };
    this.pane.height = Math.min(900, 20 * (deep(this.root, this.root.bytes / 1500, 1) + this.above().length) + 4);
    this.pane.redraw();
  }
  above() {
    const list = [];
    for (let n = this.root.up; n; n = n.up) list.unshift(n);
    return list;
  }
  paint(g, width) {
    this.boxes = [];
    if (!this.top || !this.top.bytes) return;
    g.textBaseline = "middle";
    g.textAlign = "left";
    const box = (node, x, w, y, faded) => {
      this.boxes.push({ node, x, y, w });
      g.globalAlpha = faded ? 0.45 : 1;
      g.fillStyle = node.whose === "n" || node.whose === "k" || !node.up ? theme.band : colour(node.whose === "u" ? `${node.name}  ${node.place}` : node.whose);
      g.fillRect(x, y, Math.max(0.5, w - 0.6), 19);
      g.globalAlpha = 1;
      if (node === this.at) {
        g.strokeStyle = theme.pick;
        g.lineWidth = 2;
        g.strokeRect(x + 1, y + 1, w - 2, 17);
        g.lineWidth = 1;
      }
      if (w > 34) {
        g.fillStyle = theme.name === "dark" ? "#fff" : "#10141a";
        const text = `${node.name}${node.place ? `  ${node.place}` : ""}${w > 220 ? `  ${bytes(node.bytes)}` : ""}`;
        g.fillText(clip(g, text, w - 8), x + 4, y + 10);
      }
    };
    let y = 2;
    for (const node of this.above()) (box(node, 0, width, y, true), (y += 20));
    const draw = (node, x, w, y) => {
      box(node, x, w, y, false);
      let at = x;
      for (const n of [...node.below.values()].sort((a, b) => b.bytes - a.bytes)) {
        const part = (n.bytes / node.bytes) * w;
        if (part < 0.5) continue;
        draw(n, at, part, y + 20);
        at += part;
      }
    };
    draw(this.root, 0, width, y);
    this.pane.canvas.setAttribute("aria-label", `Flame graph of who holds memory: ${this.words(this.at || this.root)}`);
  }
  find(p) {
    return (this.boxes || []).find((b) => p.y >= b.y && p.y < b.y + 20 && p.x >= b.x && p.x <= b.x + b.w);
  }
  hover(e) {
    const found = this.find(this.pane.point(e));
    if (!found) return tip.hide();
    const { node } = found;
    tip.show(e.clientX, e.clientY, el("code", {}, node.name), el("span.where", {}, `  ${node.place}`), el("p", {}, `${bytes(node.bytes)}, ${percent(node.bytes, this.top.bytes)} of all${this.root !== this.top ? `, ${percent(node.bytes, this.root.bytes)} of what is shown` : ""}, ${plural(node.n, "allocation")}`));
  }
  key(e) {
    if (!this.top) return;
    const at = this.at || this.root;
    const beside = (d) => {
      if (!at.up) return at;
      const all = [...at.up.below.values()].sort((a, b) => b.bytes - a.bytes);
      return all[Math.min(Math.max(all.indexOf(at) + d, 0), all.length - 1)];
    };
    const next = {
      ArrowDown: () => [...at.below.values()].sort((a, b) => b.bytes - a.bytes)[0],
      ArrowUp: () => at.up,
      ArrowRight: () => beside(1),
      ArrowLeft: () => beside(-1),
    }[e.key];
    if (next) {
      e.preventDefault();
      this.at = next() || at;
      $("icicle-note").textContent = this.words(this.at);
      this.pane.redraw();
    } else if (e.key === "Enter") this.enter(at);
    else if (e.key === "Escape") this.enter(this.root.up || this.top);
  }
}
