//! The parts of a rotated history: which files they are, and whether one is missing or lacks something.

use std::io;
use std::path::{Path, PathBuf};

use super::Header;
use super::read::{Chunks, Damage, ReadError, ReadErrorKind};

/// The files of a history, oldest first: a rotated one has an older part beside it.
pub fn parts(path: &Path) -> Vec<PathBuf> {
    let older = super::older_part(path);
    let part = |path: &Path| Chunks::open_part(path, u64::MAX).ok().map(|chunks| chunks.header().clone());
    // What is no regular file can be read once only: it is not opened without need.
    let Some(before) = part(&older) else { return vec![path.to_owned()] };
    match part(path) {
        // The older part of this history, not of another that had the name.
        Some(part) if before.same_run(&part) && before.part.checked_add(1) == Some(part.part) => {
            vec![older, path.to_owned()]
        }
        // Killed between the renaming of the old part and the creation of the new one.
        None if !path.exists() => vec![older],
        _ => vec![path.to_owned()],
    }
}

/// What is missing of a history of which these files are there, the first of them with this header: a part that a rotation
/// left beside another one. (Those before it are dropped on purpose.)
pub(crate) fn missing(path: &Path, files: &[PathBuf], header: &Header) -> Option<Damage> {
    let damage = |path: &Path, what| Some(Damage { path: path.to_owned(), line: 0, byte: 0, what, places: 1 });
    let no_last = |path: &Path| {
        damage(path, format!("this last part of the history is missing; what is read is part {}", header.part))
    };
    if files.first().is_some_and(|first| first != path) {
        let last = files.last().map(PathBuf::as_path) == Some(path);
        return if last { None } else { no_last(path) };
    }
    if header.dropped {
        return None;
    }
    if let Some(newer) = newer_of(path, header) {
        return no_last(&newer);
    }
    if header.part == 0 {
        return None;
    }
    let older = super::older_part(path);
    let part = header.part - 1;
    let instead = match Chunks::open_part(&older, u64::MAX).map(|chunks| chunks.header().clone()) {
        Ok(there) if there.same_run(header) => format!("here is part {}", there.part),
        Ok(_) => "here is one of another run".to_owned(),
        Err(ReadError { kind: ReadErrorKind::Io(e), .. }) if e.kind() == io::ErrorKind::NotFound => {
            "there is no such file".to_owned()
        }
        Err(_) => "this file cannot be read".to_owned(),
    };
    let behind = path.file_name().unwrap_or_default().display();
    damage(&older, format!("part {part} of the history, which comes before {behind}, is missing ({instead})"))
}

/// The history of which the file with this header is the older part, given by its own name. Alone it has no end, and one written
/// into it would be damage.
pub(crate) fn part_of(path: &Path, header: &Header) -> Option<PathBuf> {
    let newer = named_by(path)?;
    let there = Chunks::open_part(&newer, u64::MAX).ok()?;
    let there = there.header();
    (there.same_run(header) && header.part.checked_add(1) == Some(there.part)).then_some(newer)
}

/// The newer part of the history that the file with this header is the older part of, by its name. (A file may be named so by a
/// person, but not one of a history that is rotated.)
pub(crate) fn newer_of(path: &Path, header: &Header) -> Option<PathBuf> {
    let rotates = header.part > 0 || header.settings.get("VRAMSCOPE_MAX_TRACE").is_some_and(|most| most != "0");
    named_by(path).filter(|_| rotates && !header.dropped)
}

/// The history whose older part has this name.
pub fn named_by(path: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().strip_suffix(b".1").map(|newer| std::ffi::OsStr::from_bytes(newer).into())
}

/// Counts events from part to part.
#[derive(Clone, Debug, Default)]
pub struct Held(u64);

impl Held {
    /// At the beginning of a history.
    pub fn new(header: &Header) -> Held {
        Held(header.events_before)
    }

    /// So many events more.
    pub fn add(&mut self, events: u64) {
        self.0 = self.0.saturating_add(events);
    }

    /// A part begins that counts so many events before it: what is wrong, if that is not what was read.
    pub fn begin(&mut self, path: &Path, before: u64, damage: &mut Option<Damage>) {
        let held = std::mem::replace(&mut self.0, before);
        if held != before {
            let (n, which) = if held < before { (before - held, "fewer") } else { (held - before, "more") };
            let what = format!("the part before holds {n} events {which} than this one counts before it");
            Damage::add_here(damage, path, 1, 0, &what);
        }
    }
}
