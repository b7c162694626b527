//! Which memory is a segment that others' blocks lie in, and which is one block: a first look at the history decides.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;
use vramscope_core::event::EventKind;

use crate::export::{Allocation, Source, What};
use crate::report::tally::Layer;
use crate::symbols::file_name;

/// Memory in which PyTorch's tensors lie.
#[derive(Debug, Default)]
pub struct Holders {
    allocations: HashSet<u64>,
    mappings: HashSet<(u64, u64)>,
    /// Modules that are PyTorch's allocator, if the history has tensors: what they take holds tensors, or would.
    pytorch: HashSet<u32>,
}

impl Holders {
    /// Plays the history once. Tensors are looked for in what is there when they come.
    pub fn find(source: &Source) -> Result<Holders> {
        let mut holders = Holders::default();
        // Where each piece of memory begins, and its end: an allocation, or a mapping of one.
        let mut memory: BTreeMap<u64, (u64, u64, bool)> = BTreeMap::new();
        let mut tensors = false;
        source.play(&mut |step| {
            match step.what {
                What::Alloc(a) if a.layer == Layer::Tensor => {
                    tensors = true;
                    let mut at = a.event.address;
                    // A tensor may lie across mappings that follow one another.
                    while let Some((start, (end, id, mapped))) = memory.range(..=at).next_back() {
                        if *end <= at {
                            break;
                        }
                        match mapped {
                            true => holders.mappings.insert((*id, *start)),
                            false => holders.allocations.insert(*id),
                        };
                        at = *end;
                        if !mapped || at >= a.event.address.saturating_add(a.block()) {
                            break;
                        }
                    }
                }
                What::Alloc(a) if addressed(a) => {
                    let end = a.event.address.saturating_add(a.block());
                    memory.insert(a.event.address, (end, a.event.id, false));
                }
                What::Free(a, _) if memory.get(&a.event.address).is_some_and(|m| m.1 == a.event.id && !m.2) => {
                    memory.remove(&a.event.address);
                }
                What::Map(_, e) => {
                    memory.insert(e.address, (e.address.saturating_add(e.bytes), e.id, true));
                }
                What::Other(e) if e.kind == EventKind::Unmap => {
                    let end = e.address.saturating_add(e.bytes).max(e.address);
                    let gone: Vec<u64> = memory.range(e.address..end).filter(|(_, m)| m.2).map(|(at, _)| *at).collect();
                    for at in gone {
                        memory.remove(&at);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        if tensors {
            let of = source.history.modules.values().filter(|m| file_name(&m.path).starts_with("libc10_cuda.so"));
            holders.pytorch = of.map(|m| m.module).collect();
        }
        Ok(holders)
    }

    /// Whether this allocation is no block itself.
    pub fn allocation(&self, a: &Allocation) -> bool {
        self.allocations.contains(&a.event.id) || self.pytorch.contains(&a.event.caller)
    }

    /// Whether the mapping of an allocation at this address is no block itself.
    pub fn mapping(&self, a: &Allocation, address: u64) -> bool {
        self.mappings.contains(&(a.event.id, address)) || self.pytorch.contains(&a.event.caller)
    }
}

/// Whether its address is one in the device's address space, and its memory no part of other memory.
fn addressed(a: &Allocation) -> bool {
    !matches!(a.layer, Layer::Vmm | Layer::Tensor | Layer::Imported)
}
