//! `vramscope ctl PID …`: a socket that a small thread listens to, from the start of recording to the end of the process.
//!
//! It is never in the way: without a socket there is one info message, a client that says nothing is left after a second, and
//! the thread blocks all signals. Only the process's own user (and root) may ask. The words are vramscope_core::ctl's.

use std::ffi::c_void;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};

use serde_json::{Value, json};
use vramscope_core::ctl::{self, LONGEST, VERSION};

use crate::message::info;
use crate::settings::{self, Limit};
use crate::{
    background, capi, context, driver, limit, pause, recorder, signals, snapshot, spool, state, trace_file, usage,
};

static LISTENS: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);
/// Where; empty: nowhere.
static PATH: Mutex<String> = Mutex::new(String::new());

/// Starts to listen. Whatever fails is said and changes nothing.
pub fn start() {
    match listen() {
        Ok(socket) => {
            INODE.store(spool::inode(socket), Relaxed);
            LISTENS.store(socket, Relaxed);
            // SAFETY: a function that closes a descriptor.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            let run = || {
                state::guarded("the control socket", serve);
            };
            if let Err(e) = background::start(c"vramscope-ctl", 512 << 10, run) {
                info!("no thread for the control socket (error {e}): vramscope ctl can't ask this process");
                end();
            }
        }
        Err(e) => info!("no control socket ({e}): vramscope ctl can't ask this process"),
    }
}

/// A forked child is not asked: who connects must not wait for it.
unsafe extern "C" fn in_child() {
    let socket = LISTENS.load(Relaxed);
    if is_ours(socket) {
        // SAFETY: a descriptor of ours.
        unsafe { libc::close(socket) };
    }
}

/// The process ends: nobody asks it any more.
pub fn end() {
    let path = std::mem::take(&mut *PATH.lock().unwrap_or_else(|e| e.into_inner()));
    if !path.is_empty() {
        // SAFETY: a C string.
        unsafe { libc::unlink(settings::c_string(&path).as_ptr()) };
    }
}

fn listen() -> io::Result<i32> {
    let pid = std::process::id();
    let run_dir = settings::get().run_dir.as_ref().map(|d| format!("{d}/{}", ctl::name_in_run_dir(pid)));
    let outside = format!("{}/{}", ctl::FOLDER, ctl::name_outside(pid));
    let mut failed = io::Error::other("no folder");
    for path in run_dir.into_iter().chain([outside]) {
        match bind(&path) {
            Ok(socket) => {
                *PATH.lock().unwrap_or_else(|e| e.into_inner()) = path;
                return Ok(socket);
            }
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn new_socket() -> io::Result<i32> {
    // SAFETY: constant arguments.
    checked(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) })
}

fn close(socket: i32) {
    // SAFETY: a descriptor of ours.
    unsafe { libc::close(socket) };
}

fn address(path: &str) -> io::Result<libc::sockaddr_un> {
    // SAFETY: all zeroes is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    if path.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
        *to = from as _;
    }
    Ok(address)
}

const ADDRESS: u32 = size_of::<libc::sockaddr_un>() as u32;

fn bind(path: &str) -> io::Result<i32> {
    let at = address(path)?;
    let socket = new_socket()?;
    let bound = || {
        // The file gets the mode that the socket has.
        // SAFETY: a descriptor of ours.
        unsafe { libc::fchmod(socket, 0o600) };
        // SAFETY: a descriptor of ours and an address of that length.
        checked(unsafe { libc::bind(socket, (&raw const at).cast(), ADDRESS) })
    };
    let mut result = bound();
    if result.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse) && is_stale(&at) {
        // Of a process that had our number, or of our own before an exec.
        // SAFETY: a C string.
        unsafe { libc::unlink(settings::c_string(path).as_ptr()) };
        result = bound();
    }
    // SAFETY: a descriptor of ours.
    if let Err(e) = result.and_then(|_| checked(unsafe { libc::listen(socket, 8) })) {
        close(socket);
        return Err(e);
    }
    Ok(spool::high(socket))
}

