// The answers in words: at a glance, why out of memory, leaks, churn. What they say was decided by the tool.

const tile = (value, text) => el("div.tile", {}, el("b", {}, value), el("span", {}, text));

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
  $("glance-body").replaceChildren(el("div.tiles", {}, tiles));
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
