//! Who else is on the device, as NVML says. Asked only when a request found no memory, in a thread of its own: loading the
//! library needs the loader's lock, which some other thread may hold while it waits for what the asking thread holds.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use crossbeam_channel::bounded;

use crate::{background, real, state};

/// How long an answer is waited for: NVML needs some ten milliseconds a GPU to begin.
const PATIENCE: Duration = Duration::from_millis(400);

/// Bytes on a device, by process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// This process; `None`: not among those listed (a container sees other numbers).
    pub own: Option<u64>,
    /// All others.
    pub others: u64,
    /// The largest of them: process id and bytes.
    pub other: Option<(u32, u64)>,
}

/// Asks NVML. `None`: there is none, it does not say, or it takes too long.
pub fn users(uuid: &str) -> Option<Users> {
    // One that never came back will not come back now.
    static STUCK: AtomicBool = AtomicBool::new(false);
    if STUCK.load(Relaxed) {
        return None;
    }
    let (to, from) = bounded(1);
    let uuid = uuid.to_owned();
    let ask = move || {
        let users = state::guarded("NVML", || ask(&uuid)).flatten();
        let _ = to.send(users);
    };
    background::start(c"vramscope-nvml", 512 << 10, ask).ok()?;
    match from.recv_timeout(PATIENCE) {
        Ok(users) => users,
        Err(_) => {
            STUCK.store(true, Relaxed);
            None
        }
    }
}

type Device = *mut c_void;

/// nvmlProcessInfo_t of version 2 and 3.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: u32,
    bytes: u64,
    instances: [u32; 2],
}

const SUCCESS: i32 = 0;
const MOST: usize = 1024;
/// What NVML says where it does not know.
const NOT_AVAILABLE: u64 = u64::MAX;

type Plain = unsafe extern "C" fn() -> i32;
type ByUuid = unsafe extern "C" fn(*const std::ffi::c_char, *mut Device) -> i32;
type Running = unsafe extern "C" fn(Device, *mut u32, *mut Process) -> i32;

fn function(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    Some(real::symbol(library, name)).filter(|p| !p.is_null())
}

fn ask(uuid: &str) -> Option<Users> {
    // SAFETY: a C string and a flag. It stays loaded.
    let library = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return None;
    }
    let (init, shutdown) = (function(library, c"nvmlInit_v2")?, function(library, c"nvmlShutdown")?);
    let by_uuid = function(library, c"nvmlDeviceGetHandleByUUID")?;
    let running = function(library, c"nvmlDeviceGetComputeRunningProcesses_v3")
        .or_else(|| function(library, c"nvmlDeviceGetComputeRunningProcesses_v2"))?;
    // SAFETY: NVML's functions of these names.
    let [init, shutdown] = [init, shutdown].map(|f| unsafe { std::mem::transmute::<*mut c_void, Plain>(f) });
    // SAFETY: as above.
    let by_uuid = unsafe { std::mem::transmute::<*mut c_void, ByUuid>(by_uuid) };
    // SAFETY: as above.
    let running = unsafe { std::mem::transmute::<*mut c_void, Running>(running) };
    // SAFETY: no arguments.
    if unsafe { init() } != SUCCESS {
        return None;
    }
    let processes = processes(uuid, by_uuid, running);
    // SAFETY: no arguments; begun above.
    unsafe { shutdown() };
    Some(sum(&processes?, std::process::id()))
}

fn processes(uuid: &str, by_uuid: ByUuid, running: Running) -> Option<Vec<Process>> {
    let mut device: Device = std::ptr::null_mut();
    // The instance of a partitioned GPU has another word before its number.
    let names = [uuid.to_owned(), uuid.replacen("GPU-", "MIG-", 1)];
    let found = names.into_iter().filter_map(|n| CString::new(n).ok()).any(|name| {
        // SAFETY: a C string and a pointer to a local.
        unsafe { by_uuid(name.as_ptr(), &mut device) == SUCCESS }
    });
    if !found {
        return None;
    }
    let mut all = vec![Process::default(); MOST];
    let mut count = MOST as u32;
    // SAFETY: a device of NVML's and room for so many.
    if unsafe { running(device, &mut count, all.as_mut_ptr()) } != SUCCESS {
        return None;
    }
    all.truncate(count as usize);
    Some(all)
}

fn sum(all: &[Process], own: u32) -> Users {
    let mut users = Users::default();
    for p in all.iter().filter(|p| p.bytes != NOT_AVAILABLE) {
        if p.pid == own {
            users.own = Some(users.own.unwrap_or(0) + p.bytes);
            continue;
        }
        users.others += p.bytes;
        if users.other.is_none_or(|(_, most)| p.bytes > most) {
            users.other = Some((p.pid, p.bytes));
        }
    }
    users
}
