// Puts the page together: which process and memory is shown, which moment is picked, light or dark.

class App {
  constructor(all) {
    this.all = all;
    this.meta = all.meta;
    this.view = new View();
    this.picked = 0;
    this.momentList = [];
    this.timeline = new Timeline(this);
    this.allocations = new Allocations(this);
    this.allocator = new Allocator(this);
    this.icicle = new Icicle(this);
    this.holders = new Holders(this);
    this.view.listeners.push(() => this.moved());
    this.controls();
  }
  controls() {
    const runs = this.all.runs;
    const name = (r) => `${r.rank !== null ? `rank ${r.rank}: ` : ""}${r.name}${r.pid ? `, ${r.pid} on ${r.host}` : ""}`;
    $("run").replaceChildren(...runs.map((r, i) => el("option", { value: i }, name(r))));
    $("run-label").hidden = runs.length < 2;
    $("run").addEventListener("change", () => this.showRun(Number($("run").value)));
    $("device").addEventListener("change", () => this.showDevice(Number($("device").value)));
    $("zoom-in").addEventListener("click", () => this.view.zoom(2, this.centre()));
    $("zoom-out").addEventListener("click", () => this.view.zoom(0.5, this.centre()));
    $("zoom-all").addEventListener("click", () => this.view.all());
    $("zoom-peak").addEventListener("click", () => {
      const span = Math.min(this.view.span, (this.view.last - this.view.first) / 20);
      this.view.show(this.device.peak - span / 2, this.device.peak + span / 2);
      this.pick(this.device.peak);
    });
    $("moment-slider").addEventListener("input", (e) => this.pick(this.steps[Number(e.target.value)], true));
    $("moment-names").addEventListener("change", (e) => e.target.value && this.pick(Number(e.target.value)));
  }
  showRun(i) {
    this.run = this.all.runs[i];
    const { run } = this;
    colourLines(run);
    // Lines of Python say most, where there are any.
    $("icicle-python").checked = run.frames.some((f) => f[2] !== "n");
    $("run").value = i;
    
    $("what").textContent = run.command;
    $("what").title = run.command;
    $("device").replaceChildren(...run.devices.map((d, k) => el("option", { value: k }, d.host ? "Host memory (pinned)" : `GPU ${d.device}${d.name ? `: ${d.name}` : ""}`)));
    $("device-label").hidden = run.devices.length < 2;
    // Ranks of a job have one zero of time: what is in sight stays in sight in another.
    const { from, to, first, last } = this.view, again = this.meta.together && this.shown;
    const ends = this.meta.together ? this.all.runs : [run];
    this.view.full(Math.min(...ends.map((r) => r.start)), Math.max(...ends.map((r) => r.end)));
    if (again && (from > first || to < last)) this.view.show(from, to);
    this.shown = true;
    if (!run.devices.length) return this.nothing();
    // What was live at one moment has no time to draw.
    $("time").hidden = this.one();
    // The device that held most first.
    const most = run.devices.reduce((best, d, k) => (!d.host && d.peak_active > (run.devices[best].host ? -1 : run.devices[best].peak_active) ? k : best), 0);
    this.showDevice(most);
  }
  /** Whether what is shown is a snapshot. */
  one() {
    return Boolean(((this.run.answers || {}).program || {}).snapshot);
  }
  nothing() {
    for (const id of ["time", "moment", "who"]) $(id).hidden = true;
    $("glance-body").replaceChildren(el("p", {}, "Nothing was recorded: no GPU memory was asked for."));
    about(this, this.run.answers || {});
  }
  showDevice(k) {
    this.device = this.run.device(k);
    $("device").value = k;
    const { run, device } = this;
    this.holders.when = "peak";
    this.momentList = run.moments.filter((m) => m.device === null || m.device === device.device);
    this.steps = Float64Array.from(this.momentList, (m) => m.time);
    $("moment-slider").max = Math.max(0, this.steps.length - 1);
    const named = this.momentList.filter((m) => m.label);
    $("moment-names").replaceChildren(el("option", { value: "" }, "Go to …"), ...named.map((m) => el("option", { value: m.time }, `${m.label} (${time(m.time)})`)));
    this.allocations.pinned = this.allocations.lit = -1;
    $("pinned").hidden = true;
    this.timeline.device(device);
    answers(this);
    this.pick(device.peak || run.end, true, "peak");
    this.moved();
  }
  /** The time to zoom at with keys: the picked one, if it is in sight. */
  centre() {
    const { from, to } = this.view;
    return this.picked >= from && this.picked <= to ? this.picked : (from + to) / 2;
  }
  moved() {
    this.timeline.redraw();
    this.allocations.redraw();
    const { from, to, span } = this.view;
    $("range").textContent = `${clock(from, span / 200)} to ${clock(to, span / 200)} (${time(span)})`;
  }
  /** Everything that depends on the moment shows this one. */
  pick(t, slides = false, when = "picked") {
    const { run, device } = this;
    this.picked = Math.min(Math.max(t, run.start), run.end);
    if (!slides) $("moment-slider").value = Math.max(0, nearestOf(this.steps, this.picked));
    else if (when === "peak") $("moment-slider").value = Math.max(0, nearestOf(this.steps, this.picked));
    const near = run.whole ? null : run.nearest(this.picked, device);
    const label = this.momentList.find((m) => m.label && m.time === (near ? near.time : this.picked));
    $("moment-title").textContent = `${clock(this.picked, 1e3)}${label ? `, ${label.label}` : ""}`;
    const note = $("moment-note");
    note.hidden = !near || near.time === this.picked;
    if (!note.hidden) note.textContent = `This history is too long to hold every allocation. Shown is the nearest of ${plural(run.moments.length, "moment")} that are kept: ${clock(near.time, 1e3)}.`;
    $("moment-slider").setAttribute("aria-valuetext", $("moment-title").textContent);
    this.timeline.redraw();
    this.allocations.redraw();
    clearTimeout(this.later);
    // While something is dragged, the heavy parts follow a little later.
    const rest = () => {
      this.allocator.show();
      this.holders.at(when);
      announce(`Picked ${$("moment-title").textContent}: ${bytes(device.at(this.picked).filter((l) => [0, 1, 2, 8].includes(l.layer)).reduce((s, l) => s + l.bytes, 0))} active`);
    };
    if (when === "peak") rest();
    else this.later = setTimeout(rest, 30);
  }
  /** One pixel earlier or later. */
  nudge(d) {
    const t = this.picked + (d * this.view.span) / 400;
    this.pick(t);
    const { from, to, span } = this.view;
    if (t < from || t > to) this.view.show(t - span / 2, t + span / 2);
  }
  stepMoment(d) {
    const at = nearestOf(this.steps, this.picked);
    const next = this.steps[Math.min(Math.max(at + (this.steps[at] === this.picked || Math.sign(this.steps[at] - this.picked) !== d ? d : 0), 0), this.steps.length - 1)];
    this.pick(next);
    const { from, to, span } = this.view;
    if (next < from || next > to) this.view.show(next - span / 2, next + span / 2);
  }
  repaint() {
    theme.read();
    if (!this.device) return;
    this.timeline.redraw();
    this.allocations.redraw();
    this.allocator.pane.redraw();
    this.holders.show();
  }
}

