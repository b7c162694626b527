//! The memory that holds the rings: a file in a memory file system, so that it outlives a killed process and is never
//! written back to a disk (a store would stall for that: 44 ms were measured).
//!
//! The launcher's run directory, else /dev/shm, else the run or temporary directory; in the last resort a nameless file,
//! which dies with the process.

use std::ffi::{CString, c_void};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};

use vramscope_core::record::{ClockKind, Setup, Spool};

use crate::message::{error, info};
use crate::{clock, driver, nap, settings};

/// Threads that can record at the same time.
const RINGS: usize = 512;
/// Slots of a ring.
const SLOTS: usize = 1024;
/// Rings backed by memory from the start, and by each step after.
const STEP: usize = 4;

static FD: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);
static PATH: once_cell::sync::OnceCell<String> = once_cell::sync::OnceCell::new();
/// Where it is mapped.
static WORDS: once_cell::sync::OnceCell<&'static [AtomicU64]> = once_cell::sync::OnceCell::new();

/// Where it lies; empty for a nameless one.
pub fn path() -> &'static str {
    PATH.get().map_or("", String::as_str)
}

fn candidates() -> Vec<(String, bool)> {
    let mut v = Vec::new();
    if let Some(d) = &settings::get().run_dir {
        v.push((d.clone(), true));
    }
    v.push(("/dev/shm".to_owned(), false));
    for name in [c"XDG_RUNTIME_DIR", c"TMPDIR"] {
        v.extend(settings::variable(name).filter(|d| !d.is_empty()).map(|d| (d, false)));
    }
    v.push(("/tmp".to_owned(), false));
    v
}

/// Opens a new file: (descriptor, path).
fn open_new() -> Option<(i32, String)> {
    let pid = std::process::id();
    let now = driver::now_ns();
    for (folder, launcher) in candidates() {
        let name = if launcher {
            format!("{folder}/spool.{pid}.{now}")
        } else {
            format!("{folder}/vramscope-spool.{pid}.{now}")
        };
        let c = settings::c_string(&name);
        let Some(fd) = create_file(&c) else { continue };
        if back(fd, Spool::prefix_in_words(STEP, SLOTS)) {
            return Some((high(fd), name));
        }
        info!("{folder}: no room for the spool; trying elsewhere");
        close_and_remove(fd, &c);
    }
    // SAFETY: a C string and a flag.
    let fd = unsafe { libc::memfd_create(c"vramscope-spool".as_ptr(), libc::MFD_CLOEXEC) };
    if fd >= 0 && back(fd, Spool::prefix_in_words(STEP, SLOTS)) {
        error!(
            "no folder for the spool (/dev/shm is full or not writable): if the process is killed, its last events are lost"
        );
        return Some((high(fd), String::new()));
    }
    None
}

/// A file that was not there.
fn create_file(path: &CString) -> Option<i32> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: a C string; the mode that O_CREAT wants.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    (fd >= 0).then_some(fd)
}

fn close_and_remove(fd: i32, path: &CString) {
    // SAFETY: a descriptor of ours.
    unsafe { libc::close(fd) };
    // SAFETY: a C string.
    unsafe { libc::unlink(path.as_ptr()) };
}

/// Backs the first `words` of the file with memory: a hole in a full file system would be a SIGBUS at a store.
fn back(fd: i32, words: usize) -> bool {
    // SAFETY: a descriptor of ours.
    unsafe { libc::posix_fallocate(fd, 0, (words * 8) as i64) == 0 }
}

/// Moves a descriptor out of the way of programs that expect low numbers.
pub fn high(fd: i32) -> i32 {
    // SAFETY: a descriptor of ours.
    let up = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 512) };
    if up < 0 {
        return fd;
    }
    // SAFETY: as above.
    unsafe { libc::close(fd) };
    up
}

