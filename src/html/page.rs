//! The page: its own files from `page/`, and the data as one compressed text in it.

use std::io::Write;

use anyhow::Result;
use base64::Engine;
use flate2::{Compression, write::GzEncoder};
use serde::Serialize;
use serde_json::Value;

use super::columns::{Column, Columns};
use super::kept::ALIVE;
use super::layers::{LAYERS, Layer};
use super::live::{HOST, KINDS};
use super::run::{Curve, Run};
use super::stacks::{Frame, Stack, Stacks};
use crate::report::History;
use crate::report::text::{clean, clip};

const FRAME: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// In the order in which they need each other.
const SCRIPTS: [&str; 10] = [
    include_str!("page/data.js"),
    include_str!("page/words.js"),
    include_str!("page/chart.js"),
    include_str!("page/timeline.js"),
    include_str!("page/allocations.js"),
    include_str!("page/allocator.js"),
    include_str!("page/holders.js"),
    include_str!("page/icicle.js"),
    include_str!("page/answers.js"),
    include_str!("page/main.js"),
];

/// A history and what was made of it.
pub struct Part<'a> {
    /// The history.
    pub history: &'a History,
    /// What was played.
    pub run: Run,
    /// The names of its stacks.
    pub stacks: Stacks,
    /// What the report says, as `--json` has it.
    pub answers: Value,
}

#[derive(Serialize)]
struct Meta<'a> {
    vramscope: &'static str,
    /// All runs have one zero of time.
    together: bool,
    layers: Vec<&'static str>,
    kinds: [&'static str; KINDS.len()],
    runs: Vec<RunMeta<'a>>,
    columns: &'a [Column],
}

#[derive(Serialize)]
struct RunMeta<'a> {
    name: String,
    rank: Option<String>,
    host: String,
    pid: u32,
    command: String,
    file: String,
    wall: f64,
    /// How much later than the first rank it began, where all have one zero of time.
    shift: u64,
    events: u64,
    /// How it ended.
    ended: String,
    damage: Option<&'a str>,
    whole: bool,
    start: u64,
    end: u64,
    devices: Vec<DeviceMeta>,
    frames: &'a [Frame],
    stacks: &'a [Stack],
    callers: Vec<String>,
    threads: Vec<(u32, String)>,
    texts: Vec<String>,
    moments: Vec<MomentMeta<'a>>,
    answers: &'a Value,
}

#[derive(Serialize)]
struct DeviceMeta {
    device: u32,
    host: bool,
    name: String,
    uuid: String,
    bytes: u64,
    leaf: u64,
    /// Buckets of each level, the finest first.
    levels: Vec<usize>,
    /// Layers that are ever more than nothing.
    layers: Vec<usize>,
    peak: u64,
    peak_active: u64,
}

#[derive(Serialize)]
struct MomentMeta<'a> {
    time: u64,
    label: &'a str,
    device: Option<u32>,
    shares: usize,
    untold: u64,
}

/// Characters of a mark's or region's text.
const LONGEST: usize = 200;

/// Texts by number, only those that are used.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    known: std::collections::HashMap<String, usize>,
}

impl Texts {
    fn place(&mut self, text: &str) -> u64 {
        let text = clip(&clean(text), LONGEST);
        if let Some(at) = self.known.get(&text) {
            return *at as u64;
        }
        self.known.insert(text.clone(), self.all.len());
        self.all.push(text);
        self.all.len() as u64 - 1
    }
}

