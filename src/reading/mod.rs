//! A history read in parallel: one thread reads and decompresses, others parse, and who asked plays the batches in the
//! order of the file. At most a few chunks are on their way at a time, so memory does not grow with the history.
//!
//! It is here and not in core, because the preload library must start no thread for this.

use std::fs;
use std::panic;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use vramscope_core::trace::Header;
use vramscope_core::trace::read::{Batch, Chunk, Chunks, Damage, Held, Parser, ReadError};

#[cfg(test)]
mod tests;

/// More threads would wait for the one that plays.
const MOST: usize = 4;
/// Chunks, and batches, that may wait at each thread that parses.
const WAITING: usize = 2;
/// A smaller file is read before the threads would have started.
const SMALL: u64 = 256 << 10;

/// The lines of a history in batches, all its parts.
#[derive(Debug)]
pub struct Batches {
    header: Header,
    work: Work,
    damage: Option<Damage>,
    held: Held,
    exited: bool,
    another: bool,
}

#[derive(Debug)]
enum Work {
    Here(Box<Chunks>, Parser),
    Threads(Threads),
}

/// Chunk n goes to thread n modulo their number, and its batch is taken from there.
#[derive(Debug)]
struct Threads {
    batches: Vec<Receiver<Batch>>,
    next: usize,
    handles: Vec<JoinHandle<()>>,
}

impl Batches {
    /// Opens a history. The older part of a rotated one is read first.
    pub fn open(path: &Path) -> Result<Batches, ReadError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // Of what is no file the size is 0.
        let small = fs::metadata(path).is_ok_and(|there| there.len() < SMALL);
        Batches::with_threads(path, if small { 0 } else { cores.min(MOST) })
    }

    /// The same with so many threads that parse; 0: none is started.
    pub fn with_threads(path: &Path, threads: usize) -> Result<Batches, ReadError> {
        let chunks = Chunks::open(path)?;
        let header = chunks.header().clone();
        let (damage, held) = (chunks.missing().cloned(), Held::new(&header));
        let work = if threads == 0 {
            Work::Here(Box::new(chunks), Parser::default())
        } else {
            match Threads::start(chunks, threads) {
                Some(threads) => Work::Threads(threads),
                // The system gives no more threads.
                None => Work::Here(Box::new(Chunks::open(path)?), Parser::default()),
            }
        };
        Ok(Batches { header, work, damage, held, exited: false, another: false })
    }

    /// The header. It is not among the lines of the batches.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What had to be left out so far; all of it, after the last batch.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }
}

impl Iterator for Batches {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        if self.another {
            return None;
        }
        let batch = match &mut self.work {
            Work::Here(chunks, parser) => chunks.next()?.parse(parser),
            Work::Threads(threads) => threads.next()?,
        };
        self.another = batch.meets_another();
        if let Some(before) = batch.before() {
            self.held.begin(batch.path(), before, &mut self.damage);
        }
        self.held.add(batch.events());
        self.exited |= batch.exited();
        for damage in batch.damage().into_iter().chain(batch.cut().filter(|_| !self.exited)) {
            Damage::add(&mut self.damage, damage);
        }
        Some(batch)
    }
}

impl Threads {
    fn start(chunks: Chunks, threads: usize) -> Option<Threads> {
        let (mut lanes, mut batches, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        let builder = |name: &str| thread::Builder::new().name(name.to_owned());
        for _ in 0..threads {
            let (chunk_in, chunk_out) = sync_channel(WAITING);
            let (batch_in, batch_out) = sync_channel(WAITING);
            handles.push(builder("parse").spawn(move || parse(&chunk_out, &batch_in)).ok()?);
            lanes.push(chunk_in);
            batches.push(batch_out);
        }
        handles.push(builder("read").spawn(move || read(chunks, &lanes)).ok()?);
        Some(Threads { batches, next: 0, handles })
    }

    fn next(&mut self) -> Option<Batch> {
        let lane = self.batches.get(self.next)?;
        if let Ok(batch) = lane.recv() {
            self.next = (self.next + 1) % self.batches.len();
            return Some(batch);
        }
        // All was read; or a thread broke, and so does this one.
        self.batches.clear();
        for handle in self.handles.drain(..) {
            if let Err(broke) = handle.join() {
                panic::resume_unwind(broke);
            }
        }
        None
    }
}

fn read(chunks: Chunks, lanes: &[SyncSender<Chunk>]) {
    for (chunk, lane) in chunks.zip(lanes.iter().cycle()) {
        // Nobody wants more.
        if lane.send(chunk).is_err() {
            return;
        }
    }
}

fn parse(chunks: &Receiver<Chunk>, batches: &SyncSender<Batch>) {
    let mut parser = Parser::default();
    for chunk in chunks {
        if batches.send(chunk.parse(&mut parser)).is_err() {
            return;
        }
    }
}
