// Who holds memory: at the peak, at the end, or at the picked moment; by stack, line, function, library, region or thread.

const BY = {
  line: { name: "line", of: (run, g) => lineOf(run, g) },
  stack: { name: "call stack", of: (run, g) => ({ ...lineOf(run, g), key: `${run.group.stack[g]}/${run.group.caller[g]}/${run.group.kind[g]}`, stack: run.group.stack[g], kind: true }) },
  function: { name: "function", of: (run, g) => {
    const line = lineOf(run, g);
    return { what: line.what, place: line.place.replace(/:\d+$/, "") };
  } },
  library: { name: "library", of: (run, g) => ({ what: run.callers[run.group.caller[g]] || (run.stacks[run.group.stack[g]] || {}).library || "(native code, no Python line)", place: "" }) },
  kind: { name: "kind", of: (run, g) => ({ what: run.all.meta.kinds[run.group.kind[g]], place: "" }) },
  region: { name: "region", of: (run, g) => ({ what: run.texts[run.group.region[g]] || "(in no region)", place: "" }) },
  thread: { name: "thread", of: (run, g) => ({ what: run.threadNames.get(run.group.thread[g]) || `thread ${run.group.thread[g]}`, place: `number ${run.group.thread[g]}` }) },
};

class Holders {
  constructor(app) {
    this.app = app;
    this.when = "peak";
    this.sort = "bytes";
    this.down = true;
    this.open = new Set();
    for (const [key, by] of Object.entries(BY)) $("who-by").append(el("option", { value: key }, by.name));
    $("who-by").addEventListener("change", () => this.show());
    $("who-find").addEventListener("input", () => this.show());
    const choice = (key, text) => el("button", { type: "button", role: "radio", "aria-checked": "false", "data-when": key, onclick: () => this.at(key) }, text);
    $("who-when").append(choice("peak", "At the peak"), choice("end", "At the end"), choice("picked", "At the picked moment"));
    $("who-when").addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (!step) return;
      const all = [...$("who-when").children], at = all.findIndex((b) => b.dataset.when === this.when);
      const next = all[(at + step + all.length) % all.length];
      next.focus();
      next.click();
    });
  }
  at(when) {
    this.when = when;
    this.show();
  }
  get time() {
    const { run, device, picked } = this.app;
    return { peak: device.peak, end: run.end, picked }[this.when];
  }
  show() {
    const { run, device } = this.app;
    if (!device) return;
    for (const b of $("who-when").children) {
      const on = b.dataset.when === this.when;
      b.setAttribute("aria-checked", String(on));
      b.tabIndex = on ? 0 : -1;
    }
    const by = BY[$("who-by").value], words = $("who-find").value.trim().toLowerCase();
    const shares = run.shares(device, this.time);
    this.shares = shares;
    const rows = new Map();
    let all = 0;
    for (const [g, size, n] of shares.list) {
      all += size;
      const what = by.of(run, g), key = what.key || `${what.what}  ${what.place}`;
      let row = rows.get(key);
      if (!row) rows.set(key, (row = { ...what, key, bytes: 0, count: 0, most: 0, times: 0, groups: [], largest: 0 }));
      row.bytes += size;
      row.count += n;
      row.times += run.group.times[g];
      row.groups.push([g, size, n]);
      if (size > row.largest) (row.largest = size), (row.group = g);
    }
    const active = device.at(shares.time).filter((l) => [0, 1, 2, 8].includes(l.layer)).reduce((s, l) => s + l.bytes, 0);
    const whole = run.whole ? all : Math.max(all, device.leaf === 1 ? active : all);
    let list = [...rows.values()];
    if (words) list = list.filter((r) => this.matches(run, r, words));
    const value = { name: (r) => r.what, bytes: (r) => r.bytes, count: (r) => r.count, each: (r) => r.bytes / r.count, times: (r) => r.times }[this.sort];
    list.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (this.down ? -1 : 1));
    this.table(run, list, whole);
    const told = shares.moment && shares.moment.time !== this.time ? ` (the kept moment nearest to ${clock(this.time, 1e3)})` : "";
    $("who-note").textContent = `${bytes(all)} in ${plural(shares.list.reduce((s, x) => s + x[2], 0), "allocation")} at ${clock(shares.time, 1e3)}${told}${whole > all ? `, and ${bytes(whole - all)} in smaller ones` : ""}`;
    this.app.icicle.show(shares);
  }
  matches(run, row, words) {
    if (`${row.what} ${row.place}`.toLowerCase().includes(words)) return true;
    return row.groups.some(([g]) => (run.stacks[run.group.stack[g]] || { frames: [] }).frames.some((f) => `${run.frames[f][0]} ${run.frames[f][1]}`.toLowerCase().includes(words)) || run.callers[run.group.caller[g]].toLowerCase().includes(words));
  }
  table(run, list, whole) {
    const heads = [["name", BY[$("who-by").value].name], ["bytes", "bytes"], ["share", "share"], ["count", "allocations"], ["each", "each"], ["times", "ever made"]];
    const head = ([key, text]) => {
      const sorts = key !== "share", now = this.sort === key;
      const act = () => {
        this.down = now ? !this.down : key !== "name";
        this.sort = key;
        this.show();
      };
      return el(key === "name" ? "th.name" : "th", { scope: "col", "aria-sort": now ? (this.down ? "descending" : "ascending") : null }, sorts ? el("button", { type: "button", onclick: act }, text, now ? (this.down ? " ▾" : " ▴") : "") : text);
    };
    const table = $("who-table");
    table.tHead.replaceChildren(el("tr", {}, heads.map(head)));
    const shown = list.slice(0, 200), body = [];
    for (const r of shown) {
      const open = this.open.has(r.key);
      const name = el("button", { type: "button", "aria-expanded": String(open), onclick: () => {
        if (open) this.open.delete(r.key);
        else this.open.add(r.key);
        this.show();
      } }, el("span.key", { style: `background:${groupColour(run, r.group)}` }), " ", el("code.what1", {}, r.what), r.place ? el("span.where", {}, "  ", path(r.place)) : null);
      const part = whole ? (r.bytes / whole) * 100 : 0;
      body.push(el(open ? "tr.open" : "tr", {}, el("td.name", {}, name), el("td", {}, bytes(r.bytes)), el("td.share", { style: `background-size:${part.toFixed(1)}% 100%` }, percent(r.bytes, whole)), el("td", {}, count(r.count)), el("td", {}, bytes(r.bytes / r.count)), el("td", {}, count(r.times))));
      if (open) body.push(el("tr", {}, el("td.name", { colspan: 6 }, this.inside(run, r))));
    }
    if (!list.length) body.push(el("tr", {}, el("td.name", { colspan: 6 }, "nothing")));
    if (list.length > shown.length) body.push(el("tr", {}, el("td.name.dim", { colspan: 6 }, `and ${count(list.length - shown.length)} more`)));
    table.tBodies[0].replaceChildren(...body);
  }
  /** The stacks of a row. */
  inside(run, row) {
    const byStack = new Map();
    for (const [g, size, n] of row.groups) {
      const key = run.group.stack[g], sum = byStack.get(key) || { stack: key, group: g, bytes: 0, n: 0 };
      sum.bytes += size;
      sum.n += n;
      byStack.set(key, sum);
    }
    const list = [...byStack.values()].sort((a, b) => b.bytes - a.bytes);
    const part = (s) => {
      const caller = run.callers[run.group.caller[s.group]], kind = run.all.meta.kinds[run.group.kind[s.group]];
      return el("div", {}, el("p", {}, `${bytes(s.bytes)} in ${plural(s.n, "allocation")}, ${kind}${caller ? `, called by ${caller}` : ""}`), stackList(run, s.stack));
    };
    return [...list.slice(0, 5).map(part), list.length > 5 ? el("p.dim", {}, `and ${plural(list.length - 5, "more stack")}`) : null].filter(Boolean);
  }
}
