// What all pictures over time share: the stretch of time they show, and how mouse, wheel, fingers and keys change it.

/** Room left of a picture, for numbers. */
const GUTTER = 74;

/** The time that is shown. */
class View {
  constructor() {
    this.listeners = [];
    this.full(0, 1);
  }
  full(start, end) {
    this.first = start;
    this.last = Math.max(end, start + 1);
    this.from = this.first;
    this.to = this.last;
  }
  get span() {
    return this.to - this.from;
  }
  /** Shows this time, inside of what there is. */
  show(from, to) {
    const most = this.last - this.first;
    const span = Math.min(most, Math.max(to - from, 50));
    from = Math.min(Math.max(from + (to - from - span) / 2, this.first), this.last - span);
    this.from = from;
    this.to = from + span;
    this.listeners.forEach((changed) => changed());
  }
  all() {
    this.show(this.first, this.last);
  }
  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) / factor, at + (this.to - at) / factor);
  }
  move(by) {
    // Not past an end, and not narrower there.
    const d = Math.min(Math.max(by, this.first - this.from), this.last - this.to);
    this.show(this.from + d, this.to + d);
  }
}

/** A canvas that keeps its size and is drawn when it should. */
class Pane {
  constructor(id, height) {
    this.canvas = $(id);
    this.height = height;
    this.width = 0;
    this.waiting = false;
    this.paint = () => {};
    new ResizeObserver(() => this.fit() && this.redraw()).observe(this.canvas);
  }
  /** Fits the canvas to the page; says whether it changed. */
  fit() {
    const ratio = this.printing ? 3 : Math.min(3, window.devicePixelRatio || 1);
    // Paper is about so wide; the style sheet scales the rest.
    const width = this.printing ? 720 : Math.max(50, Math.round(this.canvas.clientWidth));
    const [w, h] = [Math.round(width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width === w && this.canvas.height === h) return false;
    this.canvas.width = w;
    this.canvas.height = h;
    this.canvas.style.height = `${this.height}px`;
    this.width = width;
    this.ratio = ratio;
    return true;
  }
  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => this.now());
  }
  now() {
    this.waiting = false;
    this.fit();
    const g = this.canvas.getContext("2d");
    g.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    g.clearRect(0, 0, this.width, this.height);
    g.font = theme.font;
    this.paint(g, this.width, this.height);
  }
  /** Where a pointer is in the canvas. */
  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }
}

