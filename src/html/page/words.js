// How numbers look, as in the terminal report; and small helpers for elements.

/** As Rust has it: of two that are equally near the even one (31.25 is 31.2), where toFixed takes the larger. */
function fixed(value, digits) {
  const scaled = value * 10 ** digits, low = Math.floor(scaled);
  const tie = Number.isInteger(value * 2 ** (digits + 1)) && scaled - low === 0.5;
  return (tie && low % 2 === 0 ? low / 10 ** digits : value).toFixed(digits);
}
function three(value, unit) {
  return `${value < 9.995 ? fixed(value, 2) : value < 99.95 ? fixed(value, 1) : fixed(value, 0)} ${unit}`;
}
function bytes(n) {
  if (n < 1024) return `${n} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0, value = n / 1024;
  while (value >= 1023.5 && unit < units.length - 1) (value /= 1024), unit++;
  return three(value, units[unit]);
}
function time(ns) {
  const s = ns / 1e9;
  if (ns < 0) return `-${time(-ns)}`;
  if (ns === 0) return "0 s";
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return three(ns / 1e3, "us");
  if (ns < 1e9) return three(ns / 1e6, "ms");
  if (s < 99.95) return three(s, "s");
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
  return `${Math.floor(s / 3600)} h ${String(Math.floor((s / 60) % 60)).padStart(2, "0")} min`;
}
/** A time with as many digits as tell it from one so far away. */
function clock(ns, step) {
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / 1e9))));
  const s = ns / 1e9;
  if (s >= 3600) return `${Math.floor(s / 3600)}:${String(Math.floor((s / 60) % 60)).padStart(2, "0")}:${(s % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0")}`;
  if (step >= 1e5 || s >= 1) return `${s.toFixed(digits)} s`;
  if (step >= 100) return `${(ns / 1e6).toFixed(Math.min(6, Math.max(0, Math.ceil(-Math.log10(step / 1e6)))))} ms`;
  return `${(ns / 1e3).toFixed(3)} us`;
}
const count = (n) => Math.round(n).toLocaleString("en-US");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
function percent(part, whole) {
  if (!whole) return "-";
  const p = (part * 100) / whole;
  return part === 0 ? "0 %" : part === whole ? "100 %" : p >= 99.95 ? ">99.9 %" : p < 0.05 ? "<0.1 %" : `${fixed(p, 1)} %`;
}

/** An element: `el("p.dim", {title: "x"}, "text", child)`. */
function el(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  const e = document.createElement(tag);
  if (classes.length) e.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "style") e.style.cssText = value;
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}
/** A path that is broken at its folders, where there is no room. */
const path = (text) => text.split(/(?<=\/)/).flatMap((part) => [part, el("wbr")]).slice(0, -1);
/** A number that matters, and what it is. */
const tile = (value, text) => el("div.tile", {}, el("b", {}, value), el("span", {}, text));
const $ = (id) => document.getElementById(id);

/** Announces something to who cannot see the picture. */
function announce(text) {
  $("say").textContent = text;
}

/** The box beside the pointer. */
const tip = {
  show(x, y, ...content) {
    const box = $("tip");
    box.replaceChildren(...content.flat());
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? x - width - 12 : x + 16;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 6))}px`;
  },
  hide() {
    $("tip").hidden = true;
  },
};

/** The frames of a stack as a list, at most so many. */
function stackList(run, number, most = 40) {
  const stack = run.stacks[number] || { frames: [] };
  if (!stack.frames.length) return el("p.dim", {}, number ? "(no stack)" : "(no stack, or one of little memory whose names are left out)");
  const item = (f) => {
    const [what, place, whose] = run.frames[f];
    return el(`li.${whose === "u" ? "u" : whose === "n" ? "n" : "l"}`, {}, el("code", {}, what), place ? el("span.where", {}, `  ${place}`) : null);
  };
  const list = el("ol.stack", {}, stack.frames.slice(0, most).map(item));
  if (stack.frames.length > most) list.append(el("li.dim", {}, `and ${stack.frames.length - most} more`));
  return list;
}

/** The lines of a stack that fit a box: around the user's own line. */
function stackShort(run, number, most = 7) {
  const stack = run.stacks[number] || { frames: [] };
  const user = stack.frames.filter((f) => run.frames[f][2] !== "n");
  const chosen = (user.length ? user : stack.frames).slice(0, most);
  const item = (f) => el(run.frames[f][2] === "u" ? "li.u" : "li", {}, el("code", {}, run.frames[f][0]), el("span.where", {}, `  ${run.frames[f][1]}`));
  return chosen.length ? el("ol.stack", {}, chosen.map(item)) : el("p.dim", {}, "(no stack)");
}

/** The line that says most about a group: `function file:line`, or who called. */
function lineOf(run, group) {
  const stack = run.stacks[run.group.stack[group]];
  if (stack && stack.line !== null) {
    const [what, place] = run.frames[stack.line];
    return { what, place };
  }
  const caller = run.callers[run.group.caller[group]];
  return { what: caller || run.all.meta.kinds[run.group.kind[group]], place: caller ? run.all.meta.kinds[run.group.kind[group]] : "" };
}

/** A colour for a text: the same text has the same one everywhere. */
const hues = new Map();
function colour(text) {
  let c = hues.get(text);
  if (!c) {
    let hash = 2166136261;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619) >>> 0;
    hash ^= hash >>> 15;
    c = { hue: (hash % 48) * 7.5, shift: ((hash >>> 8) % 3) * 7 - 7 };
    hues.set(text, c);
  }
  return `hsl(${c.hue} ${theme.blockS}% ${theme.blockL + c.shift}%)`;
}
/** Colours for the lines of a run, those that hold most first: neighbours in size are far apart in hue. */
function colourLines(run) {
  const most = new Map();
  for (let g = 0; g < run.group.most.length; g++) {
    const line = lineOf(run, g), key = `${line.what}  ${line.place}`;
    most.set(key, (most.get(key) || 0) + run.group.most[g]);
  }
  for (const [key] of [...most].sort((a, b) => b[1] - a[1])) {
    const n = hues.size;
    if (!hues.has(key)) hues.set(key, { hue: (212 + n * 137.508) % 360, shift: ((n >> 3) % 3) * 8 - 4 });
  }
}
function groupColour(run, group) {
  if (run.coloured !== theme.name) {
    run.coloured = theme.name;
    run.colours = [];
  }
  let c = run.colours[group];
  if (!c) {
    const line = lineOf(run, group);
    c = run.colours[group] = colour(`${line.what}  ${line.place}`);
  }
  return c;
}

/** Colours of the style sheet, for canvases. */
const theme = {
  name: "",
  read() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    for (const name of ["ink", "dim", "line", "grid", "panel", "pick", "band", "free", "accent", "bad", "bar"]) this[name] = get(`--${name}`);
    this.layers = [...Array(9).keys()].map((i) => get(`--layer-${i}`));
    this.blockL = parseFloat(get("--block-l"));
    this.blockS = parseFloat(get("--block-s"));
    this.name = document.documentElement.dataset.theme;
    this.font = "12px system-ui, 'Liberation Sans', sans-serif";
  },
};