/// Which file a descriptor is of; 0: it is of none.
pub fn inode(fd: i32) -> u64 {
    // SAFETY: all zeroes is a valid stat.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a pointer to a local.
    if unsafe { libc::fstat(fd, &mut s) } == 0 { s.st_ino } else { 0 }
}

/// Creates the spool of this process. Says why if it can't.
pub fn create() -> Option<Spool<'static>> {
    let Some((fd, path)) = open_new() else {
        error!("no memory for the spool (32 MiB in /dev/shm, or any temporary folder): nothing is recorded");
        return None;
    };
    let words = Spool::size_in_words(RINGS, SLOTS);
    // SAFETY: a descriptor of ours; the file grows by a hole that is backed before it is used.
    let sized = unsafe { libc::ftruncate(fd, (words * 8) as i64) } == 0;
    let place = if sized {
        // SAFETY: a descriptor of ours and a length that the file has.
        unsafe {
            libc::mmap(std::ptr::null_mut(), words * 8, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
        }
    } else {
        libc::MAP_FAILED
    };
    if place == libc::MAP_FAILED {
        error!("the spool {path} can't be mapped (a limit on files or memory?): nothing is recorded");
        close_and_remove(fd, &settings::c_string(&path));
        return None;
    }
    // SAFETY: the mapping is of that length, page aligned and never unmapped; atomics are valid for any content.
    let words: &'static [AtomicU64] = unsafe { std::slice::from_raw_parts(place.cast::<AtomicU64>(), words) };
    let zero_raw = clock::raw();
    let zero_ns = driver::now_ns();
    let setup = Setup {
        rings: RINGS,
        slots: SLOTS,
        usable_rings: STEP,
        pid: std::process::id(),
        start_time: start_time(),
        clock: if clock::is_tsc() { ClockKind::Tsc } else { ClockKind::Monotonic },
        ticks_per_second: ticks_per_second(),
        zero_raw,
        zero_ns,
    };
    lock(fd);
    INODE.store(inode(fd), Relaxed);
    FD.store(fd, Relaxed);
    let _ = PATH.set(path);
    let _ = WORDS.set(words);
    match Spool::format(words, &setup) {
        Ok(s) => Some(s),
        Err(e) => {
            error!("{e}: nothing is recorded");
            None
        }
    }
}

/// Marks the file as in use for as long as this process image lives: `recover` in another pid namespace can't see the
/// process. A lock of this kind is the process's own; a forked child does not hold it.
fn lock(fd: i32) {
    // SAFETY: all zeroes is a valid flock.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = libc::F_WRLCK as i16;
    whole.l_whence = libc::SEEK_SET as i16;
    // SAFETY: a descriptor of ours and a pointer to a local.
    unsafe { libc::fcntl(fd, libc::F_SETLK, &whole) };
}

/// When this process started, in clock ticks since boot: tells it from a later one of the same number.
fn start_time() -> u64 {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return 0 };
    // The name may hold spaces and brackets; fields count from its last bracket.
    let after = stat.rfind(')').map_or("", |i| &stat[i + 1..]);
    after.split_whitespace().nth(19).and_then(|f| f.parse().ok()).unwrap_or(0)
}

/// A first guess of the counter's rate; the writer's anchors replace it.
fn ticks_per_second() -> u64 {
    if !clock::is_tsc() {
        return 1_000_000_000;
    }
    let (t0, n0) = (clock::raw(), driver::now_ns());
    while driver::now_ns() - n0 < 200_000 {
        std::hint::spin_loop();
    }
    let (t1, n1) = (clock::raw(), driver::now_ns());
    ((t1 - t0) as u128 * 1_000_000_000 / u128::from((n1 - n0).max(1))) as u64
}

/// For who changes how much of the file is backed.
static EXTENDING: Mutex<()> = Mutex::new(());

