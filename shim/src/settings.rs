//! The settings, read from the environment once, at the first CUDA call that matters. A wrong value is said, with the
//! allowed ones, and the default is taken: the program runs.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;

use once_cell::sync::OnceCell;

use vramscope_core::arena::LEAST_SPLIT;
use vramscope_core::limit;
pub use vramscope_core::limit::Limit;
use vramscope_core::size::{self, Size};

use crate::message::{self, Level, error};
use crate::stacks::DEEPEST;

/// `VRAMSCOPE_POOL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolMode {
    /// Plain allocations are pooled, stream-ordered ones recorded.
    Auto,
    /// Both are served by us.
    On,
    /// Record only.
    Off,
}

/// `VRAMSCOPE_SYNC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    /// The host waits in free only while it could see a difference.
    Auto,
    /// Device barrier only.
    Device,
    /// Always wait, as the native free does.
    Host,
}

/// All settings.
#[derive(Debug)]
pub struct Settings {
    /// `VRAMSCOPE_TRACE`; `None`: no history is kept (`off`).
    pub trace: Option<String>,
    /// `VRAMSCOPE_POOL`.
    pub pool: PoolMode,
    /// `VRAMSCOPE_STACKS` includes native frames.
    pub native_stacks: bool,
    /// `VRAMSCOPE_STACKS` includes Python frames.
    pub python_stacks: bool,
    /// `VRAMSCOPE_STACK_DEPTH`: frames of each kind at most.
    pub stack_depth: usize,
    /// `VRAMSCOPE_STACKS_ON_FREE`.
    pub stacks_on_free: bool,
    /// `VRAMSCOPE_SYNC`.
    pub sync: SyncMode,
    /// `VRAMSCOPE_LIMIT`: by device, or for all others.
    pub limits: Vec<(Option<u32>, Limit)>,
    /// `VRAMSCOPE_MAX_CACHED`.
    pub max_cached: Limit,
    /// `VRAMSCOPE_MAX_SPLIT_SIZE`: bytes; larger blocks are not split. PyTorch's `max_split_size_mb`.
    pub max_split_size: u64,
    /// `VRAMSCOPE_GC_THRESHOLD`: share of the device or its limit, 0 is never. PyTorch's `garbage_collection_threshold`.
    pub gc_threshold: f64,
    /// `VRAMSCOPE_STITCH`: the arena makes large blocks of free memory in many places.
    pub stitch: bool,
    /// `VRAMSCOPE_MAX_TRACE`; 0: no limit.
    pub max_trace: u64,
    /// `VRAMSCOPE_POISON`.
    pub poison: bool,
    /// `VRAMSCOPE_SNAPSHOT_SIGNAL`.
    pub snapshot_signal: Option<i32>,
    /// `VRAMSCOPE_NVTX`.
    pub nvtx: bool,
    /// `VRAMSCOPE_RUN_DIR`, set by the launcher.
    pub run_dir: Option<String>,
    /// As the environment had them, for the header.
    pub given: Vec<(String, String)>,
}

/// Reads a variable without going through Rust's environment lock: the program may be changing it in another thread.
pub fn variable(name: &CStr) -> Option<String> {
    // SAFETY: a NUL-terminated name.
    let p = unsafe { libc::getenv(name.as_ptr()) };
    if p.is_null() {
        return None;
    }
    // SAFETY: the environment's C string, copied at once.
    let bytes = unsafe { CStr::from_ptr(p) }.to_bytes().to_vec();
    Some(OsString::from_vec(bytes).to_string_lossy().into_owned())
}

fn wrong(name: &str, value: &str, allowed: &str, taken: &str) {
    error!("{name}={value}: not understood; allowed: {allowed}. Going on with {taken}.");
}

/// Frames of each kind that a stack holds where nothing else is asked for.
const DEPTH: usize = 128;

/// Name of a history where none is asked for.
pub const USUAL_NAME: &str = "vramscope-%n-%p.jsonl";

