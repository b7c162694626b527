// The answers in words: at a glance, why out of memory, leaks, churn. What they say was decided by the tool.

/** The answers of the process that is shown. */
function answers(app) {
  glance(app);
  about(app);
}

function glance(app) {
  const { run, device } = app;
  const sums = (t) => Object.fromEntries(device.at(t).map((l) => [l.layer, l.bytes]));
  const active = (s) => [0, 1, 2, 8].reduce((n, l) => n + (s[l] || 0), 0), kept = (s) => [3, 4, 5].reduce((n, l) => n + (s[l] || 0), 0);
  const end = sums(run.end);
  const top = device.grid[device.grid.length - 1];
  const tiles = [tile(bytes(device.peak_active), `peak, at ${time(device.peak)}`), tile(bytes(active(end)), "at the end")];
  if (device.bytes) tiles.push(tile(bytes(device.bytes), device.name || "the device has"));
  $("glance-body").replaceChildren(...[el("div.tiles", {}, tiles), ranks(app)].filter(Boolean));
}

/** All processes and devices of the page beside each other, if there are several. */
function ranks(app) {
  const all = app.all.runs.flatMap((run, r) => run.devices.map((meta, d) => ({ run, r, meta, d })).filter((x) => !x.meta.host));
  if (all.length < 2) return null;
  const most = Math.max(...all.map((x) => x.meta.peak_active));
  const row = ({ run, r, meta, d }) => {
    const here = run === app.run && app.device.device === meta.device;
    const go = el("button", { type: "button", "aria-current": here ? "true" : null, onclick: () => (app.showRun(r), app.showDevice(d)) }, `${run.rank !== null ? `rank ${run.rank}, ` : ""}${run.name} ${run.pid} on ${run.host}, GPU ${meta.device}`);
    return el("tr", {}, el("td.name", {}, here ? el("strong", {}, go) : go), el("td", {}, bytes(meta.peak_active)), el("td.share", { style: `background-size:${((meta.peak_active / most) * 100).toFixed(1)}% 100%` }, percent(meta.peak_active, most)), el("td", {}, time(meta.peak)), el("td", {}, count(run.events)), el("td.name", { style: "width:20%;min-width:8rem" }, run.ended));
  };
  const heads = ["peak", "of the largest", "at", "events", "end"].map((h) => el("th", { scope: "col" }, h));
  return el("div.scroll", {}, el("table", {}, el("caption.sr", {}, "Processes and devices"), el("thead", {}, el("tr", {}, el("th.name", { scope: "col" }, "process and device"), heads)), el("tbody", {}, all.map(row))));
}

function about(app) {
  const { run, meta } = app;
  const rows = [["Program", el("code", {}, run.command)], ["Process", `${run.pid} on ${run.host}${run.rank !== null ? `, rank ${run.rank}` : ""}`], ["History", `${run.file}: ${plural(run.events, "event")} over ${time(run.end - run.start)}; ${run.ended}`]];
  if (run.wall) rows.push(["Began", new Date(run.wall * 1000).toLocaleString()]);
  for (const d of run.devices) if (!d.host) rows.push([`GPU ${d.device}`, `${d.name}, ${bytes(d.bytes)}, ${d.uuid}`]);
  const times = run.devices.map((d) => d.leaf).reduce((a, b) => Math.max(a, b), 1);
  rows.push(["In this page", run.whole ? `all ${plural(run.life.time.length, "allocation")}` : `${plural(run.life.time.length, "allocation")}: those seen at ${plural(run.moments.length, "moment")}, and those that cover most of the timeline; curves of ${times > 1 ? `${times} changes a point` : "every change"}`]);
  if (run.damage) rows.push(["Damage", el("span.bad", {}, run.damage)]);
  rows.push(["Written by", `vramscope ${meta.vramscope}`]);
  $("about-body").replaceChildren(el("div.scroll", {}, el("table", {}, el("tbody", {}, rows.map(([name, text]) => el("tr", {}, el("th.name", { scope: "row", style: "width:9rem;min-width:7rem" }, name), el("td.name", {}, text)))))));
}
