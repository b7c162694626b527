//! PyTorch's memory snapshot: what pytorch.org/memory_viz and `python -m torch.cuda._memory_viz` read.
//!
//! What the program was given becomes blocks, what that was taken from becomes segments: PyTorch's tensors in its own
//! segments, the blocks of vramscope's pool in its segments, and everything else (NCCL, cuBLAS, a program without PyTorch)
//! as a segment of one block, so that the viewer shows what PyTorch's own snapshot cannot know.
//!
//! The trace comes before the segments in the file, because they are the last state and it is not known before. When a
//! free is complete, the stream of a tensor and its size before rounding are not known; nothing is invented.

use std::io::Write;

use anyhow::Result;
use vramscope_core::event::EventKind;

use super::target::Sink;
use super::{Format, Selection, Source, Target, What};
use crate::report::tally::Layer;
use crate::report::text::{bytes, time};

mod aliases;
mod done;
pub mod encode;
pub mod holders;
pub mod space;
mod steps;
pub mod window;

pub use done::Done;
use encode::{Encoder, Json, Pickle};
use holders::Holders;
use space::{Action, Entry, Space};
use steps::play;

/// Devices that a snapshot may have.
const DEVICES: u32 = 256;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torch {
    /// As JSON.
    Json,
    /// As a pickle.
    Pickle,
}

impl Torch {
    fn encoder(self) -> Box<dyn Encoder> {
        match self {
            Torch::Json => Box::new(Json::default()),
            Torch::Pickle => Box::new(Pickle::default()),
        }
    }
}

impl Format for Torch {
    fn binary(&self) -> bool {
        *self == Torch::Pickle
    }

    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>> {
        let layer = source.selection.layer.take();
        source.resolve_all();
        let holders = Holders::find(source)?;
        let snapshot = Snapshot { source, holders: &holders, layer };
        let mut notes = Vec::new();
        let limit = window::limit(*self);
        let selection = snapshot.fit(*self, limit)?;
        if selection != source.selection {
            let (from, to) = (selection.from, selection.to.min(source.end));
            notes.push(format!(
                "the whole would be larger than the viewer can open ({}): only {} to {} was written; --from and --to choose another part",
                bytes(limit),
                time(from),
                time(to)
            ));
            source.selection = selection;
        }
        let mut sink = target.create()?;
        let mut encoder = self.encoder();
        let snapshot = Snapshot { source, holders: &holders, layer };
        let done = snapshot.write(&mut *encoder, &mut |encoder, _, _| flush(encoder, &mut sink, 1 << 16))?;
        flush(&mut *encoder, &mut sink, 0)?;
        sink.finish()?;
        notes.extend(done.notes());
        Ok(notes)
    }
}

fn flush(encoder: &mut dyn Encoder, sink: &mut Sink, from: usize) -> Result<()> {
    let buffer = encoder.buffer();
    if buffer.len() > from {
        sink.write_all(buffer)?;
        buffer.clear();
    }
    Ok(())
}

/// A history as a snapshot.
pub struct Snapshot<'s> {
    source: &'s Source,
    holders: &'s Holders,
    /// Blocks of this layer only.
    layer: Option<Layer>,
}

/// Called after each entry, with what was written so far in the encoder's buffer, and the entry's time.
type After<'a> = dyn FnMut(&mut dyn Encoder, u64, u64) -> Result<()> + 'a;