/// Whether nobody listens there any more.
fn is_stale(at: &libc::sockaddr_un) -> bool {
    let Ok(socket) = new_socket() else { return false };
    // A listener with a full queue is one.
    // SAFETY: a descriptor of ours.
    unsafe { libc::fcntl(socket, libc::F_SETFL, libc::O_NONBLOCK) };
    // SAFETY: a descriptor of ours and an address of that length.
    let refused = checked(unsafe { libc::connect(socket, std::ptr::from_ref(at).cast(), ADDRESS) })
        .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
    close(socket);
    refused
}

// ---- the thread --------------------------------------------------------------------------------------------------------

/// The program may have closed every descriptor, ours too, and the number may be another file's by now.
fn is_ours(socket: i32) -> bool {
    socket >= 0 && spool::inode(socket) == INODE.load(Relaxed)
}

fn serve() {
    loop {
        let socket = LISTENS.load(Relaxed);
        if !is_ours(socket) {
            return;
        }
        // An accept that waits keeps the lowest free number for its result, and the program may count on getting that one.
        let mut waits = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
        // SAFETY: a pointer to a local.
        unsafe { libc::poll(&mut waits, 1, -1) };
        if !is_ours(socket) {
            return;
        }
        // SAFETY: a descriptor of ours; no address is wanted.
        let client = unsafe { libc::accept4(socket, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
        match checked(client) {
            Ok(client) => {
                let client = spool::high(client);
                signals::held_off(|| talk(client));
                close(client);
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED | libc::EAGAIN)) => {}
            // No descriptor, no memory: it may come back.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)) => {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            Err(_) => return,
        }
    }
}

/// Whether the other end is our user's, or root's.
fn may_ask(client: i32) -> bool {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as u32;
    let option = (&raw mut who).cast::<c_void>();
    // SAFETY: a descriptor of ours and a local of that length.
    let r = unsafe { libc::getsockopt(client, libc::SOL_SOCKET, libc::SO_PEERCRED, option, &mut length) };
    // SAFETY: no arguments.
    r == 0 && (who.uid == 0 || who.uid == unsafe { libc::geteuid() })
}

fn talk(client: i32) {
    if !may_ask(client) {
        return;
    }
    let second = libc::timeval { tv_sec: 1, tv_usec: 0 };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let length = size_of::<libc::timeval>() as u32;
        // SAFETY: a descriptor of ours and a local of that length.
        unsafe { libc::setsockopt(client, libc::SOL_SOCKET, option, (&raw const second).cast(), length) };
    }
    let Some(line) = read_line(client) else { return };
    let mut answer = match answer(&line) {
        Ok(told) => json!({ "version": VERSION, "ok": told }),
        Err(why) => json!({ "version": VERSION, "error": why }),
    }
    .to_string();
    answer.push('\n');
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        // SAFETY: a descriptor of ours and a buffer of that length.
        let n = unsafe { libc::send(client, rest.as_ptr().cast(), rest.len(), libc::MSG_NOSIGNAL) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => rest = &rest[n..],
            _ => return,
        }
    }
    // What was never read would end the other's reading with an error.
    // SAFETY: a descriptor of ours.
    unsafe { libc::shutdown(client, libc::SHUT_WR) };
    let mut unread = [0u8; 4096];
    for _ in 0..64 {
        // SAFETY: a descriptor of ours and a buffer of that length.
        let n = unsafe { libc::recv(client, unread.as_mut_ptr().cast(), unread.len(), libc::MSG_DONTWAIT) };
        if n <= 0 {
            break;
        }
    }
}