const NAMES: [&CStr; 19] = [
    c"VRAMSCOPE_TRACE",
    c"VRAMSCOPE_POOL",
    c"VRAMSCOPE_STACKS",
    c"VRAMSCOPE_STACK_DEPTH",
    c"VRAMSCOPE_STACKS_ON_FREE",
    c"VRAMSCOPE_SYNC",
    c"VRAMSCOPE_LIMIT",
    c"VRAMSCOPE_MAX_CACHED",
    c"VRAMSCOPE_MAX_SPLIT_SIZE",
    c"VRAMSCOPE_GC_THRESHOLD",
    c"VRAMSCOPE_STITCH",
    c"VRAMSCOPE_MAX_TRACE",
    c"VRAMSCOPE_POISON",
    c"VRAMSCOPE_SNAPSHOT_SIGNAL",
    c"VRAMSCOPE_NVTX",
    c"VRAMSCOPE_ONLY",
    c"VRAMSCOPE_LOG",
    c"VRAMSCOPE_RUN_DIR",
    c"VRAMSCOPE",
];

fn read() -> Settings {
    level();
    let given = NAMES.iter().filter_map(|n| Some((n.to_str().ok()?.to_owned(), variable(n)?))).collect::<Vec<_>>();
    let get = |n: &str| given.iter().find(|(k, _)| k == n).map(|(_, v)| v.trim()).filter(|v| !v.is_empty());
    let switch = |name: &str, usual: bool| match get(name) {
        None => usual,
        Some("on" | "1") => true,
        Some("off" | "0") => false,
        Some(v) => {
            wrong(name, v, "on, off", if usual { "on" } else { "off" });
            usual
        }
    };
    let pool = match get("VRAMSCOPE_POOL") {
        None | Some("auto") => PoolMode::Auto,
        Some("on" | "1") => PoolMode::On,
        Some("off" | "0") => PoolMode::Off,
        Some(v) => {
            wrong("VRAMSCOPE_POOL", v, "auto, on, off", "auto");
            PoolMode::Auto
        }
    };
    let (native_stacks, python_stacks) = match get("VRAMSCOPE_STACKS") {
        None | Some("all" | "on" | "1") => (true, true),
        Some("native") => (true, false),
        Some("python") => (false, true),
        Some("off" | "0") => (false, false),
        Some(v) => {
            wrong("VRAMSCOPE_STACKS", v, "off, native, python, all", "all");
            (true, true)
        }
    };
    let stack_depth = match get("VRAMSCOPE_STACK_DEPTH").map(|v| (v, v.parse())) {
        None => DEPTH,
        Some((_, Ok(n))) if (1..=DEEPEST).contains(&n) => n,
        Some((v, _)) => {
            wrong("VRAMSCOPE_STACK_DEPTH", v, &format!("1 to {DEEPEST}"), &DEPTH.to_string());
            DEPTH
        }
    };
    let stacks_on_free = switch("VRAMSCOPE_STACKS_ON_FREE", true);
    let sync = match get("VRAMSCOPE_SYNC") {
        None | Some("auto") => SyncMode::Auto,
        Some("device") => SyncMode::Device,
        Some("host") => SyncMode::Host,
        Some(v) => {
            wrong("VRAMSCOPE_SYNC", v, "auto, device, host", "auto");
            SyncMode::Auto
        }
    };
    let size = |name: &str, least: u64, allowed: &str, usual: u64| match get(name).map(|v| (v, size::parse(v, false))) {
        None => usual,
        Some((_, Ok(Size::Bytes(bytes)))) if bytes >= least => bytes,
        Some((v, _)) => {
            wrong(name, v, allowed, "no limit");
            usual
        }
    };
    let limits = get("VRAMSCOPE_LIMIT").map_or_else(Vec::new, |v| {
        limit::parse(v).unwrap_or_else(|why| {
            error!("VRAMSCOPE_LIMIT={v}: {why}. Going on with no limit.");
            Vec::new()
        })
    });
    let max_cached = match get("VRAMSCOPE_MAX_CACHED").map(|v| (v, size::parse(v, true))) {
        None => Limit::Share(0.25),
        Some((_, Ok(Size::Bytes(bytes)))) => Limit::Bytes(bytes),
        Some((_, Ok(Size::Percent(percent)))) => Limit::Share(percent as f64 / 100.0),
        Some((v, Err(_))) => {
            wrong("VRAMSCOPE_MAX_CACHED", v, "a size (512MiB, 2GB, 1073741824) or a share of the device (25%)", "25%");
            Limit::Share(0.25)
        }
    };
    let max_split_size = size("VRAMSCOPE_MAX_SPLIT_SIZE", LEAST_SPLIT, "a size of 20 MiB or more (512MiB)", u64::MAX);
    let gc_threshold = match get("VRAMSCOPE_GC_THRESHOLD").map(|v| (v, v.parse::<f64>())) {
        None => 0.0,
        Some((_, Ok(share))) if (0.0..1.0).contains(&share) => share,
        Some((v, _)) => {
            wrong("VRAMSCOPE_GC_THRESHOLD", v, "a share of the device between 0 and 1 (0.8)", "none");
            0.0
        }
    };
    let max_trace = size("VRAMSCOPE_MAX_TRACE", 0, "a size (100MiB, 2GB)", 0);
    let poison = switch("VRAMSCOPE_POISON", false);
    let trace = match get("VRAMSCOPE_TRACE") {
        None => Some(USUAL_NAME.to_owned()),
        Some("off") => None,
        Some(v) => Some(v.to_owned()),
    };
    let snapshot_signal = match get("VRAMSCOPE_SNAPSHOT_SIGNAL") {
        None | Some("off" | "0") => None,
        Some("USR1" | "SIGUSR1") => Some(libc::SIGUSR1),
        Some("USR2" | "SIGUSR2") => Some(libc::SIGUSR2),
        Some(v) => {
            wrong("VRAMSCOPE_SNAPSHOT_SIGNAL", v, "off, USR1, USR2", "off");
            None
        }
    };
    let stitch = switch("VRAMSCOPE_STITCH", true);
    let nvtx = switch("VRAMSCOPE_NVTX", true);
    let run_dir = get("VRAMSCOPE_RUN_DIR").map(str::to_owned);
    Settings {
        trace,
        pool,
        native_stacks,
        python_stacks,
        stack_depth,
        stacks_on_free,
        sync,
        limits,
        max_cached,
        max_split_size,
        gc_threshold,
        stitch,
        max_trace,
        poison,
        snapshot_signal,
        nvtx,
        run_dir,
        given,
    }
}