/** A canvas over time. `hooks`: `pick(time)`, `hover(point, event)`, `out()`, `step(±1)`, `key(event)`. */
class TimePane extends Pane {
  constructor(id, height, view, hooks = {}) {
    super(id, height);
    this.view = view;
    this.hooks = hooks;
    this.fingers = new Map();
    this.listen();
  }
  x(time) {
    return GUTTER + ((time - this.view.from) / this.view.span) * (this.width - GUTTER);
  }
  time(x) {
    return this.view.from + ((x - GUTTER) / (this.width - GUTTER)) * this.view.span;
  }
  inside(x) {
    return Math.min(Math.max(x, GUTTER), this.width);
  }
  listen() {
    const c = this.canvas, { view } = this;
    c.addEventListener("pointerdown", (e) => {
      if (e.button !== 0) return;
      c.setPointerCapture(e.pointerId);
      const p = this.point(e);
      this.fingers.set(e.pointerId, p);
      if (this.fingers.size === 1) this.drag = { start: p, last: p, moved: false, select: e.shiftKey };
      else this.drag = null;
      tip.hide();
    });
    c.addEventListener("pointermove", (e) => {
      const p = this.point(e);
      if (this.fingers.size === 2 && this.fingers.has(e.pointerId)) {
        const [a, b] = [...this.fingers.values()].map((f) => f.x);
        const middle = this.time((a + b) / 2);
        this.fingers.set(e.pointerId, p);
        const [c1, d1] = [...this.fingers.values()].map((f) => f.x);
        const factor = Math.max(20, Math.abs(d1 - c1)) / Math.max(20, Math.abs(b - a));
        view.zoom(factor, middle);
        view.move(middle - this.time((c1 + d1) / 2));
        return;
      }
      if (!this.drag || !this.fingers.has(e.pointerId)) {
        if (e.pointerType !== "touch" && this.hooks.hover) this.hooks.hover(p, e);
        return;
      }
      if (Math.abs(p.x - this.drag.start.x) > 4) this.drag.moved = true;
      if (this.drag.moved && !this.drag.select) view.move(((this.drag.last.x - p.x) / (this.width - GUTTER)) * view.span);
      this.drag.last = p;
      if (this.drag.select) this.redraw();
    });
    const up = (e) => {
      const drag = this.drag;
      this.fingers.delete(e.pointerId);
      this.drag = null;
      if (!drag || e.type === "pointercancel") return;
      if (drag.select && drag.moved) {
        const [a, b] = [this.time(this.inside(drag.start.x)), this.time(this.inside(drag.last.x))];
        view.show(Math.min(a, b), Math.max(a, b));
      } else if (!drag.moved) {
        if (this.hooks.click && this.hooks.click(drag.start, e)) return;
        if (this.hooks.pick && drag.start.x >= GUTTER) this.hooks.pick(this.time(drag.start.x));
      }
    };
    c.addEventListener("pointerup", up);
    c.addEventListener("pointercancel", up);
    c.addEventListener("pointerleave", () => {
      tip.hide();
      if (this.hooks.out) this.hooks.out();
    });
    c.addEventListener("dblclick", (e) => view.zoom(4, this.time(this.inside(this.point(e).x))));
    c.addEventListener("wheel", (e) => {
      const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
      const zooms = e.ctrlKey || e.metaKey || document.activeElement === c;
      if (!sideways && !zooms) return;
      e.preventDefault();
      tip.hide();
      const unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 400 : 1;
      if (sideways) view.move((((e.deltaX || e.deltaY) * unit) / (this.width - GUTTER)) * view.span);
      else view.zoom(Math.exp((-e.deltaY * unit) / (e.ctrlKey ? 120 : 400)), this.time(this.inside(this.point(e).x)));
    }, { passive: false });
    c.addEventListener("keydown", (e) => this.key(e));
  }
  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const { view, hooks } = this;
    const far = e.shiftKey ? 0.8 : 0.12;
    const act = {
      ArrowLeft: () => view.move(-view.span * far),
      ArrowRight: () => view.move(view.span * far),
      "+": () => view.zoom(1.5, hooks.centre && hooks.centre()),
      "=": () => view.zoom(1.5, hooks.centre && hooks.centre()),
      "-": () => view.zoom(1 / 1.5, hooks.centre && hooks.centre()),
      ArrowUp: () => view.zoom(1.5, hooks.centre && hooks.centre()),
      ArrowDown: () => view.zoom(1 / 1.5, hooks.centre && hooks.centre()),
      0: () => view.all(),
      Home: () => view.move(-Infinity),
      End: () => view.move(Infinity),
      Enter: () => hooks.pick && hooks.pick((view.from + view.to) / 2),
      ",": () => hooks.nudge && hooks.nudge(-1),
      ".": () => hooks.nudge && hooks.nudge(1),
      "[": () => hooks.step && hooks.step(-1),
      "]": () => hooks.step && hooks.step(1),
    }[e.key];
    if (!act) return hooks.key && hooks.key(e);
    e.preventDefault();
    act();
  }
  /** What shift and dragging selects. */
  selection(g) {
    if (!this.drag || !this.drag.select || !this.drag.moved) return;
    g.globalAlpha = 0.2;
    g.fillStyle = theme.accent;
    const [a, b] = [this.drag.start.x, this.drag.last.x];
    g.fillRect(Math.min(a, b), 0, Math.abs(b - a), this.height);
    g.globalAlpha = 1;
  }
}

/** Round steps for bytes: 1, 2, 4, 8, 16 … of each unit. */
function byteStep(most, ticks) {
  let step = 1;
  while (most / step > ticks) step *= 2;
  // 128, 256 and 512 are round; so are all powers of two.
  return step;
}

/** Numbers at the left, lines across. */
function byteAxis(g, width, height, most, top = 6, bottom = 0) {
  const step = byteStep(most, Math.max(2, (height - top - bottom) / 34));
  g.textAlign = "right";
  g.textBaseline = "middle";
  for (let v = 0; v <= most; v += step) {
    const y = height - bottom - (v / most) * (height - top - bottom);
    g.fillStyle = theme.grid;
    g.fillRect(GUTTER, Math.round(y), width - GUTTER, 1);
    g.fillStyle = theme.dim;
    if (y > top) g.fillText(bytes(v), GUTTER - 6, Math.min(y, height - bottom - 6));
  }
}

/** Times along the bottom. */
function timeAxis(g, pane, y) {
  const { view, width } = pane;
  const rough = view.span / Math.max(2, (width - GUTTER) / 110);
  const ten = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= rough);
  g.fillStyle = theme.dim;
  g.textAlign = "center";
  g.textBaseline = "top";
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = pane.x(t);
    g.fillRect(Math.round(x), y, 1, 4);
    const text = clock(t, step), half = g.measureText(text).width / 2;
    if (x + half <= width && x - half >= GUTTER - 20) g.fillText(text, x, y + 5);
  }
}

/** A line down at a time. */
function timeLine(g, pane, time, paint, dash = []) {
  const x = Math.round(pane.x(time)) + 0.5;
  if (x < GUTTER || x > pane.width) return;
  g.strokeStyle = paint;
  g.setLineDash(dash);
  g.beginPath();
  g.moveTo(x, 0);
  g.lineTo(x, pane.height);
  g.stroke();
  g.setLineDash([]);
}