/// The first line, if it comes within a second or so.
fn read_line(client: i32) -> Option<Vec<u8>> {
    let begun = driver::now_ns();
    let mut line = Vec::new();
    let mut part = [0u8; 4096];
    while line.len() < LONGEST && driver::now_ns() - begun < 1_500_000_000 {
        // SAFETY: a descriptor of ours and a buffer of that length.
        let n = unsafe { libc::recv(client, part.as_mut_ptr().cast(), part.len(), 0) };
        let n = usize::try_from(n).ok().filter(|n| *n > 0)?;
        if let Some(end) = part[..n].iter().position(|b| *b == b'\n') {
            line.extend_from_slice(&part[..end]);
            return Some(line);
        }
        line.extend_from_slice(&part[..n]);
    }
    None
}

// ---- what can be asked -------------------------------------------------------------------------------------------------

fn answer(line: &[u8]) -> Result<Value, String> {
    let question: Value = serde_json::from_slice(line).map_err(|e| format!("the question is no JSON: {e}"))?;
    if question["version"].as_u64() != Some(VERSION) {
        return Err(format!(
            "this process speaks version {VERSION} (vramscope {}), the question is of another",
            env!("CARGO_PKG_VERSION")
        ));
    }
    let device = match &question["device"] {
        Value::Null => None,
        given => {
            let number = given.as_i64().and_then(|d| i32::try_from(d).ok()).filter(|d| *d >= 0);
            Some(number.ok_or_else(|| format!("device {given} is no number of a device"))?)
        }
    };
    let devices = || match device {
        Some(d) if context::of_device(d).next().is_none() => Err(format!("the process does not use device {d}")),
        Some(d) => Ok(vec![d]),
        None => Ok((0..64).filter(|d| context::of_device(*d).next().is_some()).collect()),
    };
    match question["ask"].as_str().unwrap_or_default() {
        "stats" => Ok(stats(&devices()?)),
        "snapshot" => {
            let path = question["path"].as_str().ok_or("a snapshot needs a path")?;
            Ok(json!({ "path": snapshot::write(Path::new(path))?.to_string_lossy() }))
        }
        "trim" => Ok(json!({ "bytes": capi::vramscope_empty_cache() })),
        "limit" => {
            let wanted = match (question["bytes"].as_u64(), question["share"].as_f64()) {
                (Some(bytes), _) => Limit::Bytes(bytes),
                (None, Some(share)) if (0.0..=1.0).contains(&share) => Limit::Share(share),
                _ => return Err("a limit is bytes, or a share from 0 to 1".to_owned()),
            };
            let devices = devices()?;
            devices.iter().for_each(|d| {
                limit::set(*d, wanted, limit::By::Ctl);
            });
            Ok(stats(&devices))
        }
        "reset-peak" => {
            let devices = devices()?;
            devices.iter().for_each(|d| usage::reset_peak(*d));
            Ok(stats(&devices))
        }
        "pause" | "resume" => {
            pause::set(question["ask"] == "pause");
            Ok(json!({ "paused": pause::on() }))
        }
        other => Err(format!("this process (vramscope {}) does not know '{other}'", env!("CARGO_PKG_VERSION"))),
    }
}

fn stats(devices: &[i32]) -> Value {
    let one = |device: &i32| {
        let mut told = json!({
            "device": device,
            "name": driver::device_name(*device),
            "total": driver::total_memory(*device),
        });
        if let (Some(object), Some(stats)) = (told.as_object_mut(), capi::stats_of(*device)) {
            object.extend(stats.named().map(|(name, bytes)| (name.to_owned(), bytes.into())));
        }
        told
    };
    let trace = recorder::spool().map(|s| String::from_utf8_lossy(&s.path()).into_owned());
    json!({
        "pid": std::process::id(),
        "program": settings::program_path(),
        "arguments": trace_file::arguments(),
        "vramscope": env!("CARGO_PKG_VERSION"),
        "trace": trace,
        "paused": pause::on(),
        "devices": devices.iter().map(one).collect::<Vec<_>>(),
    })
}
