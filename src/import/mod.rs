//! What other tools wrote, as a history of ours, so that every answer works on it: PyTorch's memory snapshot, RMM's log.
//!
//! Such a file comes from somewhere. A pickle is read as data and never run ([`pickle`]); whatever the bytes are, reading
//! ends without a panic and within memory bounded by the file's size, and says in one line where it is wrong.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

mod annotations;
pub mod lines;
pub mod pickle;
pub mod pieces;
pub mod rmm;
pub mod snapshot;
pub mod torch;
mod track;
pub mod tree;

use lines::Lines;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// PyTorch's memory snapshot, a pickle
    Torch,
    /// RMM's log
    Rmm,
}

/// What was imported, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Events written.
    pub events: u64,
    /// What was live before the first of them.
    pub live: u64,
    /// What a person should know, a line each.
    pub notes: Vec<String>,
}

impl Kind {
    /// What a file is, by its first bytes.
    pub fn of(path: &Path) -> Result<Kind> {
        let mut head = Vec::new();
        let file = File::open(path).with_context(|| format!("{}: cannot be read", path.display()))?;
        file.take(4096).read_to_end(&mut head).with_context(|| format!("{}: cannot be read", path.display()))?;
        let place = path.display();
        if head.starts_with(b"PK") {
            bail!("{place}: a zip archive; unpack it, or write the snapshot with torch.cuda.memory._dump_snapshot");
        }
        if head.starts_with(b"{\"kind\":\"header\"") || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            bail!("{place}: a history of vramscope, or compressed; give what PyTorch or RMM wrote");
        }
        // Of protocol 2 and later; older ones begin with what they hold: a dict, or a list of segments.
        let old = [&b"(d"[..], b"(l", b"}q", b"]q"];
        if head.first() == Some(&0x80) || old.iter().any(|start| head.starts_with(start)) {
            return Ok(Kind::Torch);
        }
        if head.trim_ascii_start().starts_with(b"{") {
            bail!("{place}: JSON; give the pickle that torch.cuda.memory._dump_snapshot wrote");
        }
        if rmm::is_header(head.split(|b| *b == b'\n').next().unwrap_or_default()) {
            return Ok(Kind::Rmm);
        }
        bail!("{place}: neither a snapshot of PyTorch (a pickle) nor a log of RMM (Thread,Time,Action,...)")
    }

    /// Imports a file of this kind.
    pub fn import(self, path: &Path, to: &mut Lines) -> Result<Done> {
        match self {
            Kind::Torch => torch::import(path, to),
            Kind::Rmm => rmm::import(path, to),
        }
    }
}

/// Numbers for what is met the first time.
#[derive(Debug)]
struct Numbers<K>(HashMap<K, u32>);

impl<K: std::hash::Hash + Eq> Numbers<K> {
    fn new() -> Numbers<K> {
        Numbers(HashMap::new())
    }

    /// The number of a thing, from 1, and whether it is new.
    fn of(&mut self, key: K) -> (u32, bool) {
        let next = self.0.len() as u32 + 1;
        let number = *self.0.entry(key).or_insert(next);
        (number, number == next)
    }
}

#[cfg(test)]
mod tests;
