//! RMM's log as a history: each line an allocation or a free of device memory.
//!
//! The log has times of day and no date, so the history begins with its first line, on the first of January 1970; where the
//! time goes back, another day began. It is read twice: what is freed without having been allocated was live before.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use vramscope_core::event::{Event, EventKind, Memory};

use super::lines::Lines;
use super::{Done, Numbers};
use crate::report::text::count;

/// No line of a log is longer.
const LONGEST: u64 = 1 << 16;

/// Threads that are told apart.
const THREADS: usize = 1 << 20;

const DAY: u64 = 86_400_000_000_000;

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Allocate,
    Free,
    Failure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    thread: u64,
    /// Nanoseconds since midnight, or since the start.
    time: u64,
    action: Action,
    pointer: u64,
    size: u64,
    stream: u64,
}

/// Where the columns are.
#[derive(Clone, Copy, Debug)]
struct Columns {
    thread: Option<usize>,
    time: Option<usize>,
    action: usize,
    pointer: usize,
    size: usize,
    stream: Option<usize>,
}

impl Columns {
    fn of(header: &str) -> Option<Columns> {
        let names: Vec<&str> = header.trim_start_matches('\u{feff}').split(',').map(str::trim).collect();
        let at = |name: &str| names.iter().position(|n| *n == name);
        Some(Columns {
            thread: at("Thread"),
            time: at("Time"),
            action: at("Action")?,
            pointer: at("Pointer")?,
            size: at("Size")?,
            stream: at("Stream"),
        })
    }
}

/// Whether this is the first line of a log.
pub fn is_header(line: &[u8]) -> bool {
    std::str::from_utf8(line).ok().and_then(|l| Columns::of(l.trim_end())).is_some()
}

/// Imports a log.
pub fn import(path: &Path, to: &mut Lines) -> Result<Done> {
    // What was freed and never allocated: size and stream, in the order of the frees.
    let (mut live, mut early): (HashMap<u64, ()>, Vec<Row>) = (HashMap::new(), Vec::new());
    let mut start = None;
    each(path, |row| {
        start = start.or(Some(row.time));
        match row.action {
            Action::Allocate => drop(live.insert(row.pointer, ())),
            Action::Free if live.remove(&row.pointer).is_none() && row.pointer != 0 => early.push(row),
            Action::Free | Action::Failure => {}
        }
        Ok(())
    })?;
    // Of a pointer freed twice only the first was live before.
    let mut seen = std::collections::HashSet::new();
    early.retain(|row| seen.insert(row.pointer));
    drop((live, seen));
    let mut done = Done { live: early.len() as u64, ..Done::default() };
    let start = start.unwrap_or(0);
    to.header(path, None, 0, start)?;
    to.device(0)?;
    let mut log = Log { to, start, threads: Numbers::new(), live: HashMap::new(), now: 0, days: 0, last: 0, odd: 0 };
    for row in early {
        let thread = log.thread(row.thread)?;
        let event = log.alloc(&row);
        log.live.insert(row.pointer, (event.id, row.size));
        log.to.live(thread, event)?;
    }
    if each(path, |row| log.row(&row))? {
        done.notes.push("its last line is cut, and left out: more may be missing".to_string());
    }
    if log.odd > 0 {
        done.notes.push(format!("{} lines do not fit the ones before them: taken as far as they do", count(log.odd)));
    }
    if done.live > 0 {
        done.notes.push(format!("{} allocations were live before the log began", count(done.live)));
    }
    done.events = to.events();
    Ok(done)
}

struct Log<'l> {
    to: &'l mut Lines,
    /// Time of the first line.
    start: u64,
    threads: Numbers<u64>,
    live: HashMap<u64, (u64, u64)>,
    now: u64,
    days: u64,
    last: u64,
    odd: u64,
}

impl Log<'_> {
    fn thread(&mut self, id: u64) -> Result<u32> {
        let (thread, new) = self.threads.of(id);
        if thread as usize > THREADS {
            bail!("more than {THREADS} threads");
        }
        if new {
            self.to.thread(thread, id as u32, "")?;
        }
        Ok(thread)
    }

    fn alloc(&mut self, row: &Row) -> Event {
        Event {
            kind: EventKind::Alloc,
            memory: Memory::Device,
            time: self.now,
            id: self.to.id(),
            address: row.pointer,
            bytes: row.size,
            context: 1,
            extra: [0, row.stream, 0],
            ..Event::default()
        }
    }

    fn row(&mut self, row: &Row) -> Result<()> {
        // Threads may be a little out of order; half a day is another day.
        if row.time + DAY / 2 < self.last {
            self.days = (self.days + 1).min(36_500);
        }
        self.last = row.time;
        self.now = self.now.max((self.days * DAY + row.time).saturating_sub(self.start));
        let thread = self.thread(row.thread)?;
        let time = self.now;
        match row.action {
            Action::Allocate => {
                if let Some((id, _)) = self.live.remove(&row.pointer) {
                    self.odd += 1;
                    self.to.event(thread, Event { kind: EventKind::Free, time, id, ..Event::default() })?;
                }
                let event = self.alloc(row);
                self.live.insert(row.pointer, (event.id, row.size));
                self.to.event(thread, event)
            }
            Action::Free => {
                let Some((id, size)) = self.live.remove(&row.pointer) else {
                    // A free of nothing is allowed.
                    self.odd += u64::from(row.pointer != 0);
                    return Ok(());
                };
                self.odd += u64::from(size != row.size);
                let extra = [0, row.stream, 0];
                self.to.event(thread, Event { kind: EventKind::Free, time, id, extra, ..Event::default() })
            }
            Action::Failure => {
                let (kind, memory) = (EventKind::AllocFailed, Memory::Device);
                let extra = [0, row.stream, 0];
                let (bytes, code, context) = (row.size, 2, 1);
                self.to.event(thread, Event { kind, memory, time, bytes, code, context, extra, ..Event::default() })
            }
        }
    }
}