function nearestOf(sorted, value) {
  const i = before(sorted, value);
  if (i < 0) return 0;
  return i + 1 < sorted.length && sorted[i + 1] - value < value - sorted[i] ? i + 1 : i;
}

/** Light or dark: as the system has it, until the button says otherwise. */
function lightOrDark(repaint) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const use = (name) => {
    document.documentElement.dataset.theme = name;
    $("theme").textContent = name === "dark" ? "Light" : "Dark";
    repaint();
  };
  const now = () => chosen || (dark.matches ? "dark" : "light");
  $("theme").addEventListener("click", () => use((chosen = now() === "dark" ? "light" : "dark")));
  dark.addEventListener("change", () => use(now()));
  use(now());
  return { light: () => use("light"), back: () => use(now()) };
}

async function start() {
  let app = null;
  const look = lightOrDark(() => (theme.read(), app && app.repaint()));
  try {
    const all = await load();
    $("loading").remove();
    app = new App(all);
    app.showRun(0);
  } catch (e) {
    $("loading").textContent = e.message || String(e);
    $("loading").className = "bad";
    throw e;
  }
  const panes = [app.timeline.pane, app.timeline.lanes, app.allocations.pane, app.allocator.pane, app.icicle.pane];
  const draw = () => panes.forEach((p) => (p.fit(), p.now()));
  // On paper: dark ink on white, as wide as the paper.
  window.addEventListener("beforeprint", () => {
    look.light();
    panes.forEach((p) => (p.printing = true));
    draw();
  });
  window.addEventListener("afterprint", () => {
    panes.forEach((p) => (p.printing = false));
    look.back();
  });
  $("nav").replaceChildren(...[...document.querySelectorAll("main > section")].filter((s) => !s.hidden).map((s) => el("a", { href: `#${s.id}` }, s.querySelector("h2").firstChild.textContent.trim())));
  draw();
  // For scripts that check the page.
  window.vramscope = { app, ready: performance.now() };
}

start();
