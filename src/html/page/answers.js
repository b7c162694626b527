// The answers in words: at a glance, why out of memory, leaks, churn. What they say was decided by the tool; see
// docs/report-json.md for the fields.

/** The answers of the process that is shown. */
function answers(app) {
  const given = app.run.answers || {};
  glance(app, given);
  part("oom", (given.out_of_memory || []).map((o, i) => outOfMemory(app, o, i)));
  part("leaks", leaks(app, given.leaks));
  part("churn", churn(given));
  about(app, given);
}

/** Fills a section, or hides it. */
function part(id, children) {
  $(id).hidden = !children.length;
  $(`${id}-body`).replaceChildren(...children);
}

/** A button that picks a moment. */
const moment = (app, t, text = time(t)) => el("button", { type: "button", title: "Show this moment", onclick: () => (app.pick(t), $("time").scrollIntoView()) }, text);

/** Frames as the answers hold them. */
function frames(stack, most = 12) {
  if (!stack || !stack.length) return el("p.dim", {}, "(no stack)");
  const item = (f) => el(f.whose === "user" ? "li.u" : f.whose === "native" ? "li.n" : "li", {}, el("code", {}, f.function), f.place ? el("span.where", {}, "  ", path(f.place)) : null);
  const user = stack.findIndex((f) => f.whose === "user");
  // The user's own lines must be seen, below however many frames.
  const from = user < 0 ? 0 : Math.max(0, user - 3);
  const list = el("ol.stack", {}, from ? el("li.dim", {}, plural(from, "inner frame")) : null, stack.slice(from, from + most).map(item));
  if (stack.length > from + most) list.append(el("li.dim", {}, `and ${stack.length - from - most} more`));
  return list;
}

const folded = (title, ...children) => el("details", {}, el("summary", {}, title), ...children);

function glance(app, given) {
  const { run, device } = app, g = given.glance, out = [];
  if (g && g.verdict && g.verdict.text) {
    const look = { fine: "good", outside_pytorch: "", snapshot: "", out_of_memory: "bad", leak: "bad", bad_free: "bad" }[g.verdict.about];
    out.push(el(look === "" ? "p.verdict" : `p.verdict.${look || "warn"}`, {}, g.verdict.text));
  }
  const sums = Object.fromEntries(device.at(run.end).map((l) => [l.layer, l.bytes]));
  const active = [0, 1, 2, 8].reduce((n, l) => n + (sums[l] || 0), 0), kept = [3, 4, 5].reduce((n, l) => n + (sums[l] || 0), 0);
  const one = app.one();
  const tiles = one ? [] : [el("div.tile", {}, el("b", {}, bytes(device.peak_active)), el("span", {}, "active at most, at ", moment(app, device.peak)))];
  if (g && !one) {
    tiles.push(tile(bytes(g.reserved_peak), "reserved at most"), tile(percent(Math.round(g.waste * 1e6), 1e6), `of that never needed (${bytes(g.waste_bytes)})`));
  }
  tiles.push(tile(bytes(active), `active ${one ? `at ${time(run.end)}` : "at the end"}${kept ? `, ${bytes(kept)} kept besides` : ""}`));
  if (g && !one) tiles.push(tile(count(g.failed), `failed request${g.failed === 1 ? "" : "s"}${g.failed ? `, ${count(g.failed_out_of_memory)} for want of memory` : ""}`));
  if (g && g.bad_frees) tiles.push(tile(count(g.bad_frees), "bad frees"));
  if (g && g.lost) tiles.push(tile(count(g.lost), "events lost"));
  if (device.bytes) tiles.push(tile(bytes(device.bytes), device.name || "the device has"));
  out.push(el("div.tiles", {}, tiles));
  if (g && g.peak && (g.peak.owners.length || g.peak.layers.length)) out.push(el("div.cols", {}, bars(one ? "Whose it is" : "Whose it is at the peak", g.peak.owners.map((o) => [o.owner, o.active])), bars(one ? "By layer" : "At the peak by layer", g.peak.layers.filter((l) => l.on_device).map((l) => [l.layer, l.active, l.reserved > l.active ? `, ${bytes(l.reserved)} reserved` : ""]))));
  const table = ranks(app);
  if (table) out.push(table);
  $("glance-body").replaceChildren(...out);
}