/// Writes the page.
pub fn write(out: &mut impl Write, parts: &[Part]) -> Result<()> {
    let mut columns = Columns::default();
    let runs = parts.iter().enumerate().map(|(i, part)| run(i, part, &mut columns)).collect();
    let layers = LAYERS.map(Layer::name).to_vec();
    let together = parts.iter().any(|p| p.history.shift > 0);
    let meta =
        Meta { vramscope: env!("CARGO_PKG_VERSION"), together, layers, kinds: KINDS, runs, columns: columns.index() };
    let meta = serde_json::to_vec(&meta)?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&(meta.len() as u32).to_le_bytes())?;
    packed.write_all(&meta)?;
    packed.write_all(columns.bytes())?;
    let data = base64::engine::general_purpose::STANDARD.encode(packed.finish()?);
    let title = match parts {
        [one] => format!("{}: GPU memory", one.history.program()),
        _ => format!("{} histories: GPU memory", parts.len()),
    };
    let mut rest = FRAME;
    let scripts = SCRIPTS.concat();
    let title = escape(&title);
    for (mark, text) in
        [("{{title}}", title.as_str()), ("{{style}}", STYLE), ("{{data}}", &data), ("{{script}}", &scripts)]
    {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(text.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    Ok(())
}

/// Text as HTML.
fn escape(text: &str) -> String {
    clean(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn run<'a>(i: usize, part: &'a Part, columns: &mut Columns) -> RunMeta<'a> {
    let (h, run) = (part.history, &part.run);
    let mut texts = Texts::default();
    let text = |number: u32| run.texts.get(&number).map_or("", String::as_str);
    // The first text is none.
    texts.place("");
    let marks: Vec<(u64, u64)> = run.marks.iter().map(|m| (m.time, texts.place(text(m.text)))).collect();
    columns.add(format!("{i}.mark.time"), marks.iter().map(|m| m.0));
    columns.add(format!("{i}.mark.text"), marks.iter().map(|m| m.1));
    let regions: Vec<u64> = run.regions.iter().map(|r| texts.place(text(r.text))).collect();
    columns.add(format!("{i}.region.text"), regions.iter().copied());
    columns.add(format!("{i}.region.start"), run.regions.iter().map(|r| r.start));
    columns.add(format!("{i}.region.length"), run.regions.iter().map(|r| r.end - r.start));
    columns.add(format!("{i}.region.thread"), run.regions.iter().map(|r| r.thread.into()));
    columns.add(format!("{i}.region.depth"), run.regions.iter().map(|r| r.depth.into()));
    columns.add(format!("{i}.region.open"), run.regions.iter().map(|r| r.open.into()));
    lives(i, run, columns);
    let callers = groups(i, part, columns, &mut texts);
    let shares = || run.moments.iter().flat_map(|m| m.shares.iter());
    columns.add(format!("{i}.share.group"), shares().map(|s| s.group.into()));
    columns.add(format!("{i}.share.bytes"), shares().map(|s| s.bytes));
    columns.add(format!("{i}.share.count"), shares().map(|s| s.count));
    let devices = run.curves.iter().map(|(device, curve)| self::device(i, part, *device, curve, columns)).collect();
    let header = &h.header;
    let mut threads: Vec<(u32, String)> = run.threads.iter().map(|(n, name)| (*n, clean(name))).collect();
    threads.sort_unstable();
    RunMeta {
        name: clean(h.program()),
        rank: header.rank().map(clean),
        host: clean(&header.host),
        pid: header.pid,
        command: clean(&if header.arguments.is_empty() { header.program.clone() } else { header.arguments.join(" ") }),
        file: h.path.file_name().map_or(String::new(), |n| clean(&n.to_string_lossy())),
        wall: header.start_seconds as f64 + f64::from(header.start_nanoseconds) / 1e9,
        shift: h.shift,
        events: h.all_events(),
        ended: ended(h),
        damage: h.damage.as_deref(),
        whole: run.whole,
        start: run.start,
        end: run.end,
        devices,
        frames: &part.stacks.frames,
        stacks: &part.stacks.stacks,
        callers,
        threads,
        texts: texts.all,
        moments: run
            .moments
            .iter()
            .map(|m| MomentMeta {
                time: m.time,
                label: &m.label,
                device: m.device,
                shares: m.shares.len(),
                untold: m.untold,
            })
            .collect(),
        answers: &part.answers,
    }
}

fn ended(h: &History) -> String {
    match &h.footer {
        _ if h.is_snapshot() => "a snapshot: the program went on".to_string(),
        Some(_) if h.killed() => match h.signal() {
            Some(signal) => format!("the program was killed by signal {signal}"),
            None => "the program was killed".to_string(),
        },
        Some(f) if f.end == "cut" => "the end of the history is lost".to_string(),
        Some(f) if f.end == "stopped" && !h.is_imported() => "recording ended before the program did".to_string(),
        Some(f) => match f.status {
            Some(status) => format!("the program ended with status {status}"),
            None => "the program ended".to_string(),
        },
        None if h.exited => "the program ended in good order".to_string(),
        None => "the history was not finished".to_string(),
    }
}

fn lives(i: usize, run: &Run, columns: &mut Columns) {
    let lives = || run.lives.iter();
    columns.add(format!("{i}.life.time"), lives().map(|l| l.live.time));
    // 0: it never ended.
    columns.add(format!("{i}.life.length"), lives().map(|l| length(l.live.time, l.end)));
    columns.add(format!("{i}.life.bytes"), lives().map(|l| l.live.bytes));
    columns.add(format!("{i}.life.slack"), lives().map(|l| l.live.bytes.saturating_sub(l.live.asked)));
    columns.add(format!("{i}.life.address"), lives().map(|l| l.live.address.min(1 << 52)));
    columns.add(format!("{i}.life.group"), lives().map(|l| l.live.group.into()));
    let stays = || run.stays.iter();
    columns.add(format!("{i}.stay.time"), stays().map(|s| s.segment.time));
    columns.add(format!("{i}.stay.length"), stays().map(|s| length(s.segment.time, s.end)));
    columns.add(format!("{i}.stay.bytes"), stays().map(|s| s.segment.bytes));
    columns.add(format!("{i}.stay.address"), stays().map(|s| s.segment.address.min(1 << 52)));
    columns.add(format!("{i}.stay.device"), stays().map(|s| s.segment.device.into()));
    columns.add(format!("{i}.stay.whose"), stays().map(|s| s.segment.whose as u64));
    columns.add(format!("{i}.stay.home"), stays().map(|s| s.segment.home.min(1 << 52)));
}

fn length(start: u64, end: u64) -> u64 {
    if end == ALIVE { 0 } else { end.saturating_sub(start) + 1 }
}

/// The groups; gives the names of the callers.
fn groups(i: usize, part: &Part, columns: &mut Columns, texts: &mut Texts) -> Vec<String> {
    let run = &part.run;
    let all = run.holders.all();
    let mut callers = Texts::default();
    callers.place("");
    let modules: Vec<u64> = all
        .iter()
        .map(|g| if g.key.caller == 0 { 0 } else { callers.place(part.history.module_name(g.key.caller)) })
        .collect();
    let regions: Vec<u64> =
        all.iter().map(|g| texts.place(run.texts.get(&g.key.region).map_or("", String::as_str))).collect();
    columns.add(format!("{i}.group.device"), all.iter().map(|g| g.key.device.into()));
    columns.add(format!("{i}.group.stack"), all.iter().map(|g| part.stacks.place(g.key.stack).into()));
    columns.add(format!("{i}.group.caller"), modules.iter().copied());
    columns.add(format!("{i}.group.kind"), all.iter().map(|g| g.key.kind as u64));
    columns.add(format!("{i}.group.thread"), all.iter().map(|g| g.key.thread.into()));
    columns.add(format!("{i}.group.region"), regions.iter().copied());
    columns.add(format!("{i}.group.most"), all.iter().map(|g| g.most));
    columns.add(format!("{i}.group.ever"), all.iter().map(|g| g.ever));
    columns.add(format!("{i}.group.times"), all.iter().map(|g| g.times));
    callers.all
}

fn device(i: usize, part: &Part, device: u32, curve: &Curve, columns: &mut Columns) -> DeviceMeta {
    let host = device == HOST;
    let prefix = format!("{i}.{}", if host { "host".to_string() } else { device.to_string() });
    let top = curve.levels.last().map_or(&[][..], Vec::as_slice);
    let layers: Vec<usize> = (0..LAYERS.len()).filter(|l| top.iter().any(|b| b.max[*l] > 0)).collect();
    for (n, level) in curve.levels.iter().enumerate() {
        columns.add(format!("{prefix}.{n}.time"), level.iter().map(|b| b.time));
        for l in &layers {
            // What is near the last value is a small number.
            columns.add(format!("{prefix}.{n}.{l}.last"), level.iter().map(|b| b.last[*l]));
            columns.add(format!("{prefix}.{n}.{l}.under"), level.iter().map(|b| b.last[*l] - b.min[*l]));
            columns.add(format!("{prefix}.{n}.{l}.over"), level.iter().map(|b| b.max[*l] - b.last[*l]));
            columns.add(format!("{prefix}.{n}.{l}.less"), level.iter().map(|b| b.max[*l] - b.high[*l]));
        }
    }
    let tiles: Vec<_> = part.run.tiles.iter().filter(|t| t.device == device).collect();
    columns.add(format!("{prefix}.tile.level"), tiles.iter().map(|t| t.level as u64));
    columns.add(format!("{prefix}.tile.start"), tiles.iter().map(|t| t.start));
    columns.add(format!("{prefix}.tile.length"), tiles.iter().map(|t| t.end - t.start));
    columns.add(format!("{prefix}.tile.n"), tiles.iter().map(|t| t.members.len() as u64));
    columns.add(format!("{prefix}.tile.member"), tiles.iter().flat_map(|t| t.members.iter().map(|m| u64::from(*m))));
    let known = part.history.devices.get(&device).filter(|_| !host);
    DeviceMeta {
        device,
        host,
        name: known.map_or(String::new(), |d| clean(&d.name)),
        uuid: known.map_or(String::new(), |d| clean(&d.uuid)),
        bytes: known.map_or(0, |d| d.bytes),
        leaf: curve.leaf,
        levels: curve.levels.iter().map(Vec::len).collect(),
        layers,
        peak: curve.peak,
        peak_active: curve.peak_active,
    }
}
