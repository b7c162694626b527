//! One history, played for the page: bounded memory whatever its length, all that is drawn decided here.

use std::collections::{BTreeMap, HashMap, HashSet};

use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::trace::Line;

use super::books::{Books, Change};
use super::holders::{Holders, Share};
use super::kept::{ALIVE, Kept, Life, Stay};
use super::labels::{Labels, Mark, Region};
use super::layers::active;
use super::moments::{self, Moment, Peaks};
use super::pyramid::{Bucket, Pyramid};
use super::tiles::{Tile, Tiles};
use crate::report::History;
use crate::report::order::Order;
use crate::report::text::{bytes, clean, clip};

/// How much of a history the page may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Buckets of the finest level of all curves together.
    pub leaves: usize,
    /// A history of at most so many allocations is held whole.
    pub whole: u64,
    /// Allocations that moments may add,
    pub at_moments: usize,
    /// and how many moments there are.
    pub moments: u64,
    /// Allocations in a tile of each level.
    pub tiles: [usize; 4],
    /// Segments of the pool and of PyTorch.
    pub segments: usize,
    /// Regions.
    pub regions: usize,
    /// Groups of allocations told at a moment.
    pub shares: usize,
}

impl Limits {
    /// For a page of so many histories: at most about 15 MB altogether, mostly a tenth of that.
    pub fn of(runs: usize) -> Limits {
        let part = |n: usize| n / runs.max(1);
        Limits {
            leaves: part(150_000).max(4_000),
            whole: part(200_000).max(20_000) as u64,
            at_moments: part(150_000).max(8_000),
            moments: part(240).max(24) as u64,
            tiles: [3_000, 1_500, part(400).max(60), part(110).max(20)],
            segments: part(60_000).max(4_000),
            regions: part(20_000).max(2_000),
            shares: 300,
        }
    }
}

/// Allocations that are many to look at four thousand times.
const MANY: u64 = 30_000;

/// A device's curve.
#[derive(Debug)]
pub struct Curve {
    /// Changes in a bucket of the finest level.
    pub leaf: u64,
    /// All levels, the finest first.
    pub levels: Vec<Vec<Bucket>>,
    /// When most was active.
    pub peak: u64,
    /// Bytes active then.
    pub peak_active: u64,
}

/// What was made of a history.
#[derive(Debug)]
pub struct Run {
    /// Every allocation is among `lives`.
    pub whole: bool,
    /// Events played.
    pub events: u64,
    /// Time of the first event
    pub start: u64,
    /// and of the last.
    pub end: u64,
    /// The curves, by device.
    pub curves: BTreeMap<u32, Curve>,
    /// The allocations kept one by one, in the order of their beginnings.
    pub lives: Vec<Life>,
    /// The segments.
    pub stays: Vec<Stay>,
    /// What to draw where.
    pub tiles: Vec<Tile>,
    /// The moments, by time.
    pub moments: Vec<Moment>,
    /// Who held memory.
    pub holders: Holders,
    /// Marks
    pub marks: Vec<Mark>,
    /// and regions.
    pub regions: Vec<Region>,
    /// Texts, by number.
    pub texts: HashMap<u32, String>,
    /// Names of threads.
    pub threads: HashMap<u32, String>,
}

/// Plays a history again, the one that `history` has read.
pub fn play(history: &History, lines: impl Iterator<Item = Line>, limits: &Limits) -> Run {
    let mut p = Play::new(history, limits);
    let mut order = Order::new();
    for line in lines {
        match line {
            Line::Text(t) => drop(p.texts.insert(t.text, t.value)),
            Line::Thread(t) => drop(p.threads.insert(t.thread, t.name)),
            Line::Live(thread, e) => p.event(thread, &e),
            Line::Event(thread, e) => order.push(thread, e, &mut |t, e| p.event(t, e)),
            _ => {}
        }
    }
    order.finish(&mut |t, e| p.event(t, e));
    p.finish()
}

struct Play<'a> {
    limits: &'a Limits,
    whole: bool,
    /// It is a snapshot, which has one moment: what lives comes in no order, and is summed up when all of it is known.
    snapshot: bool,
    /// Events between two moments.
    stride: u64,
    /// Moments to come that are known beforehand, the last first.
    planned: Vec<(u64, String)>,
    /// Marks that made a moment.
    marked: u64,
    at_moments: usize,
    events: u64,
    start: Option<u64>,
    now: u64,
    books: Books,
    change: Change,
    holders: Holders,
    kept: Kept,
    stays: Vec<Stay>,
    tiles: Option<Tiles>,
    moments: Vec<Moment>,
    peaks: Peaks,
    pyramids: BTreeMap<u32, Pyramid>,
    leaves: usize,
    labels: Labels,
    texts: HashMap<u32, String>,
    threads: HashMap<u32, String>,
}

