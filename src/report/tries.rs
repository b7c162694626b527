//! Which failed calls are one request. PyTorch's allocator asks the driver, gives back what it keeps, asks again, and only then
//! reports that it is out of memory: whoever ran the program saw one failure of all that, and none if a later try was served.

use std::collections::{HashMap, HashSet};

use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::trace::Module;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: u16 = 2;

/// What became of a request of which a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The event that speaks for it: PyTorch's report, else the last call.
    pub event: Event,
    /// Calls of the driver that failed for it; 0: PyTorch refused by itself.
    pub tries: u64,
    /// A later try got the memory.
    pub served: bool,
    /// Bytes active and inactive when it failed.
    pub held: (u64, u64),
}

/// A request that is being tried.
#[derive(Clone, Copy, Debug)]
struct Open {
    last: Event,
    tries: u64,
    first_stack: u32,
    /// Another place in the allocator asked again.
    elsewhere: bool,
    /// The driver gave such memory since.
    got: bool,
    held: (u64, u64),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Tries {
    /// Libraries that ask again.
    caches: HashSet<u32>,
    /// By thread.
    open: HashMap<u32, Open>,
    tensors: bool,
}

impl Tries {
    /// Takes in a library.
    pub fn module(&mut self, m: &Module) {
        if crate::symbols::file_name(&m.path).starts_with("libc10_cuda") {
            self.caches.insert(m.module);
        }
    }

    /// Whether an allocation is memory that such a library takes to cut it up.
    pub fn is_segment(&self, e: &Event) -> bool {
        is_segment(e.memory) && self.caches.contains(&e.caller)
    }

    /// Looks at an event. Gives the requests that are settled by it: one that was open before, and its own.
    #[inline]
    pub fn play(&mut self, thread: u32, e: &Event, held: impl FnOnce() -> (u64, u64)) -> [Option<Request>; 2] {
        match e.kind {
            EventKind::Alloc => {
                self.tensors |= e.memory == Memory::Tensor;
                if self.open.is_empty() { [None; 2] } else { [self.alloc(thread, e), None] }
            }
            EventKind::AllocFailed => self.failed(thread, e, held()),
            _ => [None; 2],
        }
    }

    fn alloc(&mut self, thread: u32, e: &Event) -> Option<Request> {
        let open = self.open.get_mut(&thread)?;
        let asked = is_segment(e.memory) && self.caches.contains(&e.caller);
        open.got |= asked && e.bytes == open.last.bytes;
        // Where tensors are told of, the one that was asked for is the end of it: a segment may be made of several pieces.
        let over = if self.tensors { e.memory == Memory::Tensor } else { asked };
        if over { self.settle(thread) } else { None }
    }

    fn failed(&mut self, thread: u32, e: &Event, held: (u64, u64)) -> [Option<Request>; 2] {
        let own = |tries| Some(Request { event: *e, tries, served: false, held });
        if e.code == OUT_OF_MEMORY && e.memory == Memory::Tensor {
            return [own(self.open.remove(&thread).map_or(0, |open| open.tries)), None];
        }
        if e.code != OUT_OF_MEMORY || !is_segment(e.memory) || !self.caches.contains(&e.caller) {
            return [own(1), None];
        }
        if let Some(open) = self.open.get_mut(&thread) {
            // The same size from the place that asked first, after another had asked again, is a new request.
            let again = open.elsewhere && open.first_stack == e.stack;
            if open.last.bytes == e.bytes && !again {
                open.elsewhere |= open.first_stack != e.stack;
                (open.tries, open.last, open.got, open.held) = (open.tries + 1, *e, false, held);
                return [None; 2];
            }
        }
        let before = self.settle(thread);
        let open = Open { last: *e, tries: 1, first_stack: e.stack, elsewhere: false, got: false, held };
        self.open.insert(thread, open);
        [before, None]
    }

    fn settle(&mut self, thread: u32) -> Option<Request> {
        let open = self.open.remove(&thread)?;
        Some(Request { event: open.last, tries: open.tries, served: open.got, held: open.held })
    }

