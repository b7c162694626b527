//! Tells histories as one timeline: a process each, times aligned by their wall clocks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::Result;
use vramscope_core::event::{Event, EventKind, Memory};

use super::counters::{self, Counters};
use super::lanes::Lanes;
use super::largest::Largest;
use super::{Timeline, Track, TrackKind, Value, args};
use crate::export::lives::{Life, Lives};
use crate::export::owners::PyTorch;
use crate::export::play::{Step, What};
use crate::export::regions::{Region, Regions, Turn};
use crate::export::{Source, labels};
use crate::report::codes;
use crate::report::tally::Layer;
use crate::report::text::{bytes, clean, count};

/// Slices, if nothing else is asked for.
const SLICES: usize = 100_000;
/// Places that have lanes of their own, in each layer.
const PLACES: usize = 100;

/// Wall clock at the start of the first history: nanoseconds since 1970.
pub fn start(sources: &[Source]) -> u64 {
    sources.iter().map(|s| s.wall(0)).min().unwrap_or(0)
}

/// Tells all. What it gives back is for the person.
pub fn tell(sources: &mut [Source], line: &mut dyn Timeline) -> Result<Vec<String>> {
    let start = start(sources);
    let mut pids = HashSet::new();
    let mut notes = Vec::new();
    for (i, source) in sources.iter_mut().enumerate() {
        let mut pid = source.history.header.pid & 0x7fff_ffff;
        // Of several machines two may have the same. No kernel's numbers go so far.
        while !pids.insert(pid) {
            pid = pid.wrapping_add(10_000_000) & 0x7fff_ffff;
        }
        let zero = source.wall(0).saturating_sub(start);
        notes.extend(Teller::new(i as u64, pid, zero, source).tell(source, line)?);
    }
    Ok(notes)
}

/// Tells one history.
struct Teller {
    /// Its numbers of tracks begin here.
    base: u64,
    pid: u32,
    zero: u64,
    tracks: u64,
    threads: HashMap<u32, u64>,
    counters: Counters,
    lives: Lives,
    largest: Largest,
    regions: Regions,
    /// Lanes of regions of the whole process, and which of them is in which.
    process: Vec<(u64, Option<u64>)>,
    failures: Vec<Event>,
    marks: u64,
    limit: usize,
    end: u64,
}

impl Teller {
    fn new(i: u64, pid: u32, zero: u64, source: &Source) -> Teller {
        let h = &source.history;
        let base = (i + 1) << 32;
        let pytorch = PyTorch::of(source);
        let counters =
            Counters::new(pytorch, h.header.granularity, h.events, source.end, (base, pid, base + (1 << 16)));
        let limit = source.options.limit.unwrap_or(SLICES);
        let end = source.end.min(source.selection.to).max(source.selection.from);
        let (threads, lives, regions, process, failures) = Default::default();
        let largest = Largest::new(limit);
        let (tracks, marks) = (0, 0);
        Teller {
            base,
            pid,
            zero,
            tracks,
            threads,
            counters,
            lives,
            largest,
            regions,
            process,
            failures,
            marks,
            limit,
            end,
        }
    }

    fn tell(mut self, source: &mut Source, line: &mut dyn Timeline) -> Result<Vec<String>> {
        let h = &source.history.header;
        line.process(self.base, self.pid, &process_name(source), &h.arguments)?;
        self.marks = self.track(line, self.base, "marks", 10_000, TrackKind::Lane)?;
        let mut ooms = Vec::new();
        let from = source.selection.from;
        source.play(&mut |step| {
            if let What::Oom(oom) = step.what {
                ooms.push(oom.clone());
            }
            self.step(source, from, step, line)
        })?;
        self.counters.finish(line)?;
        for region in self.regions.rest() {
            self.turn(source, Turn::End(region, self.end), line)?;
        }
        let end = self.end;
        let largest = &mut self.largest;
        self.lives.finish(&mut |life| {
            add(largest, life, from, end);
            Ok(())
        })?;
        let left_out = self.largest.left_out;
        let chosen = std::mem::replace(&mut self.largest, Largest::new(0)).sorted();
        let mut stacks: BTreeSet<u32> = chosen.iter().map(|l| l.allocation.event.stack).collect();
        stacks.extend(self.failures.iter().map(|e| e.stack).chain(ooms.iter().map(|o| o.stack)));
        source.resolve(&stacks);
        self.failed(source, &ooms, line)?;
        let hidden = self.slices(source, chosen, line)?;
        let mut notes = Vec::new();
        let name = process_name(source);
        if left_out > 0 {
            notes.push(format!(
                "{name}: {} smaller or shorter allocations are no slices: only the {} with most bytes x time are (--limit N)",
                count(left_out),
                count(self.limit as u64)
            ));
        }
        if hidden > 0 {
            let most = super::lanes::MOST;
            notes.push(format!(
                "{name}: {} allocations are no slices: their place has {most} larger ones at the same time",
                count(hidden)
            ));
        }
        Ok(notes)
    }

