//! The virtual memory API: physical handles are memory, mappings are addresses; they are never added up.
//!
//! Physical memory lives until its last handle is released and its last mapping is gone; programs commonly release right
//! after mapping. The free is recorded at the call that lets the last of them go.

use std::collections::BTreeMap;
use std::sync::Mutex;

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory};

use super::{Place, Request, record_alloc, record_free, recorded_alloc, unfree};
use crate::call::Call;
use crate::context;
use crate::cuda::{
    AllocationProp, DevicePtr, ERROR_INVALID_VALUE, MEM_LOCATION_TYPE_DEVICE, Ptr, Result, SUCCESS, Size,
};
use crate::hooks::types;
use crate::ledger::Entry;
use crate::recorder::{self, LEDGER};
use crate::{arena, pool, sight, state, usage};

/// A mapping: its bytes and the ledger's key of its memory.
#[derive(Clone, Copy)]
struct Mapping {
    bytes: u64,
    key: u64,
}

static MAPPINGS: Mutex<BTreeMap<u64, Mapping>> = Mutex::new(BTreeMap::new());

fn mappings() -> std::sync::MutexGuard<'static, BTreeMap<u64, Mapping>> {
    MAPPINGS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Handles and pointers live in one table: a handle's key has the top bit set.
fn handle_key(handle: u64) -> u64 {
    handle | 1 << 63
}

/// The key of memory that has no handle any more: the driver may give the handle's number to new memory.
fn orphan_key(id: u64) -> u64 {
    id | 3 << 62
}

/// `cuMemCreate`.
pub unsafe fn create(
    real: types::cuMemCreate,
    from: usize,
    out: *mut u64,
    bytes: Size,
    prop: *const AllocationProp,
    flags: u64,
) -> Result {
    if out.is_null() || prop.is_null() || !state::active() {
        // SAFETY: the program's arguments.
        return unsafe { real(out, bytes, prop, flags) };
    }
    // SAFETY: not null; the driver is about to read it.
    let (place, ordinal) = unsafe { ((*prop).location_type, (*prop).location_id) };
    let on_device = place == MEM_LOCATION_TYPE_DEVICE;
    let request = Request {
        what: "cuMemCreate",
        from,
        api: Api::CuMemCreate,
        // A handle of host memory (location HOST, HOST_NUMA) is pinned host memory by another name.
        memory: if on_device { Memory::Vmm } else { Memory::Pinned },
        bytes: bytes as u64,
        stream: 0,
        device: on_device.then_some(ordinal),
    };
    recorded_alloc(
        &request,
        // SAFETY: the program's arguments.
        || unsafe { real(out, bytes, prop, flags) },
        // SAFETY: not null; the driver wrote it.
        || handle_key(unsafe { *out }),
    )
}

/// `cuMemImportFromShareableHandle`: memory of another process, or this one's again.
pub unsafe fn import(
    real: types::cuMemImportFromShareableHandle,
    from: usize,
    out: *mut u64,
    os: Ptr,
    kind: i32,
) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(out, os, kind) };
    if r == SUCCESS && !out.is_null() && state::active() {
        sight::seen();
        state::guarded("cuMemImportFromShareableHandle", || {
            // SAFETY: not null; the driver wrote it.
            let key = handle_key(unsafe { *out });
            if LEDGER.update(key, |e| e.count += 1).is_none() {
                record_alloc(&Call::new(Api::CuMemImport, from), Place::current(), Memory::Imported, key, 0, 0, r, 0);
            }
        });
    }
    r
}

/// `cuMemRetainAllocationHandle`: one more reference (the driver gives the same handle again).
pub unsafe fn retain(real: types::cuMemRetainAllocationHandle, _: usize, out: *mut u64, p: Ptr) -> Result {
    // Stream-ordered memory has no handle.
    if is_ordered(p as u64) {
        return ERROR_INVALID_VALUE;
    }
    // SAFETY: the program's arguments.
    let r = unsafe { real(out, p) };
    if r == SUCCESS && !out.is_null() && state::active() {
        state::guarded("cuMemRetainAllocationHandle", || {
            // SAFETY: not null; the driver wrote it.
            let key = handle_key(unsafe { *out });
            if LEDGER.update(key, |e| e.count += 1).is_none() {
                adopt(p as u64, key);
            }
        });
    }
    r
}

/// Memory that had been released and lives by its mapping has a handle again.
fn adopt(address: u64, key: u64) {
    let mut maps = mappings();
    let Some((_, m)) = maps.range(..=address).next_back().filter(|(at, m)| address < *at + m.bytes) else { return };
    let orphan = m.key;
    if let Some(e) = LEDGER.remove(orphan) {
        LEDGER.insert(key, Entry { count: 1, ..e });
        maps.values_mut().filter(|m| m.key == orphan).for_each(|m| m.key = key);
    }
}