    /// The history ends: what is still open failed, unless the driver gave the memory.
    pub fn finish(&mut self) -> Vec<Request> {
        let mut threads: Vec<u32> = self.open.keys().copied().collect();
        threads.sort_unstable();
        threads.into_iter().filter_map(|thread| self.settle(thread)).collect()
    }
}

fn is_segment(memory: Memory) -> bool {
    matches!(memory, Memory::Device | Memory::Vmm)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: u32 = 4;

    fn tries() -> Tries {
        let mut tries = Tries::default();
        tries.module(&Module { module: CACHE, path: "/torch/lib/libc10_cuda.so".into(), ..Module::default() });
        tries
    }

    fn call(kind: EventKind, memory: Memory, bytes: u64, stack: u32) -> Event {
        let caller = if memory == Tensor { 0 } else { CACHE };
        Event { kind, memory, bytes, stack, caller, code: OUT_OF_MEMORY, ..Event::default() }
    }

    /// What is settled, in order: tries, whether it was served, and the stack that speaks for it.
    fn settled(tries: &mut Tries, events: &[(u32, Event)]) -> Vec<(u64, bool, u32)> {
        let mut all = Vec::new();
        for (thread, e) in events {
            all.extend(tries.play(*thread, e, || (0, 0)).into_iter().flatten());
        }
        all.extend(tries.finish());
        all.iter().map(|r| (r.tries, r.served, r.event.stack)).collect()
    }

    use EventKind::{Alloc, AllocFailed};
    use Memory::{Async, Device, Tensor, Vmm};

    #[test]
    fn a_report_of_pytorchs_ends_its_tries() {
        let fails = |stack| (1, call(AllocFailed, Device, 640, stack));
        let report = (1, call(AllocFailed, Tensor, 600, 9));
        let other = (2, call(AllocFailed, Device, 640, 7));
        assert_eq!(settled(&mut tries(), &[fails(1), other, fails(2), report]), [(2, false, 9), (1, false, 7)]);
        // Twice the same, one after the other; and one that PyTorch refused by itself.
        let twice = [fails(1), fails(2), report, fails(1), fails(2), report, report];
        assert_eq!(settled(&mut tries(), &twice), [(2, false, 9), (2, false, 9), (0, false, 9)]);
    }

    #[test]
    fn a_try_that_is_served_is_no_failure() {
        let tensor = |bytes| (1, call(Alloc, Tensor, bytes, 3));
        let (fail, gave) = ((1, call(AllocFailed, Device, 640, 1)), (1, call(Alloc, Device, 640, 2)));
        assert_eq!(settled(&mut tries(), &[tensor(8), fail, gave, tensor(600)]), [(1, true, 1)]);
        // Without a layer of tensors.
        assert_eq!(settled(&mut tries(), &[fail, gave]), [(1, true, 1)]);
        // Of a segment made of pieces one may be given before the next fails.
        let piece = |kind| (1, call(kind, Vmm, 20, 1));
        let pieces =
            [tensor(8), piece(AllocFailed), piece(Alloc), piece(AllocFailed), (1, call(AllocFailed, Tensor, 60, 9))];
        assert_eq!(settled(&mut tries(), &pieces), [(2, false, 9)]);
        // PyTorch went on without a report, with what it had.
        assert_eq!(settled(&mut tries(), &[tensor(8), fail, tensor(16)]), [(1, false, 1)]);
    }

    #[test]
    fn requests_that_are_not_reported_are_told_apart() {
        let fails = |bytes, stack| (1, call(AllocFailed, Device, bytes, stack));
        let sizes = [fails(640, 1), fails(640, 2), fails(320, 1), fails(320, 2)];
        assert_eq!(settled(&mut tries(), &sizes), [(2, false, 2), (2, false, 2)]);
        let again = [fails(640, 1), fails(640, 2), fails(640, 1), fails(640, 2)];
        assert_eq!(settled(&mut tries(), &again), [(2, false, 2), (2, false, 2)]);
    }

    #[test]
    fn who_is_no_cache_fails_each_time() {
        let program = |memory| (1, Event { caller: 1, ..call(AllocFailed, memory, 640, 1) });
        assert_eq!(settled(&mut tries(), &[program(Device), program(Device)]).len(), 2);
        assert_eq!(settled(&mut tries(), &[(1, call(AllocFailed, Async, 640, 1)), program(Async)]).len(), 2);
        let refused = (1, Event { code: 1, ..call(AllocFailed, Device, 640, 1) });
        assert_eq!(settled(&mut tries(), &[refused, refused]).len(), 2);
    }
}
