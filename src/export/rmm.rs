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
        let mut lines = 0u64;
        source.play(&mut |step| {
            let (action, event, stream) = match step.what {
                What::Alloc(a) if logged(a.layer) => ("allocate", &a.event, a.event.extra[1]),
                What::Free(a, by) if logged(a.layer) => ("free", &a.event, by.extra[1]),
                What::Other(e) if e.kind == EventKind::AllocFailed => ("allocate failure", e, e.extra[1]),
                _ => return Ok(()),
            };
            lines += 1;
            let tid = source.threads.get(&step.thread).map_or(step.thread, |t| t.tid);
            let time = time_of_day(source.wall(step.time));
            // As the C++ library prints them: no pointer is `(nil)`, the default stream 0 without a prefix.
            let pointer = if event.address == 0 { "(nil)".to_string() } else { format!("{:#x}", event.address) };
            let stream = if stream == 0 { "0".to_string() } else { format!("{stream:#x}") };
            writeln!(out, "{tid},{time},{action},{pointer},{},{stream}", event.bytes)?;
            Ok(())
        })?;
        out.finish()?;
        let nothing = || vec!["nothing of what was asked for is in this history: the log has no line".to_string()];
        Ok(if lines == 0 { nothing() } else { Vec::new() })
    }
}

/// `13:04:05.000123`, UTC.
fn time_of_day(wall: u64) -> String {
    let (seconds, us) = (wall / 1_000_000_000 % 86_400, wall / 1_000 % 1_000_000);
    format!("{:02}:{:02}:{:02}.{us:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::exported;
    use crate::report::testing::{MIB, Script, sample};
    use std::collections::HashMap;
    use vramscope_core::event::{FreeHow, Memory};

    #[test]
    fn what_rmms_replay_reads() {
        let (text, _) = exported(&sample(), &Rmm, |_| {});
        let mut lines = text.lines();
        assert_eq!(lines.next().unwrap(), "Thread,Time,Action,Pointer,Size,Stream");
        for line in lines {
            let f: Vec<&str> = line.split(',').collect();
            // std::stoull of the thread, the size and the stream; of the pointer in base 16, or `(nil)`.
            assert!(f.len() == 6 && f[0].parse::<u64>().is_ok() && f[4].parse::<u64>().is_ok(), "{line}");
            assert!(["allocate", "free", "allocate failure"].contains(&f[2]), "{line}");
            assert!(f[3] == "(nil)" || f[3].starts_with("0x"), "{line}");
            assert!(f[5].starts_with('0'), "{line}");
        }
    }

    #[test]
    fn every_free_has_its_allocation() {
        let mut s = Script::new();
        let a = s.direct(Memory::Device, MIB, 0, 1);
        s.direct(Memory::Pinned, MIB, 0, 1);
        let middle = s.time;
        s.free(a, FreeHow::Driver);
        for (i, line) in s.lines.iter_mut().enumerate() {
            if let vramscope_core::trace::Line::Event(_, e) = line {
                e.address = i as u64 * MIB;
            }
        }
        for from in [0, middle] {
            let (text, _) = exported(&s, &Rmm, |source| source.selection.from = from);
            let mut live = HashMap::new();
            for line in text.lines().skip(1) {
                let f: Vec<&str> = line.split(',').collect();
                match f[2] {
                    "allocate" => assert!(live.insert(f[3].to_string(), f[4].to_string()).is_none()),
                    _ => assert_eq!(live.remove(f[3]).as_deref(), Some(f[4])),
                }
            }
            assert!(live.is_empty() && text.lines().count() == 3, "{text}");
        }
        assert_eq!(time_of_day((((13 * 60 + 4) * 60 + 5) * 1_000_000 + 123) * 1000), "13:04:05.000123");
    }
}
