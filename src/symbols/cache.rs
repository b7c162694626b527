//! Names found before, so that a second report is instant: a file for each build id, in `$XDG_CACHE_HOME/vramscope`.
//!
//! A cache must never be noticed but by its speed: whatever is wrong with a file or the folder, it is as if it were not
//! there. A file is written whole under another name and then renamed, and holds a checksum of itself.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::Name;

/// Bytes of all files; above, the oldest go.
const LIMIT: u64 = 256 << 20;
/// Bytes of one file; one that would be larger is not written.
const LARGEST: u64 = 32 << 20;
/// How a file's first line begins. The version of the command is in it, because another one may name things otherwise.
const HEAD: &str = concat!("vramscope-names 2 ", env!("CARGO_PKG_VERSION"), " ");
/// What a file is called, behind its build id.
const ENDING: &str = "names";

/// A file that names came from, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    path: PathBuf,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: i64,
}

impl Stamp {
    /// What the file is now.
    pub fn of(path: &Path) -> Option<Stamp> {
        let m = fs::metadata(path).ok()?;
        let modified = m.mtime().checked_mul(1_000_000_000)?.checked_add(m.mtime_nsec())?;
        Some(Stamp { path: path.to_path_buf(), bytes: m.len(), modified })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What is known of one build id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The files that the names came from.
    pub files: Vec<Stamp>,
    /// Names by return address; none where the files have none.
    pub names: HashMap<u64, Vec<Name>>,
    /// Names without a line from other files than these, which may know the line.
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    pub others: HashMap<u64, Vec<Name>>,
}

impl Entry {
    /// The same build id, now with these files. What was found stays true, but where a line was missing, other files
    /// are worth another look.
    pub fn with_files(mut self, files: Vec<Stamp>) -> Entry {
        if self.files != files {
            self.files = files;
            let (names, poor) = std::mem::take(&mut self.names).into_iter().partition(|(_, n)| riches(n) == 2);
            self.names = names;
            for (address, names) in HashMap::<u64, Vec<Name>>::into_iter(poor).filter(|(_, n)| !n.is_empty()) {
                self.others.entry(address).or_insert(names);
            }
        }
        self
    }

    /// Takes what these files say of an address; what is known already stays if it says more. The richer one is given
    /// back.
    pub fn learn(&mut self, address: u64, names: Vec<Name>) -> Vec<Name> {
        let known = self.names.remove(&address).into_iter().chain(self.others.remove(&address));
        let best = known.fold(names, |best, other| if riches(&other) > riches(&best) { other } else { best });
        self.names.insert(address, best.clone());
        best
    }

    /// Adds what another report kept.
    fn merge(&mut self, other: Entry) {
        let other = other.with_files(self.files.clone());
        for (address, names) in other.names {
            match self.names.get(&address) {
                Some(known) if riches(known) >= riches(&names) => {}
                _ => drop(self.names.insert(address, names)),
            }
            if riches(&self.names[&address]) > 0 {
                self.others.remove(&address);
            }
        }
        for (address, names) in other.others {
            match self.names.get_mut(&address) {
                Some(known) if known.is_empty() => *known = names,
                Some(_) => {}
                None => drop(self.others.entry(address).or_insert(names)),
            }
        }
    }
}

/// How much names say: nothing, a function, or a line too.
fn riches(names: &[Name]) -> u8 {
    if names.iter().any(|n| n.line > 0) { 2 } else { u8::from(!names.is_empty()) }
}

/// The cache's folder.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    folder: Option<PathBuf>,
    limit: u64,
}

impl Cache {
    /// Nothing is kept.
    pub fn off() -> Cache {
        Cache::default()
    }

    /// Kept in this folder, which need not exist.
    pub fn at(folder: &Path) -> Cache {
        Cache { folder: Some(folder.to_path_buf()), limit: LIMIT }
    }

