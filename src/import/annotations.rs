//! What a program, or PyTorch's profiler, said of its phases: regions and marks of the history.

use std::collections::HashMap;

use anyhow::Result;
use vramscope_core::event::{Event, EventKind};

use super::lines::Lines;

/// Something that was said at one moment.
pub fn mark(said: &str, thread: u32, time: u64, to: &mut Lines) -> Result<()> {
    let text = to.text(said)?;
    to.event(thread, Event { kind: EventKind::Mark, time, extra: [text.into(), 0, 0], ..Event::default() })
}

/// What the program or its profiler said, on its way into the history.
pub struct Annotations<'s> {
    /// The last comes first.
    left: Vec<(u32, u64, &'s str, &'s str)>,
    start: u64,
    open: HashMap<(u32, &'s str), Vec<u64>>,
}

impl<'s> Annotations<'s> {
    /// Annotations as a snapshot has them, of a history that began at this time in microseconds.
    pub fn new(mut all: Vec<(u32, u64, &'s str, &'s str)>, start: u64) -> Annotations<'s> {
        all.sort_by_key(|a| a.1);
        all.reverse();
        Annotations { left: all, start, open: HashMap::new() }
    }

    /// Writes those up to this time.
    pub fn until(&mut self, until: u64, to: &mut Lines) -> Result<()> {
        while let Some((device, us, stage, name)) = self.left.last().copied() {
            let time = us.saturating_sub(self.start).saturating_mul(1000).min(1 << 52);
            if time > until {
                break;
            }
            self.left.pop();
            let open = self.open.entry((device, name)).or_default();
            let thread = device + 1;
            match stage {
                "START" => {
                    let (kind, id) = (EventKind::RegionBegin, to.id());
                    open.push(id);
                    let text = to.text(name)?.into();
                    to.event(thread, Event { kind, time, id, extra: [text, 0, 1], ..Event::default() })?;
                }
                "END" => {
                    if let Some(id) = open.pop() {
                        let kind = EventKind::RegionEnd;
                        to.event(thread, Event { kind, time, id, ..Event::default() })?;
                    }
                }
                _ if !name.is_empty() => mark(name, thread, time, to)?,
                _ => {}
            }
        }
        Ok(())
    }
}
