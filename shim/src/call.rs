//! One call of the program into a hook: who called, through what, from where.

use vramscope_core::api::Api;

use crate::modules::{self, Kind};
use crate::thread::{self, Thread};
use crate::{recorder, stacks};

/// What a hook knows of the call it serves.
pub struct Call {
    /// The calling thread.
    pub thread: &'static Thread,
    /// The entry point that the program used: the runtime's, if it came through one of its names.
    pub api: Api,
    /// Number of the calling module.
    pub caller: u32,
    /// The requester is a caching pool itself.
    pub hoarder: bool,
    /// The requester is CUDA's runtime, for itself.
    pub runtime: bool,
}

impl Call {
    /// A call that entered a driver hook with this return address.
    #[inline]
    pub fn new(api: Api, from: usize) -> Call {
        let thread = thread::current();
        let here = thread::stack_pointer();
        match thread.label(here) {
            Some(l) => {
                let (caller, kind) = modules::caller(l.from);
                Call { thread, api: l.api, caller, hoarder: kind == Kind::Hoarder, runtime: false }
            }
            None => {
                let (caller, kind) = modules::caller(from);
                Call { thread, api, caller, hoarder: kind == Kind::Hoarder, runtime: kind == Kind::Runtime }
            }
        }
    }

    /// Work of our own.
    pub fn internal() -> Call {
        Call { thread: thread::current(), api: Api::None, caller: 0, hoarder: false, runtime: false }
    }

    /// Number of the call's stack; 0 where none is recorded.
    #[inline]
    pub fn stack(&self) -> u32 {
        if recorder::recording() { stacks::here(self.thread) } else { 0 }
    }

    /// The same for a free, which `VRAMSCOPE_STACKS_ON_FREE=off` leaves without.
    #[inline]
    pub fn stack_of_free(&self) -> u32 {
        if recorder::recording() { stacks::of_free(self.thread) } else { 0 }
    }

    /// A small number of the thread.
    pub fn lane(&self) -> usize {
        std::ptr::from_ref(self.thread) as usize >> 12
    }
}