/// Gives every row to `each`. Whether the last line is cut. An error says the line.
fn each(path: &Path, mut each: impl FnMut(Row) -> Result<()>) -> Result<bool> {
    let place = path.display();
    let file = File::open(path).with_context(|| format!("{place}: cannot be read"))?;
    let mut file = BufReader::with_capacity(1 << 18, file);
    let (mut line, mut columns, mut n, mut cut) = (Vec::new(), None, 0u64, false);
    loop {
        line.clear();
        n += 1;
        let got =
            (&mut file).take(LONGEST).read_until(b'\n', &mut line).with_context(|| format!("{place}: line {n}"))?;
        if got == 0 {
            break;
        }
        let text = std::str::from_utf8(&line).map_err(|_| anyhow!("{place}: line {n}: not text"))?.trim_end();
        if text.is_empty() {
            continue;
        }
        let Some(columns) = columns else {
            columns = Some(Columns::of(text).ok_or_else(|| {
                anyhow!("{place}: line {n}: not the header of RMM's log (Thread,Time,Action,Pointer,Size,Stream)")
            })?);
            continue;
        };
        let whole = line.last() == Some(&b'\n');
        match row(text, &columns) {
            Ok(row) => each(row)?,
            // A program that was killed leaves half a line.
            Err(_) if !whole && (got as u64) < LONGEST => {
                cut = true;
                break;
            }
            Err(e) => bail!("{place}: line {n}: {e}"),
        }
    }
    if columns.is_none() {
        bail!("{place}: line 1: the file is empty");
    }
    Ok(cut)
}

fn row(text: &str, c: &Columns) -> Result<Row> {
    let mut fields = [""; 16];
    let mut have = 0;
    for (i, field) in text.split(',').enumerate().take(fields.len()) {
        fields[i] = field.trim();
        have = i + 1;
    }
    let field = |at: usize| if at < have { fields[at] } else { "" };
    let action = match field(c.action) {
        "allocate" => Action::Allocate,
        "free" => Action::Free,
        "allocate failure" => Action::Failure,
        other => bail!("'{}' is no action (allocate, free, allocate failure)", short(other)),
    };
    let pointer = pointer(field(c.pointer)).ok_or_else(|| anyhow!("'{}' is no pointer", short(field(c.pointer))))?;
    let size: u64 = field(c.size).parse().map_err(|_| anyhow!("'{}' is no size", short(field(c.size))))?;
    let time = match c.time {
        Some(at) => time(field(at)).ok_or_else(|| anyhow!("'{}' is no time (13:04:05.000123)", short(field(at))))?,
        None => 0,
    };
    let thread = c.thread.and_then(|at| field(at).parse().ok()).unwrap_or(0);
    // Names of streams (`default`) are the default stream.
    let stream = c.stream.and_then(|at| self::pointer(field(at))).unwrap_or(0);
    // The history's numbers are JSON's.
    if size >= 1 << 53 || pointer >= 1 << 53 {
        bail!("{size} bytes at {pointer:#x} is no range of a device");
    }
    Ok(Row { thread, time, action, pointer, size, stream: stream.min((1 << 53) - 1) })
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// As C's `%p` has it: `0x7f00`, `7f00`, `(nil)`.
fn pointer(text: &str) -> Option<u64> {
    if text == "(nil)" {
        return Some(0);
    }
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// A time of day, `13:04:05.000123` or `13:04:05:000123`; or microseconds, as old versions have it. Nanoseconds.
fn time(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let number = |i: usize| parts.get(i)?.parse::<u64>().ok().filter(|n| *n < 1 << 40);
    match parts.len() {
        1 => Some((number(0)? * 1000).min(DAY * 10_000)),
        3 | 4 => {
            let (h, m, s) = (number(0)?, number(1)?, number(2)?);
            let us = if parts.len() == 4 { number(3)? } else { 0 };
            let valid = h < 24 && m < 60 && s < 61 && us < 1_000_000;
            valid.then(|| ((h * 60 + m) * 60 + s) * 1_000_000_000 + us * 1000)
        }
        _ => None,
    }
}