fn level() {
    match variable(c"VRAMSCOPE_LOG").as_deref().map(str::trim) {
        None | Some("" | "error" | "doctor") => message::set_level(Level::Error),
        Some("off" | "0") => message::set_level(Level::Off),
        Some("info" | "1") => message::set_level(Level::Info),
        Some("debug" | "2") => message::set_level(Level::Debug),
        Some(v) => wrong("VRAMSCOPE_LOG", v, "off, error, info, debug", "error"),
    }
}

static SETTINGS: OnceCell<Settings> = OnceCell::new();

/// The settings in force.
pub fn get() -> &'static Settings {
    SETTINGS.get_or_init(read)
}

/// Whether this process is not to be touched at all: `VRAMSCOPE=off`, or `VRAMSCOPE_ONLY` names others.
pub fn untouched() -> bool {
    match variable(c"VRAMSCOPE").as_deref().map(str::trim) {
        Some("off" | "0") => return true,
        None | Some("" | "on" | "1") => {}
        Some(v) => wrong("VRAMSCOPE", v, "on, off", "on"),
    }
    let Some(only) = variable(c"VRAMSCOPE_ONLY").filter(|o| !o.trim().is_empty()) else { return false };
    let mine = [program_path(), invoked_name()];
    !only
        .split([',', ' ', ':'])
        .filter(|n| !n.is_empty())
        .any(|n| mine.iter().any(|p| p == n || p.rsplit('/').next() == Some(n)))
}

/// Path of the running program.
pub fn program_path() -> String {
    let mut buffer = [0u8; 4096];
    // SAFETY: a buffer of that length.
    let n = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    String::from_utf8_lossy(&buffer[..usize::try_from(n).unwrap_or(0)]).into_owned()
}

/// The name it was called by (`argv[0]` without folders).
pub fn invoked_name() -> String {
    unsafe extern "C" {
        static program_invocation_short_name: *const std::ffi::c_char;
    }
    // SAFETY: glibc sets it before any code of the program runs.
    let p = unsafe { program_invocation_short_name };
    if p.is_null() {
        return String::new();
    }
    // SAFETY: a C string.
    unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned()
}

/// A text as a C string; an inner NUL ends it.
pub fn c_string(s: &str) -> CString {
    let end = s.find('\0').unwrap_or(s.len());
    CString::new(&s.as_bytes()[..end]).unwrap_or_default()
}