impl Snapshot<'_> {
    /// The devices that it tells of.
    fn devices(&self) -> Vec<u32> {
        match self.source.selection.device {
            Some(device) => vec![device],
            None => {
                let mut all: Vec<u32> = self.source.history.devices.keys().copied().filter(|d| *d < DEVICES).collect();
                if all.is_empty() {
                    all.push(0);
                }
                all
            }
        }
    }

    /// Writes it all.
    pub fn write(&self, to: &mut dyn Encoder, after: &mut After) -> Result<Done> {
        self.write_part(self.source.selection, to, after)
    }

    /// Writes this part of it.
    pub fn write_part(&self, selection: Selection, to: &mut dyn Encoder, after: &mut After) -> Result<Done> {
        let mut done = Done::default();
        to.dict();
        to.key("device_traces");
        to.list();
        let devices = self.devices();
        let mut spaces = Vec::new();
        for device in 0..devices.iter().max().map_or(1, |d| d + 1) {
            to.item();
            to.list();
            if devices.contains(&device) {
                let selection = Selection { device: Some(device), ..selection };
                spaces.push((device, self.trace(selection, to, &mut done, after)?));
            }
            to.end_list();
        }
        to.end_list();
        to.key("segments");
        to.list();
        for (device, space) in &spaces {
            done.replaced += space.replaced;
            self.segments(*device, space, to, after)?;
        }
        to.end_list();
        to.key("allocator_settings");
        to.dict();
        to.end_dict();
        to.key("external_annotations");
        self.annotations(selection, devices[0], to, after)?;
        // Not torch's: who wrote it, and of what. Its readers skip it.
        to.key("vramscope");
        to.dict();
        to.key("version");
        to.text(env!("CARGO_PKG_VERSION"));
        to.key("program");
        to.text(&self.source.history.header.program);
        to.key("pid");
        to.number(self.source.history.header.pid.into());
        to.end_dict();
        to.end_dict();
        to.finish();
        Ok(done)
    }

    /// The entries of a device; gives back its last state.
    fn trace(&self, selection: Selection, to: &mut dyn Encoder, done: &mut Done, after: &mut After) -> Result<Space> {
        let mut space = Space::default();
        self.source.play_part(&selection, &mut |step| {
            if let What::Oom(oom) = &step.what {
                return self.oom(oom, done, to, after);
            }
            let homeless = play(&mut space, self.holders, self.layer, step, &mut |entry| {
                if step.before {
                    return Ok(());
                }
                done.entries += 1 + u64::from(entry.action == Action::Free);
                self.entry(&entry, step.time, to);
                after(to, step.time, done.entries)
            })?;
            done.homeless += u64::from(homeless);
            Ok(())
        })?;
        Ok(space)
    }

    fn entry(&self, e: &Entry, at: u64, to: &mut dyn Encoder) {
        let actions: &[&str] = match e.action {
            Action::Alloc => &["alloc"],
            // Side by side: the viewer makes one of them.
            Action::Free => &["free_requested", "free_completed"],
            Action::SegmentAlloc => &["segment_alloc"],
            Action::SegmentFree => &["segment_free"],
            Action::SegmentMap => &["segment_map"],
            Action::SegmentUnmap => &["segment_unmap"],
        };
        for action in actions {
            self.head(action, e.bytes, e.stream, at, to);
            // The viewer takes the frames of the request, and JSON repeats them.
            if *action != "free_completed" || to.shares() {
                self.frames(e.stack, to);
            }
            to.key("addr");
            to.number(e.address);
            if e.block != e.bytes {
                // Not torch's either: its trace does not tell how a size was rounded.
                to.key("block_size");
                to.number(e.block);
            }
            to.end_dict();
        }
    }

    /// The fields that all entries have.
    fn head(&self, action: &str, size: u64, stream: u64, at: u64, to: &mut dyn Encoder) {
        to.item();
        to.dict();
        to.key("action");
        to.text(action);
        to.key("size");
        to.number(size);
        to.key("stream");
        to.number(stream);
        to.key("time_us");
        to.number(self.source.wall(at) / 1000);
        to.key("compile_context");
        to.text("N/A");
        to.key("user_metadata");
        to.text("");
    }

    fn frames(&self, stack: u32, to: &mut dyn Encoder) {
        to.key("frames");
        to.frames(stack, &|| if stack == 0 { Vec::new() } else { self.source.frames(stack) });
    }

    fn oom(
        &self,
        oom: &vramscope_core::trace::Oom,
        done: &mut Done,
        to: &mut dyn Encoder,
        after: &mut After,
    ) -> Result<()> {
        self.head("oom", oom.asked, 0, oom.time, to);
        self.frames(oom.stack, to);
        to.key("device_free");
        to.number(oom.free);
        to.end_dict();
        done.entries += 1;
        after(to, oom.time, done.entries)
    }

    /// The last state of a device.
    fn segments(&self, device: u32, space: &Space, to: &mut dyn Encoder, after: &mut After) -> Result<()> {
        let mut segments = space.segments().iter().peekable();
        while let Some((address, first)) = segments.next() {
            let mut end = address + first.bytes;
            // Pieces of expandable segments that follow one another are one to the viewer.
            while let Some((_, s)) =
                segments.next_if(|(at, s)| **at == end && first.expandable && s.expandable && s.stream == first.stream)
            {
                end += s.bytes;
            }
            let blocks = || space.blocks().range(*address..end).map(|(at, b)| (*at, b));
            let active: u64 = blocks().map(|(_, b)| b.bytes).sum();
            to.item();
            to.dict();
            to.key("device");
            to.number(device.into());
            to.key("address");
            to.number(*address);
            to.key("total_size");
            to.number(end - address);
            to.key("allocated_size");
            to.number(active);
            to.key("active_size");
            to.number(active);
            to.key("requested_size");
            to.number(blocks().map(|(_, b)| b.requested).fold(0, u64::saturating_add));
            to.key("stream");
            to.number(first.stream);
            to.key("segment_type");
            to.text(if end - address <= 2 << 20 { "small" } else { "large" });
            to.key("segment_pool_id");
            to.pair(0, 0);
            to.key("is_expandable");
            to.flag(first.expandable);
            self.frames(first.stack, to);
            to.key("blocks");
            to.list();
            let mut at = *address;
            for (start, b) in blocks() {
                self.gap(at, start, to);
                self.block(start, b.bytes, b.requested, "active_allocated", b.stack, to);
                at = start + b.bytes;
            }
            self.gap(at, end, to);
            to.end_list();
            to.end_dict();
            after(to, self.source.end, 0)?;
        }
        Ok(())
    }

    /// Blocks tile their segment: what is free is one too.
    fn gap(&self, from: u64, to_: u64, to: &mut dyn Encoder) {
        if to_ > from {
            self.block(from, to_ - from, 0, "inactive", 0, to);
        }
    }

    fn block(&self, address: u64, size: u64, requested: u64, state: &str, stack: u32, to: &mut dyn Encoder) {
        to.item();
        to.dict();
        to.key("address");
        to.number(address);
        to.key("size");
        to.number(size);
        to.key("requested_size");
        to.number(requested);
        to.key("state");
        to.text(state);
        self.frames(stack, to);
        to.end_dict();
    }

    /// Marks and regions, as torch has the phases of its profiler.
    fn annotations(&self, selection: Selection, device: u32, to: &mut dyn Encoder, after: &mut After) -> Result<()> {
        to.list();
        let mut names = std::collections::HashMap::new();
        self.source.play_part(&selection, &mut |step| {
            let What::Other(e) = &step.what else { return Ok(()) };
            let (text, stage, at) = match e.kind {
                EventKind::Mark => (e.extra[0] as u32, "MARK", e.time),
                EventKind::RegionBegin => {
                    names.insert(e.id, e.extra[0] as u32);
                    (e.extra[0] as u32, "START", e.time.saturating_sub(e.extra[1]))
                }
                EventKind::RegionEnd => match names.remove(&e.id) {
                    Some(text) => (text, "END", e.time),
                    None => return Ok(()),
                },
                _ => return Ok(()),
            };
            to.item();
            to.dict();
            to.key("stage");
            to.text(stage);
            to.key("name");
            to.text(self.source.texts.get(&text).map_or("", String::as_str));
            to.key("device");
            to.number(device.into());
            to.key("time_us");
            to.number(self.source.wall(at) / 1000);
            to.end_dict();
            after(to, step.time, 0)
        })?;
        to.end_list();
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
