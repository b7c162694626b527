//! Counters by layer, for each device: what changes is told, and where too much changes, the lowest, highest and last value
//! of each short stretch.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;
use vramscope_core::event::EventKind;

use super::{Timeline, Track, TrackKind};
use crate::export::owners::PyTorch;
use crate::export::play::{Allocation, Step, What};
use crate::report::tally::{LAYERS, Layer, Totals};

/// Stretches that a history is cut into, where it has more changes than [`ALL`].
const STRETCHES: u64 = 10_000;
/// Up to so many events nothing is left out.
const ALL: u64 = 100_000;

/// What is counted on a device, in the order in which it is shown.
const COUNTED: [&str; 9] = [
    "used",
    "active",
    "reserved",
    "inactive in the pool",
    "PyTorch reserved",
    "PyTorch allocated (tensors)",
    "PyTorch inactive",
    "outside PyTorch and the pool",
    "context, modules, driver, other processes",
];

/// Counters of a history.
pub struct Counters {
    devices: BTreeMap<u32, Device>,
    series: HashMap<(u32, usize), Series>,
    groups: HashSet<u32>,
    pytorch: PyTorch,
    grain: u64,
    stretch: u64,
    /// The process: its track, its number, and the track number that its counters begin with.
    process: (u64, u32, u64),
}

/// What a device holds.
#[derive(Default)]
struct Device {
    totals: Totals,
    /// Bytes in the segments of PyTorch.
    segments: u64,
    tensors: bool,
}

/// One counter.
struct Series {
    track: u64,
    stretch: Option<u64>,
    low: (u64, u64),
    high: (u64, u64),
    last: (u64, u64),
    written: Option<u64>,
    now: u64,
}

impl Counters {
    /// Of a history of so many events that takes so long.
    pub fn new(pytorch: PyTorch, grain: u64, events: u64, ns: u64, process: (u64, u32, u64)) -> Counters {
        let stretch = if events <= ALL { 0 } else { (ns / STRETCHES).max(1) };
        let grain = if grain == 0 { 2 << 20 } else { grain };
        let (devices, series, groups) = Default::default();
        Counters { devices, series, groups, pytorch, grain, stretch, process }
    }

    /// Takes a step; `zero`: when the history's time 0 is.
    pub fn step(&mut self, step: &Step<'_>, zero: u64, line: &mut dyn Timeline) -> Result<()> {
        let time = zero.saturating_add(step.time);
        let device = match step.what {
            What::Alloc(a) => self.change(a, true),
            What::Free(a, _) => self.change(a, false),
            What::SegmentAlloc(s) => {
                let d = self.devices.entry(s.device).or_default();
                d.totals.segments.add(s.bytes(), s.bytes());
                d.totals.rounding += over(s.bytes(), self.grain);
                s.device
            }
            What::SegmentFree(s, _) => {
                let d = self.devices.entry(s.device).or_default();
                d.totals.segments.take(s.bytes(), s.bytes());
                d.totals.rounding = d.totals.rounding.saturating_sub(over(s.bytes(), self.grain));
                s.device
            }
            What::Oom(oom) => {
                if let Some(others) = oom.others {
                    self.set(oom.device, COUNTED.len(), zero.saturating_add(oom.time), others, line)?;
                }
                return Ok(());
            }
            What::Other(_) | What::Map(..) => return Ok(()),
        };
        self.tell(device, time, line)
    }

    /// What a device says of itself.
    pub fn sample(&mut self, device: u32, time: u64, free: u64, total: u64, line: &mut dyn Timeline) -> Result<()> {
        let used = total.saturating_sub(free);
        let t = self.devices.get(&device).map_or(Totals::default(), |d| d.totals);
        self.set(device, 0, time, used, line)?;
        self.set(device, 8, time, used.saturating_sub(t.reserved().saturating_add(t.rounding)), line)
    }

    fn change(&mut self, a: &Allocation, come: bool) -> u32 {
        let d = self.devices.entry(a.device).or_default();
        let (block, bytes) = (a.block(), a.event.bytes);
        let extra = if a.layer.on_device() && a.layer != Layer::Pool { over(block, self.grain) } else { 0 };
        let segment = if self.pytorch.is_segment(a) { block } else { 0 };
        d.tensors |= a.layer == Layer::Tensor;
        let tally = d.totals.layer_mut(a.layer);
        if come {
            tally.add(block, bytes);
            d.totals.rounding += extra;
            d.segments += segment;
        } else {
            tally.take(block, bytes);
            d.totals.rounding = d.totals.rounding.saturating_sub(extra);
            d.segments = d.segments.saturating_sub(segment);
        }
        a.device
    }

    fn tell(&mut self, device: u32, time: u64, line: &mut dyn Timeline) -> Result<()> {
        let Some(d) = self.devices.get(&device) else { return Ok(()) };
        let t = d.totals;
        let tensors = t.layer(Layer::Tensor).bytes;
        let segments = d.segments;
        // Without a word of its tensors it is not known what of it is in use.
        let inactive = if d.tensors { segments.saturating_sub(tensors) } else { 0 };
        let outside = t.active().saturating_sub(t.layer(Layer::Pool).bytes + segments);
        let values = [t.active(), t.reserved(), t.inactive(), segments, tensors, inactive, outside];
        for (i, value) in values.into_iter().enumerate() {
            self.set(device, i + 1, time, value, line)?;
        }
        for (i, layer) in LAYERS.into_iter().enumerate().filter(|(_, l)| *l != Layer::Tensor) {
            self.set(device, COUNTED.len() + 1 + i, time, t.layer(layer).bytes, line)?;
        }
        Ok(())
    }

