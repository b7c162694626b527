//! A history in the formats of other tools, one file a format.
//!
//! The seam: a [`Format`] is given a [`Source`] and a [`Target`]. [`Source::play`] streams what is asked for (a window of
//! time, a device, a layer) as [`Step`]s, so that no format pairs frees with allocations, sorts threads or knows what a
//! window is. [`Source::frames`] names a stack. To add a format: a file here, a line in [`Kind`] and in [`Kind::format`].

use anyhow::Result;

pub mod flamegraph;
pub mod folded;
pub mod heaptrack;
pub mod labels;
pub mod lives;
pub mod owners;
pub mod play;
pub mod pprof;
pub mod regions;
pub mod rmm;
pub mod select;
pub mod source;
pub mod tables;
pub mod target;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod timeline;
pub mod torch;
#[cfg(test)]
pub(crate) mod training;

pub use play::{Allocation, Segment, Step, What};
pub use select::Selection;
pub use source::{Frame, Source};
pub use target::Target;

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// PyTorch's memory snapshot as JSON, for pytorch.org/memory_viz
    TorchJson,
    /// PyTorch's memory snapshot as a pickle, for pytorch.org/memory_viz and torch.cuda._memory_viz
    TorchPickle,
    /// heaptrack's data, for heaptrack_gui and heaptrack_print
    Heaptrack,
    /// RMM's log, for its replay benchmark
    Rmm,
    /// Perfetto: counters, allocations as slices, regions
    Perfetto,
    /// The same as Chrome's trace events (JSON)
    Chrome,
    /// A line a stack, for flame graph tools and speedscope
    Folded,
    /// A flame graph (SVG)
    Flamegraph,
    /// A profile for pprof
    Pprof,
    /// Tables in Parquet, for DuckDB, Polars, Spark
    Parquet,
    /// The same tables as CSV
    Csv,
}

impl Kind {
    /// What writes it.
    pub fn format(self) -> Box<dyn Format> {
        match self {
            Kind::TorchJson => Box::new(torch::Torch::Json),
            Kind::TorchPickle => Box::new(torch::Torch::Pickle),
            Kind::Heaptrack => Box::new(heaptrack::Heaptrack),
            Kind::Rmm => Box::new(rmm::Rmm),
            Kind::Perfetto => Box::new(timeline::Perfetto),
            Kind::Chrome => Box::new(timeline::Chrome),
            Kind::Folded => Box::new(folded::Folded),
            Kind::Flamegraph => Box::new(flamegraph::Flamegraph),
            Kind::Pprof => Box::new(pprof::Pprof),
            Kind::Parquet => Box::new(tables::Tables(tables::File::Parquet)),
            Kind::Csv => Box::new(tables::Tables(tables::File::Csv)),
        }
    }
}

/// Writes a history in one format.
pub trait Format {
    /// Whether a terminal cannot show it.
    fn binary(&self) -> bool {
        false
    }

    /// Whether it is a folder of files: it then makes [`Target::path`] itself, which is never stdout.
    fn folder(&self) -> bool {
        false
    }

    /// Writes it. What it gives back is said on stderr, a line each: what was left out, and what to do about it.
    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>>;

    /// The flags of its own that it looks at: `allocated`, `limit`, `run`.
    fn flags(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it takes several histories at once, for [`Format::write_all`].
    fn several(&self) -> bool {
        false
    }

    /// Writes several histories as one.
    fn write_all(&self, sources: &mut [Source], target: &Target) -> Result<Vec<String>> {
        sources.iter_mut().try_fold(Vec::new(), |mut notes, source| {
            notes.extend(self.write(source, target)?);
            Ok(notes)
        })
    }
}
