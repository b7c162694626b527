//! Who holds device memory, by call stack, so that the bytes add up to what is active: PyTorch's tensors stand in place of
//! the segments they are cut from, and what is left of those is one sum of its own.

use std::collections::{BTreeSet, HashMap, HashSet};

use anyhow::Result;
use vramscope_core::api::Api;

use super::play::{Allocation, What};
use super::{Selection, Source};
use crate::report::tally::{Layer, Tally};
use crate::report::text;

/// Allocations of one stack.
#[derive(Clone, Debug)]
pub struct Held {
    /// Number of the stack, 0: none.
    pub stack: u32,
    /// Number of the module that called, 0: unknown.
    pub caller: u32,
    /// The entry point.
    pub api: Api,
    /// The layer they are in.
    pub layer: Layer,
    /// Live at the moment.
    pub live: Tally,
    /// Allocated in the window.
    pub ever: Tally,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// What was live when most was active.
    Peak(u64),
    /// What was live at this moment.
    At(u64),
    /// What was allocated in the window.
    Allocated,
}

impl Asked {
    /// By the flags: a moment (`--at`), a window (`--from`, `--to`) or everything (`--allocated`); else the peak.
    pub fn of(source: &Source) -> Result<Asked> {
        let s = &source.selection;
        Ok(match () {
            () if s.moment => Asked::At(s.to),
            () if source.options.allocated || s.from > 0 || s.to < u64::MAX => Asked::Allocated,
            () => Asked::Peak(source.peak()?),
        })
    }

    /// The tally that it asks for.
    pub fn of_held(self, held: &Held) -> Tally {
        if self == Asked::Allocated { held.ever } else { held.live }
    }

