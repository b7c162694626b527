// The page's data: compressed columns of numbers that the tool has made ready. Nothing here computes what is drawn.

/** The bytes of the data in this page, unpacked. */
async function unpacked() {
  const text = document.getElementById("data").textContent.trim();
  let packed;
  if (Uint8Array.fromBase64) packed = Uint8Array.fromBase64(text);
  else packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser cannot unpack the page's data: it needs DecompressionStream (Chrome or Edge 80, Firefox 113, Safari 16.4, or newer). vramscope report prints the same answers in a terminal.");
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Columns by name, each read when it is first asked for. */
class Columns {
  constructor(bytes, base, index) {
    this.bytes = bytes;
    this.base = base;
    this.index = new Map(index.map((c) => [c.name, c]));
    this.known = new Map();
  }
  get(name) {
    let values = this.known.get(name);
    if (!values) this.known.set(name, (values = this.read(this.index.get(name))));
    return values;
  }
  read(column) {
    if (!column) return new Float64Array(0);
    const { n, scale } = column;
    const out = new Float64Array(n), bytes = this.bytes;
    let at = this.base + column.at, value = 0;
    for (let i = 0; i < n; i++) {
      let byte = bytes[at++];
      let number = byte & 127;
      for (let by = 128; byte > 127; by *= 128) {
        byte = bytes[at++];
        number += (byte & 127) * by;
      }
      // Odd ones are negative.
      const half = Math.floor(number / 2);
      value += (number === 2 * half ? half : -half - 1) * scale;
      out[i] = value;
    }
    return out;
  }
}

/** A device of a run: its curve with all zooms. */
class Device {
  constructor(run, meta, columns) {
    Object.assign(this, meta);
    this.run = run;
    const prefix = `${run.index}.${meta.host ? "host" : meta.device}`;
    this.label = meta.host ? "Host memory (pinned)" : `GPU ${meta.device}`;
    this.grid = meta.levels.map((n, level) => ({
      n,
      time: columns.get(`${prefix}.${level}.time`),
      layers: meta.layers.map((l) => {
        const part = (name) => columns.get(`${prefix}.${level}.${l}.${name}`);
        return { layer: l, last: part("last"), under: part("under"), over: part("over"), less: part("less") };
      }),
    }));
    const tile = (name) => columns.get(`${prefix}.tile.${name}`);
    const [level, start, length, n, members] = ["level", "start", "length", "n", "member"].map(tile);
    let at = 0;
    this.tileList = Array.from(level, (l, i) => ({ level: l, start: start[i], end: start[i] + length[i], members: members.subarray(at, (at += n[i])) }));
  }
  /** Bytes of each of its layers at a time, as far as the finest level tells. */
  at(time) {
    const grid = this.grid[0];
    const i = before(grid.time, time);
    return grid.layers.map((l) => ({ layer: l.layer, bytes: i < 0 ? 0 : l.last[i], low: i < 0 ? 0 : l.last[i] - l.under[i], high: i < 0 ? 0 : l.last[i] + l.over[i] }));
  }
  /** Calls `see(level, i, from, to)` for buckets between two times that are at most `wide` long, or the finest. */
  walk(from, to, wide, see) {
    const { grid } = this;
    const end = Math.max(this.run.end, to);
    const down = (level, i) => {
      const { time, n } = grid[level];
      const start = time[i], stop = i + 1 < n ? time[i + 1] : end;
      if (stop < from || start > to) return;
      if (level === 0 || stop - start <= wide) return see(level, i, start, stop);
      const last = Math.min((i + 1) * 8, grid[level - 1].n);
      for (let child = i * 8; child < last; child++) down(level - 1, child);
    };
    const top = grid.length - 1;
    for (let i = 0; i < grid[top].n; i++) down(top, i);
  }
}

/** The place of the last number that is not above `value`; -1 if there is none. */
function before(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** A history. */
class Run {
  constructor(index, meta, all) {
    Object.assign(this, meta);
    this.index = index;
    this.all = all;
    this.endless = this.end + 1;
    const names = { life: ["time", "length", "bytes", "slack", "address", "group"], stay: ["time", "length", "bytes", "address", "device", "whose", "home"], group: ["device", "stack", "caller", "kind", "thread", "region", "most", "ever", "times"], share: ["group", "bytes", "count"], mark: ["time", "text"], region: ["text", "start", "length", "thread", "depth", "open"] };
    for (const [table, columns] of Object.entries(names)) {
      const target = (this[table] = {});
      for (const c of columns) {
        // Read when it is first asked for, and then simply there.
        const get = () => {
          const values = all.columns.get(`${index}.${table}.${c}`);
          Object.defineProperty(target, c, { value: values });
          return values;
        };
        Object.defineProperty(target, c, { get, configurable: true });
      }
    }
    this.threadNames = new Map(meta.threads);
    let at = 0;
    for (const m of this.moments) {
      m.from = at;
      at += m.shares;
    }
    this.momentTimes = Float64Array.from(this.moments, (m) => m.time);
    this.ready = new Map();
  }
  /** Its devices; the data of one is read when it is looked at. */
  device(i) {
    if (!this.ready.has(i)) this.ready.set(i, new Device(this, this.devices[i], this.all.columns));
    return this.ready.get(i);
  }
  /** When an allocation ended; later than everything if it did not. */
  endOf(i) {
    const { life } = this, length = life.length[i];
    return length ? life.time[i] + length - 1 : Infinity;
  }
  stayed(i) {
    const length = this.stay.length[i];
    return length ? this.stay.time[i] + length - 1 : Infinity;
  }
  /** The moment nearest to a time at which this device is known whole. */
  nearest(time, device) {
    let best = null;
    for (const m of this.moments) {
      if (m.device !== null && device && m.device !== device.device) continue;
      if (!best || Math.abs(m.time - time) < Math.abs(best.time - time)) best = m;
    }
    return best;
  }
  /** Who held memory of a device at a time: [group, bytes, count]s, and which time it is told of. */
  shares(device, time) {
    if (this.whole) {
      const { life, group } = this, sums = new Map();
      const starts = life.time, n = before(starts, time) + 1;
      for (let i = 0; i < n; i++) {
        const g = life.group[i];
        if (group.device[g] !== device.device || this.endOf(i) <= time) continue;
        const sum = sums.get(g);
        if (sum) (sum[1] += life.bytes[i]), sum[2]++;
        else sums.set(g, [g, life.bytes[i], 1]);
      }
      return { time, list: [...sums.values()], rest: 0 };
    }
    const m = this.nearest(time, device), list = [];
    if (!m) return { time, list, rest: 0 };
    for (let i = m.from; i < m.from + m.shares; i++) {
      const g = this.share.group[i];
      if (this.group.device[g] === device.device) list.push([g, this.share.bytes[i], this.share.count[i]]);
    }
    return { time: m.time, list, moment: m };
  }
}

/** Everything in the page. */
async function load() {
  const bytes = await unpacked();
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const meta = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const all = { meta, columns: new Columns(bytes, 4 + length, meta.columns) };
  all.runs = meta.runs.map((run, i) => new Run(i, run, all));
  return all;
}