impl<'a> Play<'a> {
    fn new(history: &History, limits: &'a Limits) -> Play<'a> {
        let groups = history.state.groups();
        let tensors = groups.iter().any(|g| g.memory == Memory::Tensor);
        let torch: HashSet<u32> = history
            .modules
            .values()
            .filter(|m| tensors && crate::symbols::file_name(&m.path).starts_with("libc10_cuda"))
            .map(|m| m.module)
            .collect();
        let allocations: u64 = groups.iter().map(|g| g.ever.count.max(g.now.count)).sum();
        let whole = allocations <= limits.whole;
        let mut planned: Vec<(u64, String)> = history
            .ooms
            .iter()
            .map(|o| {
                let asked = if o.asked > 0 { format!(" asked for {}", bytes(o.asked)) } else { String::new() };
                (o.time, format!("out of memory: {}{asked}", clean(&o.what)))
            })
            .collect();
        planned.sort_by(|a, b| b.cmp(a));
        let devices = history.state.devices.len().max(1);
        let mut tiles = limits.tiles.map(|most| (most / devices).max(20)).to_vec();
        // A tile's end looks at all that lives: the finest are too many for that where much does.
        let live: u64 = groups.iter().map(|g| history.state.at_peak(g).count).sum();
        if live > MANY {
            tiles.pop();
        }
        let snapshot = history.is_snapshot();
        Play {
            limits,
            whole,
            snapshot,
            stride: if snapshot { u64::MAX } else { history.events.div_ceil(limits.moments).max(1) },
            planned,
            marked: 0,
            at_moments: 0,
            events: 0,
            start: snapshot.then_some(history.end),
            now: if snapshot { history.end } else { 0 },
            books: Books::new(history.header.granularity, torch),
            change: Change::default(),
            holders: Holders::default(),
            kept: Kept::default(),
            stays: Vec::new(),
            tiles: (!whole).then(|| Tiles::new(history.events, &tiles)),
            moments: Vec::new(),
            peaks: Peaks::new(),
            pyramids: BTreeMap::new(),
            leaves: limits.leaves / devices,
            labels: Labels::new(limits.regions),
            texts: HashMap::new(),
            threads: HashMap::new(),
        }
    }

    fn event(&mut self, thread: u32, e: &Event) {
        while let Some((_, label)) = self.planned.pop_if(|(time, _)| *time < e.time) {
            self.moment(label);
        }
        self.start.get_or_insert(e.time);
        if let Some(tiles) = &mut self.tiles {
            tiles.event(e.time, &self.books, &mut self.kept);
        }
        // What was live where a part begins comes in no order.
        self.now = self.now.max(e.time);
        self.labels.play(thread, e);
        let mut change = std::mem::take(&mut self.change);
        change.clear();
        self.books.play(thread, e, &mut change);
        self.died(&change);
        self.born(thread, e, &change);
        self.left(&change);
        for device in &change.devices {
            self.pyramids.entry(*device).or_insert_with(|| Pyramid::new(self.leaves));
            if !self.snapshot {
                self.sum_up(*device);
            }
        }
        self.change = change;
        self.events += 1;
        if self.events.is_multiple_of(self.stride) {
            self.moment(String::new());
        } else if e.kind == EventKind::Mark && self.marked < self.limits.moments / 2 {
            self.marked += 1;
            let text = self.texts.get(&(e.extra[0] as u32)).cloned().unwrap_or_default();
            self.moment(clip(&clean(&text), 120));
        }
    }

    fn sum_up(&mut self, device: u32) {
        let sums = self.books.sums(device);
        if let Some(pyramid) = self.pyramids.get_mut(&device) {
            pyramid.push(self.now, &sums);
        }
        self.peaks.entry(device).or_default().measure(self.now, active(&sums));
    }

    fn died(&mut self, change: &Change) {
        for live in &change.died {
            self.holders.take(live.group, live.bytes);
            self.kept.end(live, self.now);
            if let Some(tiles) = &mut self.tiles {
                tiles.died(live, self.now);
                self.peaks.entry(live.device).or_default().died(live, self.now);
            }
        }
    }

    fn born(&mut self, thread: u32, e: &Event, change: &Change) {
        for id in &change.born {
            let region = self.labels.innermost(thread);
            let Some(live) = self.books.live_mut(*id) else { continue };
            let Some(kind) = live.kind else { continue };
            let again = e.kind == EventKind::FreeFailed;
            if again {
                self.kept.reopen(*id);
                self.peaks.entry(live.device).or_default().reopen(*id);
            } else {
                live.group = self.holders.find(e, live, kind, thread, region);
            }
            self.holders.add(live.group, live.bytes, !again);
            if self.whole {
                self.kept.keep(live, ALIVE);
            }
        }
    }

    /// Of a long history only those segments are kept that lived at some moment.
    fn left(&mut self, change: &Change) {
        for segment in &change.left {
            let seen = self.moments.last().is_some_and(|m| m.time >= segment.time);
            if (self.whole || seen) && self.stays.len() < self.limits.segments {
                self.stays.push(Stay { segment: *segment, end: self.now });
            }
        }
    }

    /// Keeps what is now.
    fn moment(&mut self, label: String) {
        if let Some(last) = self.moments.last_mut().filter(|m| m.time == self.now) {
            // What has a name stays.
            if last.label.is_empty() {
                last.label = label;
            }
            return;
        }
        let (mut shares, mut untold) = (Vec::new(), 0);
        if !self.whole {
            // Much at first, for what lives all along; then what is new.
            let part = self.limits.at_moments / 4;
            let so_far =
                part + (self.limits.at_moments - part) * self.moments.len() / (self.limits.moments as usize + 1);
            let (before, most) = (self.kept.len(), so_far.saturating_sub(self.at_moments));
            untold = moments::keep(&self.books, &mut self.kept, most);
            self.at_moments += self.kept.len() - before;
            shares = self.holders.now(self.limits.shares);
        }
        self.moments.push(Moment { time: self.now, label, device: None, shares, untold });
    }

    fn finish(mut self) -> Run {
        while let Some((_, label)) = self.planned.pop() {
            self.moment(label);
        }
        if self.snapshot {
            let devices: Vec<u32> = self.pyramids.keys().copied().collect();
            devices.into_iter().for_each(|device| self.sum_up(device));
        }
        self.moment(if self.snapshot { "snapshot" } else { "end" }.to_string());
        let tiles = self.tiles.take().map_or_else(Vec::new, |t| t.finish(self.now, &self.books, &mut self.kept));
        self.peak_moments();
        let room = self.limits.segments.saturating_sub(self.stays.len());
        let still = self.books.segments();
        self.stays.extend(still.into_iter().take(room).map(|segment| Stay { segment, end: ALIVE }));
        self.stays.sort_by_key(|s| (s.segment.time, s.segment.address));
        let regions = self.labels.finish(self.now);
        let (lives, places) = self.kept.sorted();
        let mut tiles = tiles;
        for tile in &mut tiles {
            tile.members.iter_mut().for_each(|m| *m = places[*m as usize]);
            tile.members.sort_unstable();
        }
        let peaks = self.peaks;
        let curve = |(device, pyramid): (u32, Pyramid)| {
            let peak = peaks.get(&device);
            let (leaf, levels) = (pyramid.leaf(), pyramid.levels());
            let (time, active) = peak.map_or((0, 0), |p| (p.time, p.active));
            (device, Curve { leaf, levels, peak: time, peak_active: active })
        };
        Run {
            whole: self.whole,
            events: self.events,
            start: self.start.unwrap_or(0),
            end: self.now,
            curves: self.pyramids.into_iter().map(curve).collect(),
            lives,
            stays: self.stays,
            tiles,
            moments: self.moments,
            holders: self.holders,
            marks: self.labels.marks,
            regions,
            texts: self.texts,
            threads: self.threads,
        }
    }

    /// The peak of each device is a moment, too, found out afterwards.
    fn peak_moments(&mut self) {
        for (device, peak) in std::mem::take(&mut self.peaks).iter().filter(|(_, p)| p.active > 0) {
            let label = match *device {
                super::live::HOST => "peak of pinned host memory".to_string(),
                device => format!("peak of GPU {device}"),
            };
            let mut shares: Vec<Share> = Vec::new();
            let mut untold = 0;
            if !self.whole {
                let mut lives = peak.lives(*device, &self.books);
                shares = moments::shares(&lives, self.limits.shares);
                lives.sort_unstable_by_key(|(l, _)| (std::cmp::Reverse(l.bytes), l.id));
                let most = self.limits.at_moments / 4;
                untold = lives.len().saturating_sub(most) as u64;
                for (live, end) in lives.iter().take(most) {
                    self.kept.keep(live, *end);
                }
            }
            let at = self.moments.partition_point(|m| m.time < peak.time);
            match self.moments.get_mut(at).filter(|m| m.time == peak.time && m.label.is_empty()) {
                Some(moment) => moment.label = label,
                None => {
                    let device = Some(*device);
                    self.moments.insert(at, Moment { time: peak.time, label, device, shares, untold });
                }
            }
            self.peaks.insert(*device, peak.clone());
        }
    }
}
