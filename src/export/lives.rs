//! Allocations as lives: when each came, when and how it went, and what was going on when it came.

use std::collections::HashMap;

use vramscope_core::event::{EventKind, FreeHow};
use vramscope_core::spread::Spread;

use super::play::{Allocation, Segment, Step, What};
use super::regions::Around;

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When.
    pub time: u64,
    /// Number of the thread that freed.
    pub thread: u32,
    /// Number of the call stack of the free; 0: none.
    pub stack: u32,
    /// `driver`, `cached`, … of a free (docs/trace-format.md), `context_end`, or `export`.
    pub how: &'static str,
}

/// An allocation from its beginning to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Life {
    /// The allocation.
    pub allocation: Allocation,
    /// Its end; none: live to the end of what was read.
    pub ended: Option<Ended>,
    /// What was going on when it began.
    pub around: Around,
}

/// Pairs beginnings and ends.
#[derive(Debug, Default)]
pub struct Lives {
    live: HashMap<u64, (Allocation, Around), Spread>,
    /// The last free of each thread, which may turn out to have failed.
    freed: HashMap<u32, Life>,
}

impl Lives {
    /// Takes a step; hands out lives that have ended.
    pub fn step(
        &mut self,
        step: &Step<'_>,
        around: Around,
        out: &mut impl FnMut(&Life) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match step.what {
            What::Alloc(a) => {
                let back = self.freed.remove(&step.thread);
                match back {
                    // Its free failed.
                    Some(life) if life.allocation == *a => {
                        self.live.insert(a.event.id, (life.allocation, life.around));
                        return Ok(());
                    }
                    Some(life) => out(&life)?,
                    None => {}
                }
                self.live.insert(a.event.id, (a.clone(), around));
            }
            What::Free(a, by) => {
                let (allocation, around) =
                    self.live.remove(&a.event.id).unwrap_or_else(|| (a.clone(), Around::default()));
                let ended = Ended { time: step.time, thread: step.thread, stack: by.stack, how: how(by.kind, by.how) };
                let life = Life { allocation, ended: Some(ended), around };
                if by.kind != EventKind::Free {
                    return out(&life);
                }
                if let Some(before) = self.freed.insert(step.thread, life) {
                    out(&before)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The end: hands out the rest, those that live on by their ids.
    pub fn finish(&mut self, out: &mut impl FnMut(&Life) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut freed: Vec<Life> = self.freed.drain().map(|(_, life)| life).collect();
        freed.sort_by_key(|l| l.ended.map(|e| e.time));
        let mut live: Vec<(Allocation, Around)> = self.live.drain().map(|(_, life)| life).collect();
        live.sort_by_key(|(a, _)| a.event.id);
        freed.extend(live.into_iter().map(|(allocation, around)| Life { allocation, ended: None, around }));
        freed.iter().try_for_each(out)
    }
}

/// In one word, how something ended.
pub fn how(kind: EventKind, how: u8) -> &'static str {
    match kind {
        EventKind::Free => FreeHow::from_number(how).map_or("driver", FreeHow::name),
        kind => kind.name(),
    }
}

/// What the pool held from the driver, from its beginning to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentLife {
    /// The segment.
    pub segment: Segment,
    /// When it went, and how; none: never.
    pub ended: Option<(u64, &'static str)>,
}

/// The same for segments.
#[derive(Debug, Default)]
pub struct SegmentLives {
    live: HashMap<u64, Segment, Spread>,
}

impl SegmentLives {
    /// Takes a step; gives the life that it ends.
    pub fn step(&mut self, step: &Step<'_>) -> Option<SegmentLife> {
        match step.what {
            What::SegmentAlloc(s) => drop(self.live.insert(s.event.id, s.clone())),
            What::SegmentFree(s, by) => {
                let segment = self.live.remove(&s.event.id).unwrap_or_else(|| s.clone());
                return Some(SegmentLife { segment, ended: Some((step.time, by.kind.name())) });
            }
            _ => {}
        }
        None
    }

    /// Those that are still there, by their ids.
    pub fn rest(&mut self) -> Vec<SegmentLife> {
        let mut live: Vec<Segment> = self.live.drain().map(|(_, s)| s).collect();
        live.sort_by_key(|s| s.event.id);
        live.into_iter().map(|segment| SegmentLife { segment, ended: None }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::regions::Regions;
    use crate::export::training::{opened, training};
    use crate::report::tally::Layer;

    #[test]
    fn every_allocation_lives_once() {
        let (_folder, source) = opened(&training());
        let (mut lives, mut segments, mut regions) = (Lives::default(), SegmentLives::default(), Regions::default());
        let mut all: Vec<Life> = Vec::new();
        source
            .play(&mut |step| {
                regions.step(step);
                assert!(segments.step(step).is_none());
                lives.step(step, regions.around(step.thread), &mut |life| {
                    all.push(life.clone());
                    Ok(())
                })
            })
            .unwrap();
        lives
            .finish(&mut |life| {
                all.push(life.clone());
                Ok(())
            })
            .unwrap();
        let mut ids: Vec<u64> = all.iter().map(|l| l.allocation.event.id).collect();
        assert_eq!(ids.len(), 10);
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 10);
        assert_eq!(all.iter().filter(|l| l.ended.is_none()).count(), 3);
        assert_eq!(segments.rest().len(), 2);
        // A free that failed ended nothing: the free that did is the last of the step.
        let small = all.iter().find(|l| l.allocation.event.bytes == 10 << 20).unwrap();
        assert_eq!(regions.path(small.around.path, &source.texts), "step/forward");
        assert_eq!(small.around.marks, 1);
        let large = all.iter().find(|l| l.allocation.event.bytes == 30 << 20).unwrap();
        assert!(small.ended.unwrap().time > large.ended.unwrap().time);
        let block = all.iter().find(|l| l.allocation.layer == Layer::Pool).unwrap();
        assert_eq!(block.ended.unwrap().how, "cached_device");
        let outside = all.iter().find(|l| l.allocation.event.bytes == 32 << 20).unwrap();
        assert_eq!((outside.around.path, outside.around.marks), (0, 0));
    }
}
