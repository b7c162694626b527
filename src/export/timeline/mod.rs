//! A history as a timeline: counters by layer, the largest allocations as slices, regions, marks and failures; several
//! histories, such as the ranks of a job, are processes of one timeline. [`story`] tells it, [`perfetto`] and [`chrome`]
//! write it down.

use std::io::Write;

use anyhow::Result;

use super::{Format, Source, Target};

pub mod args;
pub mod chrome;
pub mod counters;
pub mod lanes;
pub mod largest;
pub mod perfetto;
mod perfetto_proto;
pub mod story;

/// The words of an allocation, region or failure.
pub type Args<'a> = &'a [(&'static str, Value<'a>)];

/// The value of a word.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// An address.
    Address(u64),
    /// A text.
    Text(&'a str),
    /// Several, such as the frames of a stack.
    List(&'a [String]),
}

/// A track of a timeline.
#[derive(Clone, Debug)]
pub struct Track<'a> {
    /// Its number; of all tracks of a timeline, no other has it.
    pub id: u64,
    /// The track that it lies in.
    pub parent: u64,
    /// Its process's number.
    pub pid: u32,
    /// Name.
    pub name: &'a str,
    /// Place among its siblings.
    pub rank: u32,
    /// What is on it.
    pub kind: TrackKind,
}

/// See [`Track`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackKind {
    /// Bytes.
    Counter,
    /// A thread of the program, by the kernel's number.
    Thread(u32),
    /// Nothing but other tracks.
    Group,
    /// Slices that do not overlap, or moments.
    Lane,
}

/// What a timeline is written by. Times are nanoseconds since the first history's start.
pub trait Timeline {
    /// A process, which is a track as well.
    fn process(&mut self, track: u64, pid: u32, name: &str, command: &[String]) -> Result<()>;
    /// A track.
    fn track(&mut self, track: &Track) -> Result<()>;
    /// A counter's value from this time on.
    fn count(&mut self, track: u64, time: u64, value: u64) -> Result<()>;
    /// Something begins on a track, inside what has begun.
    fn begin(&mut self, track: u64, time: u64, name: &str, args: Args) -> Result<()>;
    /// The innermost of it ends.
    fn end(&mut self, track: u64, time: u64) -> Result<()>;
    /// Something that begins and ends.
    fn slice(&mut self, track: u64, from: u64, to: u64, name: &str, args: Args) -> Result<()>;
    /// A moment.
    fn moment(&mut self, track: u64, time: u64, name: &str, args: Args) -> Result<()>;
}

/// Perfetto's own format (protobuf).
pub struct Perfetto;

impl Format for Perfetto {
    fn binary(&self) -> bool {
        true
    }

    fn several(&self) -> bool {
        true
    }

    fn flags(&self) -> &'static [&'static str] {
        &["limit"]
    }

    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>> {
        self.write_all(std::slice::from_mut(source), target)
    }

    fn write_all(&self, sources: &mut [Source], target: &Target) -> Result<Vec<String>> {
        let mut writer = perfetto::Writer::new(target.create()?, story::start(sources))?;
        let notes = story::tell(sources, &mut writer)?;
        writer.out.finish()?;
        Ok(notes)
    }
}

/// Chrome's trace events (JSON).
pub struct Chrome;

impl Format for Chrome {
    fn several(&self) -> bool {
        true
    }

    fn flags(&self) -> &'static [&'static str] {
        &["limit"]
    }

    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>> {
        self.write_all(std::slice::from_mut(source), target)
    }

    fn write_all(&self, sources: &mut [Source], target: &Target) -> Result<Vec<String>> {
        let mut writer = chrome::Writer::new(target.create()?)?;
        let notes = story::tell(sources, &mut writer)?;
        let mut out = writer.finish()?;
        out.flush()?;
        out.finish()?;
        Ok(notes)
    }
}

#[cfg(test)]
mod tests;
