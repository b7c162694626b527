//! The part of a history that the viewer can open. Its page reads a file into one text, and a browser's text ends at
//! 512 MiB; a larger pickle makes it run out of memory.

use anyhow::Result;

use super::{Snapshot, Torch};
use crate::export::Selection;

/// Bytes that a file may have.
pub fn limit(format: Torch) -> u64 {
    match format {
        Torch::Json => 480 << 20,
        Torch::Pickle => 768 << 20,
    }
}

/// Bytes of the trace between two looks at the clock.
const STEP: u64 = 1 << 20;

impl Snapshot<'_> {
    /// What is asked for, or as much of its end as fits; where only a beginning was asked for, as much from there on.
    pub fn fit(&self, format: Torch, limit: u64) -> Result<Selection> {
        let asked = self.source.selection;
        // An entry takes 100 bytes and its frames, a free two entries.
        let most = if format == Torch::Json { 20_000 } else { 400 };
        if self.source.history.events.saturating_mul(most) < limit {
            return Ok(asked);
        }
        let (mut written, mut marks) = (0, vec![(asked.from, 0)]);
        let mut encoder = format.encoder();
        let mut last = 0;
        self.write_part(asked, &mut *encoder, &mut |encoder, time, entries| {
            written += encoder.buffer().len() as u64;
            encoder.buffer().clear();
            if entries > 0 && written - last >= STEP {
                last = written;
                marks.push((time, written));
            }
            Ok(())
        })?;
        written += encoder.buffer().len() as u64;
        if written <= limit || asked.moment {
            return Ok(asked);
        }
        // What follows the trace stays.
        let rest = written - last;
        let room = limit.saturating_sub(rest + STEP);
        let only_from = asked.from > 0 && asked.to == u64::MAX;
        Ok(if only_from {
            let to = marks.iter().rev().find(|(_, at)| *at <= room).map_or(asked.from, |(time, _)| *time);
            Selection { to, ..asked }
        } else {
            let from = marks.iter().find(|(_, at)| last - at <= room).map_or(asked.to, |(time, _)| *time);
            Selection { from, ..asked }
        })
    }
}