    /// As a title says it: `active at the peak, 12.3 s`.
    pub fn name(self) -> String {
        match self {
            Asked::Peak(t) => format!("active at the peak, {}", text::time(t)),
            Asked::At(t) => format!("active at {}", text::time(t)),
            Asked::Allocated => "allocated in all".to_string(),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Owners {
    /// By stack, the largest first.
    pub held: Vec<Held>,
    /// Bytes that PyTorch keeps for reuse.
    pub pytorch_inactive: u64,
}

/// Tells the driver's allocations that PyTorch cuts tensors from.
#[derive(Debug, Default)]
pub struct PyTorch {
    callers: HashSet<u32>,
}

impl PyTorch {
    /// For a history.
    pub fn of(source: &Source) -> PyTorch {
        let ours = |m: &u32| source.history.module_name(*m).starts_with("libc10_cuda");
        PyTorch { callers: source.history.modules.keys().copied().filter(ours).collect() }
    }

    /// Whether an allocation is such a segment, if there are tensors at all. Stream-ordered memory is a tensor itself.
    pub fn is_segment(&self, a: &Allocation) -> bool {
        matches!(a.layer, Layer::Direct | Layer::Vmm) && self.callers.contains(&a.event.caller)
    }
}

impl Owners {
    /// What was allocated, and what of it was live at the moment that is asked for.
    pub fn of(source: &mut Source, asked: Asked) -> Result<Owners> {
        if source.selection.moment {
            source.selection = Selection { from: 0, to: u64::MAX, moment: false, ..source.selection };
        }
        let (Asked::Peak(at) | Asked::At(at)) = asked else { return Owners::until(source, u64::MAX) };
        Owners::until(source, at)
    }

    fn until(source: &Source, at: u64) -> Result<Owners> {
        let pytorch = PyTorch::of(source);
        let mut known: HashMap<(u32, u32, u8, bool), usize> = HashMap::new();
        let mut all: Vec<(Held, bool)> = Vec::new();
        let mut then: Option<Vec<Tally>> = None;
        source.play(&mut |step| {
            let (a, come) = match step.what {
                What::Alloc(a) => (a, true),
                What::Free(a, _) => (a, false),
                _ => return Ok(()),
            };
            if step.time > at && then.is_none() {
                then = Some(all.iter().map(|(h, _)| h.live).collect());
            }
            let (e, segment) = (&a.event, pytorch.is_segment(a));
            let number = *known.entry((e.stack, e.caller, a.layer as u8, segment)).or_insert_with(|| {
                let (live, ever) = (Tally::default(), Tally::default());
                all.push((Held { stack: e.stack, caller: e.caller, api: e.api, layer: a.layer, live, ever }, segment));
                all.len() - 1
            });
            let held = &mut all[number].0;
            if come {
                held.live.add(a.block(), e.bytes);
            } else {
                held.live.take(a.block(), e.bytes);
            }
            // One that comes back after a failed free is not new.
            if come && !step.before && e.time == step.time {
                held.ever.add(a.block(), e.bytes);
            }
            Ok(())
        })?;
        if let Some(mut then) = then {
            then.resize(all.len(), Tally::default());
            all.iter_mut().zip(then).for_each(|((h, _), live)| h.live = live);
        }
        Ok(Owners::sorted(all, source.selection.layer))
    }

    fn sorted(all: Vec<(Held, bool)>, layer: Option<Layer>) -> Owners {
        let tensors = all.iter().any(|(h, _)| h.layer == Layer::Tensor);
        let (mut held, mut segments, mut inside) = (Vec::new(), 0, 0);
        for (h, segment) in all {
            // A layer that was asked for is shown as it is.
            if layer.is_none() && tensors && segment {
                segments += h.live.bytes;
                continue;
            }
            inside += if h.layer == Layer::Tensor { h.live.bytes } else { 0 };
            if layer.is_some() || h.layer.on_device() || h.layer == Layer::Tensor {
                held.push(h);
            }
        }
        held.sort_by_key(|h| (std::cmp::Reverse(h.live.bytes), h.stack));
        Owners { held, pytorch_inactive: u64::saturating_sub(segments, inside) }
    }

    /// The stacks, to look up their names.
    pub fn stacks(&self) -> BTreeSet<u32> {
        self.held.iter().map(|h| h.stack).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::training::{PEAK, TENSORS, opened, training};
    use crate::report::testing::MIB;

    #[test]
    fn what_is_held_adds_up_to_what_is_active() {
        let (_folder, mut source) = opened(&training());
        let asked = Asked::of(&source).unwrap();
        assert!(matches!(asked, Asked::Peak(_)));
        let owners = Owners::of(&mut source, asked).unwrap();
        assert_eq!(owners.pytorch_inactive, 64 * MIB - TENSORS);
        assert_eq!(owners.held.iter().map(|h| h.live.bytes).sum::<u64>() + owners.pytorch_inactive, PEAK);
        let tensors = owners.held.iter().find(|h| h.layer == Layer::Tensor).unwrap();
        // The one whose free failed was not allocated again.
        assert_eq!((tensors.live.count, tensors.ever.count, tensors.ever.bytes), (2, 4, 80 * MIB));
        assert!(owners.held.iter().all(|h| h.layer != Layer::Pinned));
    }

    #[test]
    fn at_the_end_a_segment_without_tensors_is_inactive() {
        let (_folder, mut source) = opened(&training());
        source.selection = Selection::at(source.end);
        let asked = Asked::of(&source).unwrap();
        let owners = Owners::of(&mut source, asked).unwrap();
        assert_eq!(owners.pytorch_inactive, 64 * MIB);
        assert_eq!(owners.held.iter().map(|h| h.live.bytes).sum::<u64>(), 32 * MIB);
    }

    #[test]
    fn a_layer_is_shown_as_it_is() {
        let (_folder, mut source) = opened(&training());
        source.selection.layer = Some(Layer::Direct);
        let asked = Asked::of(&source).unwrap();
        let owners = Owners::of(&mut source, asked).unwrap();
        assert_eq!((owners.held.len(), owners.pytorch_inactive), (2, 0));
        assert_eq!(owners.held[0].live.bytes, 64 * MIB);
    }
}
