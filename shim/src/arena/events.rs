//! Events, kept for reuse, and the end of the contexts they are of.
//!
//! An event is never used once its context has begun to end: its handle may already mean nothing. Uses hold a lock for
//! reading that a context's end takes for a moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, RwLock, RwLockReadGuard};

use vramscope_core::pool::ContextId;

use crate::context::{self, MAX};
use crate::{cuda, driver, nap};

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event {
    /// The driver's event.
    pub handle: cuda::Event,
    /// Its context,
    context: ContextId,
    /// of this generation.
    generation: u64,
}

struct Place {
    /// Counts the contexts that had the slot.
    generation: AtomicU64,
    stopped: AtomicBool,
    spare: Mutex<Vec<cuda::Event>>,
}

static PLACES: [Place; MAX] =
    [const { Place { generation: AtomicU64::new(0), stopped: AtomicBool::new(false), spare: Mutex::new(Vec::new()) } };
        MAX];
static USE: RwLock<()> = RwLock::new(());

/// Events of one context kept for reuse.
const SPARE: usize = 256;

fn place(id: ContextId) -> &'static Place {
    &PLACES[id.0 as usize % MAX]
}

/// Which context of those that had the slot.
pub fn generation(id: ContextId) -> u64 {
    place(id).generation.load(Acquire)
}

/// Room to use what is a context's; `None`: it has begun to end.
pub fn using(id: ContextId, generation: u64) -> Option<RwLockReadGuard<'static, ()>> {
    let guard = USE.read().unwrap_or_else(|e| e.into_inner());
    let p = place(id);
    (p.generation.load(Acquire) == generation && !p.stopped.load(Acquire)).then_some(guard)
}

/// An event of the context; in [`using`].
pub fn take(id: ContextId) -> Option<Event> {
    let p = place(id);
    let spare = p.spare.lock().unwrap_or_else(|e| e.into_inner()).pop();
    let handle = spare.or_else(|| driver::create_event(context::slot(id).handle()))?;
    Some(Event { handle, context: id, generation: p.generation.load(Acquire) })
}

impl Event {
    /// Whether all work before it is done.
    pub fn is_done(&self) -> bool {
        let _using = match using(self.context, self.generation) {
            Some(guard) => guard,
            // Its context ended, and its work with it; or is about to.
            None => return generation(self.context) != self.generation,
        };
        driver::relaxed(|| driver::query(self.handle)) == cuda::SUCCESS
    }

    /// Waits until its work is done or has failed; with naps, because nothing may be held meanwhile, neither a lock nor the
    /// driver's own waiting for a context. `false`: it failed, or its context is about to end.
    pub fn wait(&self) -> bool {
        for round in 0.. {
            match self.with(|e| driver::relaxed(|| driver::query(e))) {
                Some(cuda::ERROR_NOT_READY) => {}
                Some(result) => return result == cuda::SUCCESS,
                None => return self.is_over(),
            }
            nap::growing(round);
        }
        false
    }

    /// Uses it; `None`: its context ends or has ended, and is this context no longer.
    pub fn with<T>(&self, f: impl FnOnce(cuda::Event) -> T) -> Option<T> {
        let _using = using(self.context, self.generation)?;
        Some(f(self.handle))
    }

    /// Whether its context is gone.
    pub fn is_over(&self) -> bool {
        generation(self.context) != self.generation
    }

    /// It is not needed any more.
    pub fn put(self) {
        let _using = match using(self.context, self.generation) {
            Some(guard) => guard,
            // It went with its context, or is about to.
            None => return,
        };
        let mut spare = place(self.context).spare.lock().unwrap_or_else(|e| e.into_inner());
        if spare.len() < SPARE {
            spare.push(self.handle);
        } else {
            drop(spare);
            driver::destroy_event(self.handle);
        }
    }
}

/// A context begins to end.
pub fn stop(id: ContextId) {
    place(id).stopped.store(true, Release);
    // Whoever uses its events is through before this returns.
    drop(USE.write().unwrap_or_else(|e| e.into_inner()));
}

/// It goes on after all.
pub fn resume(id: ContextId) {
    place(id).stopped.store(false, Release);
}

/// It ended.
pub fn ended(id: ContextId) {
    let p = place(id);
    p.spare.lock().unwrap_or_else(|e| e.into_inner()).clear();
    p.generation.fetch_add(1, AcqRel);
    p.stopped.store(false, Release);
}