/// Backs more rings, when the last free ones are being taken. The writer's work, and of a thread that finds none where the
/// writer does not come to it: on a machine that is busy with the program that may be long, and what a thread without a ring
/// does is lost. Whether there are more now.
pub fn extend(spool: Spool<'static>) -> bool {
    let Ok(_turn) = EXTENDING.try_lock() else { return false };
    if !spool.needs_more() {
        return false;
    }
    let fd = FD.load(Relaxed);
    // The program may have closed every descriptor, ours too, and the number may be another file's by now.
    if fd < 0 || inode(fd) != INODE.load(Relaxed) {
        NO_ROOM.store(true, Relaxed);
        return false;
    }
    let want = (spool.usable_rings() * 2).min(spool.rings()).max(STEP);
    let backed = back(fd, Spool::prefix_in_words(want, SLOTS));
    if backed {
        spool.set_usable_rings(want);
    }
    NO_ROOM.store(!backed, Relaxed);
    backed
}

/// There was no room for more rings when they were last wanted.
static NO_ROOM: AtomicBool = AtomicBool::new(false);

/// Whether there will be more rings.
pub fn may_grow(spool: Spool<'static>) -> bool {
    spool.usable_rings() < spool.rings() && !NO_ROOM.load(Relaxed)
}

/// It has no name any more.
static REMOVED: AtomicBool = AtomicBool::new(false);

/// Whether `recover` will find it there, and no launcher before.
pub fn is_left() -> bool {
    is_ours() && !REMOVED.load(Relaxed) && !path().is_empty()
}

/// Whether no launcher will look after it: it does not lie in the folder of one.
pub fn is_ours() -> bool {
    let launchers = settings::get().run_dir.as_ref();
    !launchers.is_some_and(|folder| path().starts_with(folder.as_str()))
}

/// The history is whole: the spool is not needed any more.
pub fn remove() {
    REMOVED.store(true, Relaxed);
    if !path().is_empty() {
        let c = settings::c_string(path());
        // SAFETY: a C string.
        unsafe { libc::unlink(c.as_ptr()) };
    }
}

/// After its removal something could not be written: what the rings hold is found by `recover` again. Nothing is recorded any
/// more, and the caller has the writer's lock, so that no slot is given back meanwhile.
///
/// A file without a name can't be given one, so a copy takes its place, also under the mapping: what is counted as lost from
/// here on is in it.
pub fn put_back(spool: Spool<'static>) {
    let Some(words) = WORDS.get().filter(|_| REMOVED.load(Relaxed) && !path().is_empty()) else { return };
    // A thread that is backing rings goes first, if it gets to it.
    let turn = (0..20).find_map(|round| {
        EXTENDING.try_lock().ok().or_else(|| {
            nap::growing(round);
            None
        })
    });
    // From here on nobody does.
    FD.store(-1, Relaxed);
    drop(turn);
    let used = Spool::prefix_in_words(spool.usable_rings(), SLOTS) * 8;
    let name = settings::c_string(path());
    let Some(fd) = create_file(&name) else { return };
    let place = words.as_ptr().cast_mut().cast::<c_void>();
    if !back(fd, used / 8) || !copy(words, used, fd) {
        close_and_remove(fd, &name);
        return;
    }
    let fd = high(fd);
    lock(fd);
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: whole pages of our own mapping, which is never unmapped, and a file that has them, with the same in them.
    if unsafe { libc::mmap(place, used, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) } == libc::MAP_FAILED {
        info!("{}: what is lost from here on is not counted", path());
    }
    REMOVED.store(false, Relaxed);
}

/// Writes the first bytes of it to a file. From the front: a ring's head comes before its slots, so below what was read of the
/// head all are whole.
fn copy(words: &[AtomicU64], bytes: usize, fd: i32) -> bool {
    let mut at = 0;
    while at < bytes {
        // SAFETY: a descriptor of ours, and a place within the mapping with that many bytes behind it.
        let n = unsafe { libc::write(fd, words.as_ptr().cast::<u8>().add(at).cast(), bytes - at) };
        match usize::try_from(n) {
            Ok(0) => return false,
            Ok(n) => at += n,
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}
