//! RMM's log, as its `logging_resource_adaptor` writes it and its replay benchmark reads it.
//!
//! A line an allocation or free: thread, time of day, action, pointer, size, stream. There is no place for the device, the
//! kind of memory or a stack.

use std::io::Write;

use anyhow::Result;
use vramscope_core::event::EventKind;

use super::{Format, Source, Target, What};
use crate::report::tally::Layer;

/// See the module.
pub struct Rmm;

impl Format for Rmm {
    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>> {
        let mut out = target.create()?;
        writeln!(out, "Thread,Time,Action,Pointer,Size,Stream")?;
        let layer = source.selection.layer;
        // What lies in other memory is in the log only if asked for: a byte is logged once.
        let logged = |l: Layer| layer.is_some() || l.on_device();
        let source = &*source;
        source.play(&mut |step| {
            let (action, event, stream) = match step.what {
                What::Alloc(a) if logged(a.layer) => ("allocate", &a.event, a.event.extra[1]),
                What::Free(a, by) if logged(a.layer) => ("free", &a.event, by.extra[1]),
                What::Other(e) if e.kind == EventKind::AllocFailed => ("allocate failure", e, e.extra[1]),
                _ => return Ok(()),
            };
            let tid = source.threads.get(&step.thread).map_or(step.thread, |t| t.tid);
            let time = time_of_day(source.wall(step.time));
            // As the C++ library prints them: no pointer is `(nil)`, the default stream 0 without a prefix.
            let pointer = if event.address == 0 { "(nil)".to_string() } else { format!("{:#x}", event.address) };
            let stream = if stream == 0 { "0".to_string() } else { format!("{stream:#x}") };
            writeln!(out, "{tid},{time},{action},{pointer},{},{stream}", event.bytes)?;
            Ok(())
        })?;
        out.finish()?;
        Ok(Vec::new())
    }
}

/// `13:04:05.000123`, UTC.
fn time_of_day(wall: u64) -> String {
    let (seconds, us) = (wall / 1_000_000_000 % 86_400, wall / 1_000 % 1_000_000);
    format!("{:02}:{:02}:{:02}.{us:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