    fn step(&mut self, source: &Source, from: u64, step: &Step<'_>, line: &mut dyn Timeline) -> Result<()> {
        self.counters.step(step, self.zero, line)?;
        if let Some((context, free, total)) = counters::is_sample(step) {
            let device = source.contexts.get(&context).copied().unwrap_or(0);
            if source.selection.device.is_none_or(|d| d == device) {
                self.counters.sample(device, self.at(step.time), free, total, line)?;
            }
        }
        if let Some(turn) = self.regions.step(step) {
            self.turn(source, turn, line)?;
        }
        if let What::Other(e) = step.what {
            self.other(source, step.thread, e, line)?;
        }
        let (largest, end) = (&mut self.largest, self.end);
        self.lives.step(step, self.regions.around(step.thread), &mut |life| {
            add(largest, life, from, end);
            Ok(())
        })
    }

    /// A time of this history as one of the timeline.
    fn at(&self, time: u64) -> u64 {
        self.zero.saturating_add(time)
    }

    fn other(&mut self, source: &Source, thread: u32, e: &Event, line: &mut dyn Timeline) -> Result<()> {
        let time = self.at(e.time);
        match e.kind {
            EventKind::Mark => {
                let text = source.texts.get(&(e.extra[0] as u32)).map_or("?", String::as_str);
                let thread = source.threads.get(&thread).map_or("", |t| t.name.as_str());
                line.moment(self.marks, time, text, &[("thread", Value::Text(thread))])?;
            }
            EventKind::AllocFailed | EventKind::BadFree | EventKind::FreeFailed => self.failures.push(*e),
            EventKind::Trim => {
                let name = format!("trim: {} given back", bytes(e.bytes));
                let args = [("bytes", Value::Number(e.bytes)), ("allocations", Value::Number(e.block))];
                line.moment(self.marks, time, &name, &args)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A region begins or ends.
    fn turn(&mut self, source: &Source, turn: Turn, line: &mut dyn Timeline) -> Result<()> {
        let (Turn::Begin(region) | Turn::End(region, _)) = turn;
        // One that never ended is a moment: as a stretch it would hold all that its thread did ever after.
        if source.never_ended.contains(&region.id) {
            let Turn::Begin(r) = turn else { return Ok(()) };
            let track = self.thread(source, region.thread, line)?;
            let name = format!("{} (open at the end)", source.texts.get(&r.text).map_or("?", String::as_str));
            return line.moment(track, self.at(r.begin), &name, &[("id", Value::Number(r.id))]);
        }
        let track = if region.process {
            self.process_lane(&region, turn, line)?
        } else {
            self.thread(source, region.thread, line)?
        };
        match turn {
            Turn::Begin(r) => {
                let name = source.texts.get(&r.text).map_or("?", String::as_str);
                line.begin(track, self.at(r.begin), name, &[("id", Value::Number(r.id))])
            }
            Turn::End(_, time) => line.end(track, self.at(time)),
        }
    }

    /// The lane of a region of the whole process: those may overlap in any way.
    fn process_lane(&mut self, region: &Region, turn: Turn, line: &mut dyn Timeline) -> Result<u64> {
        let of = |id: Option<u64>| move |lane: &&mut (u64, Option<u64>)| lane.1 == id;
        let wanted = if matches!(turn, Turn::Begin(_)) { None } else { Some(region.id) };
        if let Some(lane) = self.process.iter_mut().find(of(wanted)) {
            lane.1 = if wanted.is_none() { Some(region.id) } else { None };
            return Ok(lane.0);
        }
        let track = self.track(line, self.base, "regions of the process", 10_001, TrackKind::Lane)?;
        self.process.push((track, Some(region.id)));
        Ok(track)
    }

    fn thread(&mut self, source: &Source, number: u32, line: &mut dyn Timeline) -> Result<u64> {
        if let Some(track) = self.threads.get(&number) {
            return Ok(*track);
        }
        let thread = source.threads.get(&number);
        let (tid, name) = thread.map_or((number, "?"), |t| (t.tid, t.name.as_str()));
        let track = self.track(line, self.base, name, 20_000 + number, TrackKind::Thread(tid))?;
        self.threads.insert(number, track);
        Ok(track)
    }

    fn track(&mut self, line: &mut dyn Timeline, parent: u64, name: &str, rank: u32, kind: TrackKind) -> Result<u64> {
        self.tracks += 1;
        // Past the counters' numbers.
        let id = self.base + (1 << 20) + self.tracks;
        line.track(&Track { id, parent, pid: self.pid, name, rank, kind })?;
        Ok(id)
    }

    /// What failed, as moments.
    fn failed(&mut self, source: &Source, ooms: &[vramscope_core::trace::Oom], line: &mut dyn Timeline) -> Result<()> {
        if self.failures.is_empty() && ooms.is_empty() {
            return Ok(());
        }
        let track = self.track(line, self.base, "failures", 0, TrackKind::Lane)?;
        for e in std::mem::take(&mut self.failures) {
            let stack = labels::lines(source, e.stack, args::FRAMES);
            let what = if e.kind == EventKind::AllocFailed {
                // PyTorch reports what it could not give out; no function of CUDA's failed then.
                let who = if e.memory == Memory::Tensor { "PyTorch" } else { e.api.name() };
                format!("{who} failed: {}", bytes(e.bytes))
            } else {
                format!("{}: {}", e.api.name(), e.kind.name())
            };
            let code = codes::name(e.code);
            let args = [
                ("bytes", Value::Number(e.bytes)),
                ("code", Value::Text(&code)),
                ("address", Value::Address(e.address)),
                ("stack", Value::List(&stack)),
            ];
            line.moment(track, self.at(e.time), &what, &args)?;
        }
        for oom in ooms {
            let stack = labels::lines(source, oom.stack, args::FRAMES);
            let advice: Vec<String> = oom.advice.iter().map(|a| clean(a)).collect();
            let args = [
                ("asked", Value::Number(oom.asked)),
                ("free", Value::Number(oom.free)),
                ("total", Value::Number(oom.total)),
                ("device", Value::Number(oom.device.into())),
                ("pytorch_active", Value::Number(oom.pytorch_active)),
                ("pytorch_inactive", Value::Number(oom.pytorch_inactive)),
                ("pool_active", Value::Number(oom.pool_active)),
                ("pool_inactive", Value::Number(oom.pool_inactive)),
                ("outside", Value::Number(oom.outside)),
                ("rest", Value::Number(oom.rest)),
                ("others", Value::Number(oom.others.unwrap_or(0))),
                ("advice", Value::List(&advice)),
                ("stack", Value::List(&stack)),
            ];
            let name = format!("out of memory: {} asked for {}", clean(&oom.what), bytes(oom.asked));
            line.moment(track, self.at(oom.time), &name, &args)?;
        }
        Ok(())
    }

    /// The largest allocations, in lanes by place. Says how many found no lane.
    fn slices(&mut self, source: &Source, chosen: Vec<Life>, line: &mut dyn Timeline) -> Result<u64> {
        let mut names: HashMap<(u32, u32), (String, Vec<String>)> = HashMap::new();
        let mut layers: BTreeMap<(u8, bool), u64> = BTreeMap::new();
        let mut places: HashMap<(u64, String), (Lanes, Vec<u64>)> = HashMap::new();
        let mut ranks: HashMap<u64, u32> = HashMap::new();
        let mut hidden = 0;
        let pytorch = PyTorch::of(source);
        let from = source.selection.from;
        for life in &chosen {
            let (a, e) = (&life.allocation, &life.allocation.event);
            let (place, stack) = names.entry((e.stack, e.caller)).or_insert_with(|| {
                let frames = source.frames(e.stack);
                (labels::stack(source, &frames, e.caller), labels::lines(source, e.stack, args::FRAMES))
            });
            let layer = (a.layer as u8, pytorch.is_segment(a));
            let group = match layers.get(&layer) {
                Some(group) => *group,
                None => {
                    let name = group_name(a.layer, layer.1);
                    // Tensors are what most look for.
                    let rank = if a.layer == Layer::Tensor { 30_000 } else { 30_001 + u32::from(layer.0) };
                    let group = self.track(line, self.base, &name, rank, TrackKind::Group)?;
                    layers.insert(layer, group);
                    group
                }
            };
            let rank = ranks.entry(group).or_default();
            let place = if *rank as usize >= PLACES && !places.contains_key(&(group, place.clone())) {
                "other places".to_string()
            } else {
                place.clone()
            };
            let (lanes, tracks) = places.entry((group, place.clone())).or_insert_with(|| {
                *rank += 1;
                Default::default()
            });
            let (begin, end) = span(life, from, self.end);
            let Some(lane) = lanes.place(begin, end) else {
                hidden += 1;
                continue;
            };
            if lane == tracks.len() {
                tracks.push(self.track(line, group, &place, *rank, TrackKind::Lane)?);
            }
            let region = source_path(&self.regions, source, life);
            let mark = (life.around.marks as usize).checked_sub(1).and_then(|i| source.marks.get(i));
            let words = args::of_life(source, life, stack, &region, mark.map_or("", |m| m.1.as_str()));
            let name = format!("{} {place}", bytes(a.block()));
            line.slice(tracks[lane], self.at(begin), self.at(end), &name, &words)?;
        }
        Ok(hidden)
    }
}

fn add(largest: &mut Largest, life: &Life, from: u64, end: u64) {
    let (begin, end) = span(life, from, end);
    largest.add(life, end - begin);
}

/// The part of a life that is in the window.
fn span(life: &Life, from: u64, end: u64) -> (u64, u64) {
    let begin = life.allocation.event.time.max(from);
    (begin, life.ended.map_or(end, |e| e.time).max(begin))
}

fn source_path(regions: &Regions, source: &Source, life: &Life) -> String {
    regions.path(life.around.path, &source.texts)
}

fn group_name(layer: Layer, segment: bool) -> String {
    if segment { "allocations: PyTorch's segments".to_string() } else { format!("allocations: {}", layer.name()) }
}

/// `rank 3: train.py (gpu7)`
fn process_name(source: &Source) -> String {
    let h = &source.history.header;
    let rank = h.rank().map_or(String::new(), |r| format!("rank {}: ", clean(r)));
    format!("{rank}{} ({})", labels::program(source), clean(&h.host))
}
