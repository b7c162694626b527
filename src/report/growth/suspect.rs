//! What grows: of which kind it looks, in which shape, and its parts.

use serde::Serialize;

use super::shape::Shape;

/// How large gradients may be beside what stays with them, if they are the `.grad` of that.
pub const LEAVES: f64 = 1.02;

/// Which mistake it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Gradients that hang on those of the steps before.
    GradientsAccumulating,
    /// Graphs that nothing frees.
    GraphRetained,
    /// Something for each new key.
    CacheGrowing,
    /// A list, a dictionary, an attribute.
    ReferencesKept,
    /// There at the end.
    NeverFreed,
}

impl Kind {
    /// As a report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::GradientsAccumulating => "gradients accumulating",
            Kind::GraphRetained => "graph retained",
            Kind::CacheGrowing => "cache growing",
            Kind::ReferencesKept => "references kept",
            Kind::NeverFreed => "never freed at exit",
        }
    }
}

/// A part of a suspect: what one site keeps.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Number of the site.
    pub site: u32,
    /// Bytes a step, or a round of a burst.
    pub bytes: f64,
    /// Allocations a step.
    pub count: f64,
    /// By how much it grew in all: count and bytes.
    pub live: (u64, u64),
    /// Whether that is what it grew by; if not, it is the most that it had at once.
    pub exact: bool,
    /// When the growth was first seen.
    pub since: u64,
}

/// What grows.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// Of which kind it looks.
    pub kind: Kind,
    /// How it grows.
    pub shape: Shape,
    /// Its sites, the largest first.
    pub parts: Vec<Part>,
    /// Bursts, and rounds in each.
    pub bursts: (u64, u64),
    /// Bytes a step that were made in the backward pass.
    pub backward: f64,
    /// It is PyTorch's memory.
    pub tensors: bool,
}

impl Suspect {
    /// A suspect of these parts.
    pub fn of(kind: Kind, shape: Shape, mut parts: Vec<Part>, backward: f64, tensors: bool) -> Suspect {
        parts.sort_by(|a, b| b.bytes.total_cmp(&a.bytes).then(b.live.1.cmp(&a.live.1)));
        Suspect { kind, shape, parts, bursts: (0, 0), backward, tensors }
    }

    /// Whether more of it was made in the backward pass than could be the `.grad` of the rest.
    pub fn is_gradients(&self) -> bool {
        self.backward > (self.bytes() - self.backward) * LEAVES
    }

    /// Bytes a step.
    pub fn bytes(&self) -> f64 {
        self.parts.iter().map(|p| p.bytes).sum()
    }

    /// Whether [`Suspect::live`] is what it grew by, and not the most that it had.
    pub fn exact(&self) -> bool {
        self.parts.iter().all(|p| p.exact)
    }

    /// Allocations and bytes that it grew by, or had at most.
    pub fn live(&self) -> (u64, u64) {
        self.parts.iter().fold((0, 0), |sum, p| (sum.0 + p.live.0, sum.1 + p.live.1))
    }
}
