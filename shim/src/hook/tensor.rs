//! PyTorch's own allocator, from inside: it tells its profiler about every piece of memory it gives out and takes back, by
//! two functions of libc10 that libc10_cuda calls through its table of imports, so that ours come first.
//!
//! PyTorch 2.0 to 2.11 have these two names, which hold their argument types: another signature has another name and is
//! simply not hooked. The reports come under the allocator's lock. They tell the size as PyTorch rounds it; the size asked
//! for, the stream, and when a freed piece is reusable they do not tell, and we do not invent it. The cudaMallocAsync
//! backend and PYTORCH_NO_CUDA_MEMORY_CACHING never report: there a driver call is a tensor's.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use vramscope_core::event::{Event, EventKind, Memory};

use crate::exports::Exports;
use crate::ledger::{Entry, Ledger};
use crate::unwind::module::each_object;
use crate::{context, cuda, modules, oom, pause, recorder, stacks, state, thread, usage};

/// `c10::Device`: two bytes, passed in one register.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Device {
    kind: i8,
    index: i8,
}

/// `c10::DeviceType::CUDA`.
const CUDA: i8 = 1;

/// Live pieces by address.
static TENSORS: Ledger = Ledger::new();

type ReportUsage = unsafe extern "C-unwind" fn(*mut c_void, i64, usize, usize, Device);
type ReportOutOfMemory = unsafe extern "C-unwind" fn(i64, usize, usize, Device);

/// libc10's own function of a name; 0 if there is none. Found without the loader's lock: the caller holds the allocator's.
fn real(name: &CStr, known: &AtomicUsize) -> usize {
    let p = known.load(Relaxed);
    if p != 0 {
        return p;
    }
    let own = modules::own_range();
    let mut found = 0;
    each_object(&mut |object| {
        let address = Exports::of(object).and_then(|e| e.get(name)).filter(|p| !own.contains(p));
        found = address.unwrap_or(0) as usize;
        i32::from(found != 0)
    });
    known.store(found, Relaxed);
    found
}

/// `c10::reportMemoryUsageToProfiler(void* ptr, int64_t alloc_size, size_t total_allocated, size_t total_reserved, c10::Device)`:
/// a positive size was given out, a negative one taken back.
///
/// # Safety
/// As the C++ function.
#[unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")]
pub unsafe extern "C-unwind" fn report_usage(
    p: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    device: Device,
) {
    if device.kind == CUDA && !p.is_null() && state::started() {
        state::guarded("a tensor's report", || record(p as u64, size, device));
    }
    static REAL: AtomicUsize = AtomicUsize::new(0);
    let f = real(c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", &REAL);
    if f != 0 {
        // SAFETY: libc10's function of this name, which holds its types.
        let f: ReportUsage = unsafe { std::mem::transmute(f) };
        // SAFETY: the caller's arguments. It may throw.
        unsafe { f(p, size, allocated, reserved, device) };
    }
}

fn record(address: u64, size: i64, device: Device) {
    let t = thread::current();
    let context = context_of(device);
    if size >= 0 {
        // Counted all the same; a 0 says that the history does not have it.
        let id = if pause::on() || !recorder::recording() { 0 } else { recorder::new_id() };
        let entry = Entry {
            id,
            memory: Memory::Tensor,
            context,
            count: 1,
            maps: 0,
            own: true,
            bytes: size as u64,
            device: i32::from(device.index),
            hoarded: false,
        };
        let stale = TENSORS.insert(address, entry);
        usage::born(&entry);
        if let Some(stale) = stale {
            usage::gone(&stale);
            if stale.id != 0 {
                let (kind, memory) = (EventKind::Free, Memory::Tensor);
                recorder::event(&Event { kind, id: stale.id, memory, ..Event::default() });
            }
        }
        if id == 0 {
            return;
        }
        let (bytes, stack) = (size as u64, stacks::here(t));
        recorder::event(&Event {
            kind: EventKind::Alloc,
            memory: Memory::Tensor,
            context,
            id,
            address,
            bytes,
            stack,
            ..Event::default()
        });
    } else if let Some(e) = TENSORS.remove(address) {
        usage::gone(&e);
        if e.id == 0 || !recorder::recording() {
            return;
        }
        let stack = stacks::of_free(t);
        recorder::event(&Event {
            kind: EventKind::Free,
            memory: Memory::Tensor,
            context: e.context,
            id: e.id,
            stack,
            ..Event::default()
        });
    }
}

/// The number of the context that PyTorch uses on a device: the primary one, met before anything was given out of it.
fn context_of(device: Device) -> u16 {
    context::of_device(i32::from(device.index)).next().map_or(0, |id| context::slot(id).number())
}

/// `c10::reportOutOfMemoryToProfiler(int64_t alloc_size, size_t total_allocated, size_t total_reserved, c10::Device)`: after
/// PyTorch gave back all that it could, just before it throws.
///
/// # Safety
/// As the C++ function.
#[unsafe(export_name = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")]
pub unsafe extern "C-unwind" fn report_out_of_memory(size: i64, allocated: usize, reserved: usize, device: Device) {
    if device.kind == CUDA && state::started() && recorder::recording() {
        state::guarded("PyTorch's report of out of memory", || {
            let stack = stacks::here(thread::current());
            recorder::event(&Event {
                kind: EventKind::AllocFailed,
                memory: Memory::Tensor,
                context: context_of(device),
                code: cuda::ERROR_OUT_OF_MEMORY as u16,
                bytes: size as u64,
                stack,
                ..Event::default()
            });
            oom::of_pytorch(i32::from(device.index), size as u64, allocated as u64, reserved as u64, stack);
        });
    }
    static REAL: AtomicUsize = AtomicUsize::new(0);
    let f = real(c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE", &REAL);
    if f != 0 {
        // SAFETY: libc10's function of this name, which holds its types.
        let f: ReportOutOfMemory = unsafe { std::mem::transmute(f) };
        // SAFETY: the caller's arguments. It may throw.
        unsafe { f(size, allocated, reserved, device) };
    }
}
