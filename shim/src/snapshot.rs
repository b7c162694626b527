//! A snapshot: what is live at one moment, as a history of its own. The writer thread copies the state, and another thread
//! writes it, because hooks wait for the writer.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::Duration;

use crossbeam_channel::bounded;
use vramscope_core::record::Snapshot;

use crate::message::{error, info};
use crate::writer::{self, Request};
use crate::{background, recorder, settings, signals, state};

/// How long the writer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes a snapshot to this path (`.zst` compresses; a file that exists is not replaced), and gives the name that it got. Any
/// thread may ask.
pub fn write(path: &Path) -> Result<PathBuf, String> {
    if !state::started() || !recorder::recording() {
        return Err("nothing is recorded (VRAMSCOPE_TRACE=off, or recording stopped): there is no snapshot".to_owned());
    }
    if path.as_os_str().is_empty() {
        return Err("a snapshot needs a path".to_owned());
    }
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(format!("{}: is no regular file, so no snapshot is written there", path.display()));
    }
    let (to, from) = bounded(1);
    if !writer::ask(Request::Snapshot(to)) {
        return Err("the writer has too much to do for a snapshot".to_owned());
    }
    match from.recv_timeout(PATIENCE) {
        Ok(Ok(snapshot)) => save(&snapshot, path),
        Ok(Err(e)) => Err(format!("no snapshot: writing the history failed ({})", plain(&e.to_string()))),
        Err(_) => Err("the writer is stuck: no snapshot".to_owned()),
    }
}

fn save(snapshot: &Snapshot, path: &Path) -> Result<PathBuf, String> {
    let saved = signals::held_off(|| snapshot.save(path));
    saved.map_err(|e| format!("{}: the snapshot can't be written ({})", path.display(), plain(&e.to_string())))
}

/// What the system says, without the ` (os error 2)` that Rust adds.
pub fn plain(error: &str) -> &str {
    error.split(" (os error ").next().unwrap_or(error)
}

// ---- by a signal -------------------------------------------------------------------------------------------------------

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_: i32) {
    ASKED.store(true, Relaxed);
}

/// Listens to the signal that was set, unless the program does.
pub fn watch() {
    let Some(signal) = settings::get().snapshot_signal else { return };
    // SAFETY: all zeroes are a valid sigaction.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    ours.sa_sigaction = ask as *const () as usize;
    ours.sa_flags = libc::SA_RESTART;
    // SAFETY: pointers to locals.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut before) };
    if before.sa_sigaction != libc::SIG_DFL {
        error!("VRAMSCOPE_SNAPSHOT_SIGNAL: the program handles that signal itself; no snapshots by it");
        return;
    }
    // SAFETY: a handler that stores one word.
    unsafe { libc::sigaction(signal, &ours, std::ptr::null_mut()) };
}

/// Whether the signal came. The writer thread asks.
pub fn asked() -> bool {
    ASKED.load(Relaxed) && ASKED.swap(false, Relaxed)
}

/// Has one written beside the history, as `NAME.snapshot-N.jsonl`.
pub fn beside(trace: &Path) {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = match [".jsonl.zst", ".jsonl"].iter().find_map(|e| Some((name.strip_suffix(e)?, *e))) {
        Some(split) => split,
        None => (name.as_str(), ".jsonl"),
    };
    let path = trace.with_file_name(format!("{stem}.snapshot-{}{extension}", NUMBER.fetch_add(1, Relaxed)));
    let write = move || {
        state::guarded("a snapshot", || match write(&path) {
            Ok(path) => info!("snapshot: {}", path.display()),
            Err(what) => error!("{what}"),
        });
    };
    if let Err(e) = background::start(c"vramscope-snap", 512 << 10, write) {
        error!("no thread for the snapshot (error {e})");
    }
}