    fn set(&mut self, device: u32, what: usize, time: u64, value: u64, line: &mut dyn Timeline) -> Result<()> {
        let next = self.series.len() as u64;
        let series = match self.series.entry((device, what)) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            // What never was needs no counter.
            std::collections::hash_map::Entry::Vacant(_) if value == 0 => return Ok(()),
            std::collections::hash_map::Entry::Vacant(e) => {
                let (process, pid, first) = self.process;
                // The counters of a device lie in a track of their own, in their order.
                let parent = first + (1 << 19) + u64::from(device);
                if self.groups.insert(device) {
                    let (name, rank) = (format!("GPU {device} and host memory"), device);
                    let group = Track { id: parent, parent: process, pid, name: &name, rank, kind: TrackKind::Group };
                    line.track(&group)?;
                }
                let id = first + next;
                let rank = what as u32;
                line.track(&Track { id, parent, pid, name: &name(device, what), rank, kind: TrackKind::Counter })?;
                e.insert(Series::new(id))
            }
        };
        series.set(time, value, self.stretch, line)
    }

    /// The end: tells what is held back.
    pub fn finish(&mut self, line: &mut dyn Timeline) -> Result<()> {
        let mut all: Vec<&mut Series> = self.series.values_mut().collect();
        all.sort_by_key(|s| s.track);
        all.into_iter().try_for_each(|s| s.flush(line))
    }
}

fn name(device: u32, what: usize) -> String {
    match COUNTED.get(what) {
        Some(name) => format!("GPU {device} {name}"),
        None if what == COUNTED.len() => format!("GPU {device} other processes"),
        None => format!("GPU {device} layer: {}", LAYERS[what - COUNTED.len() - 1].name()),
    }
}

/// What the driver charges above this size. Small ones share a page.
fn over(bytes: u64, grain: u64) -> u64 {
    if bytes > 1 << 20 { bytes.checked_next_multiple_of(grain).map_or(0, |pages| pages - bytes) } else { 0 }
}

impl Series {
    fn new(track: u64) -> Series {
        let none = (0, 0);
        Series { track, stretch: None, low: none, high: none, last: none, written: None, now: 0 }
    }

    fn set(&mut self, time: u64, value: u64, stretch: u64, line: &mut dyn Timeline) -> Result<()> {
        if value == self.now && self.written.is_some() {
            return Ok(());
        }
        self.now = value;
        if stretch == 0 {
            return self.write(time, value, line);
        }
        let here = time / stretch;
        if self.stretch != Some(here) {
            self.flush(line)?;
            self.stretch = Some(here);
            (self.low, self.high) = ((time, value), (time, value));
        }
        self.last = (time, value);
        self.low = if value < self.low.1 { self.last } else { self.low };
        self.high = if value > self.high.1 { self.last } else { self.high };
        // From now on it is known to have begun.
        self.written = self.written.or(Some(u64::MAX));
        Ok(())
    }

    fn flush(&mut self, line: &mut dyn Timeline) -> Result<()> {
        if self.stretch.take().is_none() {
            return Ok(());
        }
        let mut points = [self.low, self.high, self.last];
        points.sort();
        for (time, value) in points {
            self.write(time, value, line)?;
        }
        Ok(())
    }

    fn write(&mut self, time: u64, value: u64, line: &mut dyn Timeline) -> Result<()> {
        if self.written == Some(value) {
            return Ok(());
        }
        self.written = Some(value);
        line.count(self.track, time, value)
    }
}

/// The context of a sample is an event's; a step does not tell the device.
pub fn is_sample(step: &Step<'_>) -> Option<(u16, u64, u64)> {
    match step.what {
        What::Other(e) if e.kind == EventKind::Sample => Some((e.context, e.bytes, e.block)),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Args;
    use super::*;
    use vramscope_core::trace::Oom;

    /// Remembers what is counted.
    struct Points(Vec<(u64, u64)>);

    impl Timeline for Points {
        fn process(&mut self, _: u64, _: u32, _: &str, _: &[String]) -> Result<()> {
            Ok(())
        }
        fn track(&mut self, _: &Track) -> Result<()> {
            Ok(())
        }
        fn count(&mut self, _: u64, time: u64, value: u64) -> Result<()> {
            self.0.push((time, value));
            Ok(())
        }
        fn begin(&mut self, _: u64, _: u64, _: &str, _: Args) -> Result<()> {
            Ok(())
        }
        fn end(&mut self, _: u64, _: u64) -> Result<()> {
            Ok(())
        }
        fn slice(&mut self, _: u64, _: u64, _: u64, _: &str, _: Args) -> Result<()> {
            Ok(())
        }
        fn moment(&mut self, _: u64, _: u64, _: &str, _: Args) -> Result<()> {
            Ok(())
        }
    }

    /// The points told of a counter that changes so often in so long.
    pub fn changes(n: u64, ns: u64, value: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let mut points = Points(Vec::new());
        let mut counters = Counters::new(PyTorch::default(), 0, n, ns, (1, 1, 2));
        for i in 0..n {
            let oom = Oom { time: i * (ns / n), others: Some(value(i)), ..Oom::default() };
            let step = Step { time: oom.time, thread: 0, before: false, what: What::Oom(&oom) };
            counters.step(&step, 0, &mut points).unwrap();
        }
        counters.finish(&mut points).unwrap();
        points.0
    }

    #[test]
    fn few_changes_are_all_told() {
        let kept = changes(100, 1_000, |i| i % 3);
        assert_eq!(kept.len(), 99);
    }
}
