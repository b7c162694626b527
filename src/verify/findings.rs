//! What was found: each kind of violation once, with its first place and how often.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A line of a history: the number of its part, and of the line in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// Index into the parts that were read.
    pub part: usize,
    /// Line, from 1.
    pub line: u64,
}

macro_rules! kinds {
    ($($kind:ident = $name:literal, $lossy:literal, $rule:literal;)*) => {
        /// A rule that a history must keep.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "rule() says it")]
        pub enum Kind { $($kind,)* }
        impl Kind {
            /// All of them.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];
            /// Its name in `--json`.
            pub fn name(self) -> &'static str { match self { $(Kind::$kind => $name,)* } }
            /// What was broken, in words.
            pub fn rule(self) -> &'static str { match self { $(Kind::$kind => $rule,)* } }
            /// Whether events that were lost, and counted, may be the reason.
            pub fn may_be_loss(self) -> bool { match self { $(Kind::$kind => $lossy,)* } }
        }
    };
}

kinds! {
    Damaged = "damaged", false, "lines that cannot be read, or a part that is missing";
    Unfinished = "unfinished", false, "neither a footer nor an exit event: `vramscope recover` adds what the spool still holds";
    Incomplete = "incomplete", false, "it does not hold all that its program did";
    AfterFooter = "after_footer", false, "lines after the footer";
    FooterEvents = "footer_events", false, "the footer counts other events than the history has";
    FooterTime = "footer_time", false, "the footer's time is not that of the last event";
    FooterEnd = "footer_end", false, "the footer's end and the exit event do not agree";
    Undefined = "undefined", false, "a number is used before the line that says what it means";
    DefinedTwice = "defined_twice", false, "a number is defined twice";
    Sequence = "sequence", false, "a thread's count of events goes back";
    LossUncounted = "loss_uncounted", false, "threads lost more events than the footer counts as lost";
    TimeBack = "time_back", false, "the time goes back within a thread";
    NoId = "no_id", false, "an allocation without a number";
    IdTwice = "id_twice", false, "a number was given out twice";
    FreeUnknown = "free_unknown", true, "a free of something that was never allocated";
    FreeTwice = "free_twice", true, "a free of something that was freed before";
    FreeEarly = "free_early", true, "a free stands before its allocation";
    FreeFailedAlone = "free_failed_alone", true, "a failed free without its free before it in the thread";
    UseUnknown = "use_unknown", true, "an export or a mapping of something that is not live";
    Overlap = "overlap", true, "two live allocations share memory";
    OutsideSegment = "outside_segment", true, "a block of the pool lies in no live segment";
    SegmentInUse = "segment_in_use", true, "a segment was given back while a block of it was in use";
    TensorOutside = "tensor_outside", true, "a tensor lies in no live memory of the driver";
    TensorLeft = "tensor_left", true, "memory was given back while a tensor lay in it";
    PoolSum = "pool_sum", true, "the pool's own sums differ from those of its blocks and segments";
    PoolPeak = "pool_peak", true, "the pool's own peaks differ from those of its blocks and segments";
    Charged = "charged", true, "more was taken from the device than it says is used";
    Region = "region", true, "a region ends that is not open, or in another thread";
}

/// A kind of violation in a history.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub kind: Kind,
    /// How often it was broken.
    pub count: u64,
    /// Where first,
    pub at: At,
    /// and what was there.
    pub what: String,
}

/// All that was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// By kind.
    pub found: BTreeMap<Kind, Finding>,
    /// Files that were read, in their order.
    parts: Vec<Arc<Path>>,
}

impl Findings {
    /// One more violation. What is said of it is asked for the first only.
    pub fn add(&mut self, kind: Kind, at: At, what: impl FnOnce() -> String) {
        self.add_many(kind, 1, at, what);
    }

    /// The same for several at once.
    pub fn add_many(&mut self, kind: Kind, count: u64, at: At, what: impl FnOnce() -> String) {
        match self.found.get_mut(&kind) {
            Some(found) => found.count += count,
            None => drop(self.found.insert(kind, Finding { kind, count, at, what: what() })),
        }
    }

    /// The number of a file: a new one for each part.
    pub fn part(&mut self, path: &Arc<Path>) -> usize {
        if self.parts.last() != Some(path) {
            self.parts.push(path.clone());
        }
        self.parts.len() - 1
    }

    /// The file of a place.
    pub fn path(&self, at: At) -> PathBuf {
        self.parts.get(at.part).map_or_else(PathBuf::new, |path| path.to_path_buf())
    }
}