/** Names and bars. */
function bars(title, rows, show = bytes) {
  const most = Math.max(1, ...rows.map((r) => r[1]));
  const row = ([name, n, more = ""]) => [el("span", {}, path(name)), el("span.b", { style: `width:${((n / most) * 100).toFixed(1)}%` }), el("span", {}, `${show(n)}${more}`)];
  return el("div", {}, el("h4", {}, title), el("div.bars", {}, rows.slice(0, 30).flatMap(row)));
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

function outOfMemory(app, o, i) {
  const segment = o.segment > o.asked && bytes(o.segment) !== bytes(o.asked) ? ` (a new segment of ${bytes(o.segment)})` : "";
  const asked = o.asked ? `asked for ${bytes(o.asked)}${segment}` : "found no memory";
  const limit = o.limit ? ` The limit of this process (${o.limit.by}) was ${bytes(o.limit.bytes)}, ${bytes(o.limit.used)} of it in use.` : "";
  // A tensor may have been refused where a larger one, with a segment of its own size, fits.
  const own = o.would_have_fit >= o.asked ? " with a segment of its own size" : "";
  const rows = [["free on the device", o.free, ""]];
  if (o.pytorch_active + o.pytorch_inactive) rows.push(["PyTorch, active", o.pytorch_active, ""], ["PyTorch, inactive", o.pytorch_inactive, o.pytorch_largest ? `, largest piece ${bytes(o.pytorch_largest)}` : ""]);
  if (o.pool_active + o.pool_inactive) rows.push(["pool, active", o.pool_active, ""], ["pool, inactive", o.pool_inactive, o.pool_largest ? `, largest piece ${bytes(o.pool_largest)}` : ""]);
  if (o.outside) rows.push(["outside both", o.outside, o.libraries.length ? `: ${o.libraries.slice(0, 3).map((l) => `${l.library} ${bytes(l.bytes)}`).join(", ")}` : ""]);
  // Of an import that does not tell how much the device has, nobody knows.
  if (o.total) rows.push([o.others === undefined ? "context, modules, other processes" : "context, modules, driver", o.rest, ""]);
  if (o.others !== undefined) rows.push(["other processes", o.others, ""]);
  const holder = (h) => el("li", {}, el("strong", {}, bytes(h.bytes)), ` in ${plural(h.count, "allocation")}: `, el("code", {}, h.name), h.grew ? el("span.bad", {}, ` grew from ${count(h.grew.from)}, by ${bytes(h.grew.bytes)} in ${time(h.grew.since)}`) : null, folded("stack", frames(h.stack)));
  const body = [
    el("p", {}, "At ", moment(app, o.time), ` ${o.what} ${asked} on GPU ${o.device}${o.total ? `, which has ${bytes(o.total)}` : ""}.${limit}${o.would_have_fit ? ` Up to ${bytes(o.would_have_fit)} would have fit${own}.` : ""}`),
    o.advice.length ? el("div", {}, el("h4", {}, "What would help"), el("ul.plain", {}, o.advice.map((a) => el("li", {}, a)))) : null,
    el("div.cols", {}, bars("The device's memory then", rows), el("div", {}, el("h4", {}, "Asked at"), frames(o.stack))),
    o.holders.length ? el("div", {}, el("h4", {}, "The biggest holders then"), el("ol.plain", {}, o.holders.map(holder))) : null,
    o.segments && o.segments.pins.length ? pinned(o.segments) : null,
  ].filter(Boolean);
  return i ? folded(`And at ${time(o.time)}: ${o.what} ${asked}`, ...body) : el("div", {}, body);
}

/** What keeps free memory in PyTorch's segments. */
function pinned(p) {
  const pin = (k) => el("li", {}, `${bytes(k.free)} free in ${plural(k.segments, "segment")} behind ${plural(k.tensors, "tensor")} of ${bytes(k.bytes)}: `, el("code", {}, k.place), folded("stack", frames(k.stack)));
  return el("div", {}, el("h4", {}, `What pins PyTorch's segments: ${bytes(p.free)} of ${bytes(p.reserved)} are free, the largest piece is ${bytes(p.largest)}`), el("ul.plain", {}, p.pins.slice(0, 8).map(pin)));
}

const KIND_WORDS = {
  gradients_accumulating: "gradients accumulate",
  graph_retained: "graphs are retained",
  cache_growing: "a cache grows",
  references_kept: "references are kept",
  never_freed: "never freed",
};

const stepsBy = (s) => (s.by === "recurring" ? "what recurs" : `the ${s.by} ${s.name}`);

function leaks(app, given) {
  // One moment cannot tell.
  if (!given || app.one()) return [];
  const steps = given.steps ? el("p.dim", {}, `Measured by ${plural(given.steps.count, "step")} of ${time(given.steps.time)} each (told by ${stepsBy(given.steps)}).`) : null;
  if (!given.suspects.length) return [((app.run.answers || {}).program || {}).incomplete ? el("p.warn", {}, "Nothing is seen to grow in what there is of this history.") : el(given.steps ? "p.good" : "p", {}, `${given.nothing.charAt(0).toUpperCase()}${given.nothing.slice(1)}.`), steps].filter(Boolean);
  const card = (s) => {
    const much = s.shape === "constant" ? `${bytes(s.bytes)} in ${plural(s.count, "allocation")}` : `${bytes(s.bytes_per_step)} a ${s.shape === "bursts" ? "round" : "step"}, ${s.exact ? "" : "at most "}${bytes(s.bytes)} in all`;
    const bits = s.parts.slice(0, 8).map((p) => el("li", {}, s.shape === "constant" ? bytes(p.bytes) : `${bytes(p.bytes_per_step)} a step`, `, ${plural(p.count, "allocation")}: `, el("code", {}, p.place), p.backward ? " (in the backward pass)" : ""));
    return el("div.card", {}, el("h3", { style: "margin-top:0" }, el("span.bad", {}, KIND_WORDS[s.kind] || s.kind.replaceAll("_", " ")), `: ${much}, at `, el("code", {}, s.place)), el("p", {}, s.evidence), el("p", {}, el("strong", {}, s.advice)), el("p.dim", {}, "since ", moment(app, s.since), `, ${time(s.age)} before the end`), folded("stack", frames(s.stack)), bits.length > 1 ? folded(`${plural(s.parts.length + s.more_parts, "part")}`, el("ul.plain", {}, bits)) : null);
  };
  return [...given.suspects.map(card), steps].filter(Boolean);
}

function churn(given) {
  const c = given.churn, out = [];
  if (!c || !(c.allocations || (given.sizes || []).length)) return out;
  const share = (s, text) => tile(percent(s.count, c.allocations), `${text}: ${count(s.count)}, ${bytes(s.bytes)}`);
  const calls = (k, text) => (k.count && k.took ? tile(time(k.took), `${text}: ${plural(k.count, "timed call")}, ${time(k.took / k.count)} each`) : null);
  out.push(el("div.tiles", {}, [tile(count(c.allocations), "allocations"), c.freed_at_once.count ? share(c.freed_at_once, "freed before anything else was allocated") : null, c.freed_within_step ? share(c.freed_within_step, "freed within a step") : null, calls(c.driver_allocs, "in the driver for allocations"), calls(c.driver_frees, "in the driver's frees, which wait for the GPU"), calls(c.host_waits, "waited for by the host in frees kept"), calls(c.device_barriers, "in barriers")].filter(Boolean)));
  const histograms = [];
  if (c.lifetimes.length) histograms.push(bars("How long they live", c.lifetimes.map((l) => [l.up_to ? `up to ${time(l.up_to)}` : "longer", l.count, `, ${bytes(l.bytes)}`]), count));
  const sizes = given.sizes || [];
  if (sizes.length) histograms.push(bars("How large they are", sizes.map((s) => [`up to ${bytes(s.up_to)}`, s.count, `, ${bytes(s.bytes)}${s.driver_timed ? `, ${time(s.driver_took / s.driver_timed)} in the driver` : ""}`]), count));
  out.push(el("div.cols", {}, histograms));
  const lists = [];
  if (c.at_once_top.length) lists.push(bars("Lines that allocate what is freed at once", c.at_once_top.slice(0, 8).map((h) => [h.name, h.count, `, ${bytes(h.bytes)}`]), count));
  if (c.driver_top.length) lists.push(bars("Lines that wait for the driver most", c.driver_top.slice(0, 8).map((d) => [d.name, d.took, `, ${plural(d.count, "call")}`]), time));
  if (lists.length) out.push(el("div", {}, lists));
  return out;
}

function about(app, given) {
  const { run, meta } = app;
  const rows = [["Program", el("code", {}, run.command)], ["Process", `${run.pid ? `${run.pid} on ` : ""}${run.host}${run.rank !== null ? `, rank ${run.rank}` : ""}`], ["History", `${run.file}: ${plural(run.events, "event")} over ${time(run.end - run.start)}; ${run.ended}`]];
  if (app.meta.together) rows.push(["Times", `count from the beginning of the first rank${run.shift ? `; this one began ${time(run.shift)} later` : ", which is this one"}`]);
  if (run.wall) rows.push(["Began", new Date(run.wall * 1000).toLocaleString()]);
  for (const d of run.devices) if (!d.host) rows.push([`GPU ${d.device}`, [d.name, d.bytes ? bytes(d.bytes) : "", d.uuid].filter(Boolean).join(", ")]);
  for (const o of (given.outside_pool || []).slice(0, 8)) rows.push(["Outside the pool", `${o.library}: ${o.kind}, ${bytes(o.at_peak)} at the peak, ${bytes(o.at_end)} at the end, ${plural(o.allocations, "allocation")}`]);
  const leaf = run.devices.reduce((most, d) => Math.max(most, d.leaf), 1);
  const curves = `curves of ${leaf > 1 ? `${leaf} changes a point` : "every change"}`;
  rows.push(["In this page", run.whole ? `all ${plural(run.life.time.length, "allocation")}; ${curves}` : `${plural(run.life.time.length, "allocation")}: those seen at ${plural(run.moments.length, "moment")}, and those that cover most of the timeline; ${curves}`]);
  if (run.damage) rows.push(["Damage", el("span.bad", {}, run.damage)]);
  for (const n of given.notes || []) rows.push(["Note", n]);
  rows.push(["Written by", `vramscope ${meta.vramscope}`]);
  const row = ([name, text]) => el("tr", {}, el("th.name.label", { scope: "row" }, name), el("td.name", {}, text));
  $("about-body").replaceChildren(el("div.scroll", {}, el("table", {}, el("tbody", {}, rows.map(row)))));
}