    /// The user's: `VRAMSCOPE_CACHE` is a folder, or `off`; else `$XDG_CACHE_HOME/vramscope`, else `~/.cache/vramscope`.
    pub fn of_user() -> Cache {
        Cache::of(|name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from))
    }

    fn of(variable: impl Fn(&str) -> Option<PathBuf>) -> Cache {
        match variable("VRAMSCOPE_CACHE") {
            Some(word) if word.as_os_str() == "off" => return Cache::off(),
            Some(folder) => return Cache::at(&folder),
            None => {}
        }
        let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        // A relative one would be another in each folder.
        caches.filter(|c| c.is_absolute()).map_or_else(Cache::off, |c| Cache::at(&c.join("vramscope")))
    }

    /// What was kept of a build id.
    pub fn load(&self, build_id: &str) -> Option<Entry> {
        let mut file = File::open(self.file(build_id)?).ok()?;
        if !file.metadata().is_ok_and(|m| m.is_file() && m.len() <= LARGEST) {
            return None;
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).ok()?;
        let rest = text.strip_prefix(HEAD.as_bytes())?;
        let (sum, body) = (rest.get(..16)?, rest.get(17..)?);
        if sum != checksum(body).as_bytes() {
            return None;
        }
        serde_json::from_slice(body).ok()
    }

    /// Keeps this of a build id, and what was kept before where that says more.
    pub fn save(&self, build_id: &str, entry: &Entry) {
        let mut entry = entry.clone();
        if let Some(before) = self.load(build_id) {
            entry.merge(before);
        }
        // Without a place to write, or with a full one: the next report looks again.
        let _ = self.try_save(build_id, &entry);
    }

    fn try_save(&self, build_id: &str, entry: &Entry) -> Option<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (folder, path) = (self.folder.as_ref()?, self.file(build_id)?);
        let body = serde_json::to_vec(entry).ok()?;
        if body.len() as u64 > LARGEST - 256 {
            return None;
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!(".{build_id}.{}.{count}.new", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(format!("{HEAD}{}\n", checksum(&body)).as_bytes())?;
            file.write_all(&body)?;
            fs::rename(&new, &path)
        };
        if write().is_err() {
            let _ = fs::remove_file(&new);
            return None;
        }
        self.evict(folder);
        Some(())
    }

    /// A build id comes from a history, which may hold anything: only hexadecimal digits make a file name.
    fn file(&self, build_id: &str) -> Option<PathBuf> {
        let good = (4..=128).contains(&build_id.len()) && build_id.bytes().all(|b| b.is_ascii_hexdigit());
        good.then(|| Some(self.folder.as_ref()?.join(format!("{}.{ENDING}", build_id.to_ascii_lowercase())))).flatten()
    }

    /// Removes the oldest files above the limit, and what writers left that were killed.
    fn evict(&self, folder: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let (path, modified) = (entry.path(), metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH));
            match path.extension().and_then(|e| e.to_str()) {
                Some(ENDING) if metadata.is_file() => files.push((modified, metadata.len(), path)),
                Some("new") if modified.elapsed().is_ok_and(|age| age > Duration::from_secs(3600)) => {
                    let _ = fs::remove_file(path);
                }
                _ => {}
            }
        }
        let mut all: u64 = files.iter().map(|f| f.1).sum();
        files.sort();
        for (_, bytes, path) in files {
            if all <= self.limit {
                return;
            }
            if fs::remove_file(path).is_ok() {
                all -= bytes;
            }
        }
    }
}