/// `cuMemRelease`.
pub unsafe fn release(real: types::cuMemRelease, from: usize, handle: u64) -> Result {
    if handle == 0 || !state::active() {
        // SAFETY: the program's argument.
        return unsafe { real(handle) };
    }
    let key = handle_key(handle);
    let last = LEDGER.get(key).is_some_and(|e| e.count <= 1 && e.maps == 0);
    let freed = if last {
        state::guarded("cuMemRelease", || record_free(&Call::new(Api::CuMemRelease, from), key, 0)).flatten()
    } else {
        None
    };
    // SAFETY: as above.
    let r = unsafe { real(handle) };
    state::guarded("cuMemRelease", || match freed {
        Some(e) if r == SUCCESS => usage::gone(&e),
        Some(e) => unfree(key, e, r),
        None if r == SUCCESS => let_go(key),
        None => {}
    });
    r
}

/// A handle went, but not the memory.
fn let_go(key: u64) {
    let mut maps = mappings();
    let Some(e) = LEDGER.get(key) else { return };
    if e.count > 1 {
        LEDGER.update(key, |e| e.count -= 1);
        return;
    }
    LEDGER.remove(key);
    let orphan = orphan_key(e.id);
    LEDGER.insert(orphan, Entry { count: 0, ..e });
    maps.values_mut().filter(|m| m.key == key).for_each(|m| m.key = orphan);
}

/// `cuMemMap`.
pub unsafe fn map(
    real: types::cuMemMap,
    from: usize,
    p: DevicePtr,
    bytes: Size,
    offset: Size,
    handle: u64,
    flags: u64,
) -> Result {
    // SAFETY: the program's arguments.
    let r = pool::retrying(|| unsafe { real(p, bytes, offset, handle, flags) });
    if r == SUCCESS && state::active() {
        state::guarded("cuMemMap", || {
            let key = handle_key(handle);
            let mut maps = mappings();
            let id = LEDGER.update(key, |e| {
                e.maps += 1;
                e.id
            });
            maps.insert(p, Mapping { bytes: bytes as u64, key });
            drop(maps);
            mapped(EventKind::Map, Api::CuMemMap, from, p, bytes, id.unwrap_or(0));
        });
    }
    r
}

/// Memory of the arena is nobody's mapping: natively, stream-ordered memory is none.
fn is_ordered(p: DevicePtr) -> bool {
    arena::holding(p).is_some()
}

/// `cuMemUnmap`: of every mapping in the range.
pub unsafe fn unmap(real: types::cuMemUnmap, from: usize, p: DevicePtr, bytes: Size) -> Result {
    if is_ordered(p) {
        return ERROR_INVALID_VALUE;
    }
    if !state::active() {
        // SAFETY: the program's arguments.
        return unsafe { real(p, bytes) };
    }
    let freed = state::guarded("cuMemUnmap", || unmapping(from, p, bytes as u64)).unwrap_or_default();
    // SAFETY: as above.
    let r = unsafe { real(p, bytes) };
    state::guarded("cuMemUnmap", || {
        if r != SUCCESS {
            for (key, e) in freed {
                unfree(key, e, r);
            }
            return;
        }
        freed.iter().for_each(|(_, e)| usage::gone(e));
        let mut maps = mappings();
        let gone: Vec<u64> = maps.range(p..p + bytes as u64).map(|(at, _)| *at).collect();
        for at in gone {
            if let Some(m) = maps.remove(&at) {
                LEDGER.update(m.key, |e| e.maps = e.maps.saturating_sub(1));
            }
        }
        drop(maps);
        mapped(EventKind::Unmap, Api::CuMemUnmap, from, p, bytes, 0);
    });
    r
}

/// Records the free of memory whose last mappings lie in the range, before they go.
fn unmapping(from: usize, p: u64, bytes: u64) -> Vec<(u64, Entry)> {
    let maps = mappings();
    let mut ending: BTreeMap<u64, u32> = BTreeMap::new();
    for m in maps.range(p..p.saturating_add(bytes)).map(|(_, m)| m) {
        *ending.entry(m.key).or_default() += 1;
    }
    drop(maps);
    let call = Call::new(Api::CuMemUnmap, from);
    let last = |key: &u64, n: &u32| LEDGER.get(*key).is_some_and(|e| e.count == 0 && e.maps <= *n);
    ending
        .into_iter()
        .filter(|(key, n)| last(key, n))
        .filter_map(|(key, _)| Some((key, record_free(&call, key, 0)?)))
        .collect()
}

fn mapped(kind: EventKind, api: Api, from: usize, p: DevicePtr, bytes: Size, id: u64) {
    let call = Call::new(api, from);
    recorder::event(&Event {
        kind,
        api,
        memory: Memory::Vmm,
        context: context::current().map_or(0, |c| c.slot().number()),
        id,
        address: p,
        bytes: bytes as u64,
        caller: call.caller,
        ..Event::default()
    });
}

/// `cuMemSetAccess`: page tables are memory too.
pub unsafe fn set_access(
    real: types::cuMemSetAccess,
    _: usize,
    p: DevicePtr,
    bytes: Size,
    desc: Ptr,
    count: Size,
) -> Result {
    if is_ordered(p) {
        return ERROR_INVALID_VALUE;
    }
    // SAFETY: the program's arguments.
    pool::retrying(|| unsafe { real(p, bytes, desc, count) })
}