/// FNV-1a of eight bytes at a time: enough for what a disk or a killed writer does to a file.
fn checksum(bytes: &[u8]) -> String {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    let sum = bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(sum, u64::from_le_bytes(word))
    });
    format!("{:016x}", mix(sum, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(function: &str) -> Entry {
        let name = Name { function: function.into(), file: "a.c".into(), line: 7, inlined: true };
        let names = HashMap::from([(16, vec![name.clone(), Name::default()]), (32, Vec::new())]);
        Entry { files: Stamp::of(&std::env::current_exe().unwrap()).into_iter().collect(), names, ..Entry::default() }
    }

    #[test]
    fn a_poorer_look_never_takes_a_richer_ones_place() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let name = |function: &str, line| Name { function: function.into(), file: String::new(), line, inlined: false };
        let of = |file: &str, names: &[(u64, Vec<Name>)]| Entry {
            files: vec![Stamp { path: file.into(), bytes: 1, modified: 1 }],
            names: names.iter().cloned().collect(),
            ..Entry::default()
        };
        let rich = of("debug", &[(1, vec![name("f", 7)]), (2, vec![name("g", 0)]), (3, vec![])]);
        cache.save("abcd", &rich);
        cache.save("abcd", &of("stripped", &[(1, vec![]), (2, vec![]), (4, vec![])]));
        let kept = cache.load("abcd").unwrap();
        assert_eq!((kept.names[&1][0].line, &*kept.names[&2][0].function), (7, "g"));
        // What the debug file did not know, the stripped one may; and the other way round.
        assert!(!kept.names.contains_key(&3) && kept.names.contains_key(&4));
        let mut again = kept.with_files(rich.files.clone());
        assert!(again.names.contains_key(&1) && !again.names.contains_key(&2) && !again.names.contains_key(&4));
        assert_eq!(again.learn(2, vec![]), [name("g", 0)]);
        assert_eq!(again.learn(2, vec![name("g", 9)]), [name("g", 9)]);
        assert_eq!(again.learn(2, vec![name("h", 0)]), [name("g", 9)]);
        assert!(again.others.is_empty());
    }

    #[test]
    fn what_was_kept_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("a/b"));
        assert_eq!(cache.load("abcd"), None);
        cache.save("abcd", &entry("f"));
        assert_eq!(cache.load("ABCD"), Some(entry("f")));
        cache.save("abcd", &entry("g"));
        assert_eq!(cache.load("abcd"), Some(entry("g")));
        assert_eq!(cache.load("abce"), None);
        let left: Vec<_> = fs::read_dir(folder.path().join("a/b")).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["abcd.names"]);
    }

    #[test]
    fn a_damaged_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        cache.save("abcd", &entry("f"));
        let path = folder.path().join("abcd.names");
        let good = fs::read(&path).unwrap();
        for cut in 0..good.len() {
            fs::write(&path, &good[..cut]).unwrap();
            assert_eq!(cache.load("abcd"), None, "cut to {cut}");
            let mut bad = good.clone();
            bad[cut] ^= 4;
            fs::write(&path, &bad).unwrap();
            // The byte between checksum and text holds nothing.
            assert!(cache.load("abcd").is_none_or(|e| e == entry("f")), "byte {cut}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for cache in [Cache::off(), Cache::at(&file), Cache::at(&file.join("below")), Cache::at(Path::new("/proc/no"))]
        {
            cache.save("abcd", &entry("f"));
            assert_eq!(cache.load("abcd"), None);
        }
        let cache = Cache::at(folder.path());
        for id in ["", "ab", "../../abcd", "abcd/ef", &"a".repeat(200)] {
            cache.save(id, &entry("f"));
            assert_eq!(cache.load(id), None);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_oldest_files_go() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = Cache::at(folder.path());
        let now = SystemTime::now();
        for (age, id) in [(300, "aaaa"), (200, "bbbb"), (100, "cccc")] {
            cache.save(id, &entry("f"));
            let file = File::options().write(true).open(folder.path().join(format!("{id}.names"))).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
        }
        let bytes = fs::metadata(folder.path().join("aaaa.names")).unwrap().len();
        cache.limit = 2 * bytes;
        cache.save("dddd", &entry("f"));
        let kept = ["aaaa", "bbbb", "cccc", "dddd"].map(|id| cache.load(id).is_some());
        assert_eq!(kept, [false, false, true, true]);
    }

    #[test]
    fn writers_at_once_leave_a_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let names: Vec<String> = (0..4).map(|i| char::from(b'a' + i).to_string().repeat(5000)).collect();
        std::thread::scope(|s| {
            for name in &names {
                let cache = &cache;
                s.spawn(move || (0..50).for_each(|_| cache.save("abcd", &entry(name))));
            }
            for _ in 0..200 {
                let Some(e) = cache.load("abcd") else { continue };
                assert!(names.iter().any(|n| e == entry(n)));
            }
        });
        assert!(cache.load("abcd").is_some());
    }

    #[test]
    fn where_it_is() {
        let of = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|s| s.0 == name).map(|s| PathBuf::from(s.1));
            Cache::of(find).folder.map(|f| f.display().to_string())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("HOME", "/h")]).as_deref(), Some("/h/.cache/vramscope"));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).as_deref(), Some("/x/vramscope"));
        assert_eq!(of(&[("HOME", "/h"), ("VRAMSCOPE_CACHE", "off")]), None);
        assert_eq!(of(&[("HOME", "/h"), ("VRAMSCOPE_CACHE", "/v")]).as_deref(), Some("/v"));
        assert_eq!(of(&[("XDG_CACHE_HOME", "here")]), None);
    }
}
