//! The rows of the tables, from a history.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use serde_json::json;
use vramscope_core::counters::{NAMES, PER_EVENT};
use vramscope_core::event::{Event, EventKind, Source as Served, TrimWhy};
use vramscope_core::trace::Oom;

use super::schema::{TABLES, table};
use super::{Cell, File, Sheet, partition, text};
use crate::export::lives::{self, Life, Lives, SegmentLife, SegmentLives};
use crate::export::owners::PyTorch;
use crate::export::play::{Allocation, Step, What};
use crate::export::regions::{Region, Regions, Turn};
use crate::export::select::layer_name;
use crate::export::{Source, Target, labels};

/// Writes all tables of a history. Says how many rows they have.
pub fn write(source: &mut Source, file: File, folder: &Path, run: &str) -> Result<u64> {
    source.resolve_all();
    let mut out = Filler::new(source, file, folder, run)?;
    out.definitions()?;
    let mut lives = Lives::default();
    let mut segments = SegmentLives::default();
    source.play(&mut |step| {
        if let Some(turn) = out.regions.step(step) {
            out.turn(turn)?;
        }
        out.step(step)?;
        if let Some(life) = segments.step(step) {
            out.segment(&life)?;
        }
        let around = out.regions.around(step.thread);
        lives.step(step, around, &mut |life| out.life(life))
    })?;
    lives.finish(&mut |life| out.life(life))?;
    segments.rest().iter().try_for_each(|life| out.segment(life))?;
    for region in out.regions.rest() {
        out.region(&region, None)?;
    }
    out.finish()
}

/// Makes rows.
pub(super) struct Filler<'s> {
    pub(super) source: &'s Source,
    process: String,
    sheets: BTreeMap<&'static str, Box<dyn Sheet>>,
    rows: u64,
    regions: Regions,
    pytorch: PyTorch,
    places: HashMap<(u32, u32), Rc<str>>,
    paths: HashMap<u32, Rc<str>>,
}

/// The tables of a history, and the file of each.
pub fn paths<'a>(
    source: &'a Source,
    file: File,
    folder: &'a Path,
    run: &'a str,
) -> impl Iterator<Item = (&'static str, PathBuf)> + 'a {
    TABLES.iter().map(move |t| (t.name, partition::path(folder, t.name, run, source, file)))
}

impl<'s> Filler<'s> {
    fn new(source: &'s Source, file: File, folder: &Path, run: &str) -> Result<Filler<'s>> {
        let mut sheets = BTreeMap::new();
        for (name, path) in paths(source, file, folder, run) {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
            }
            sheets.insert(name, file.sheet(table(name), &Target::Path(path))?);
        }
        let process = partition::process(&source.history.header);
        let pytorch = PyTorch::of(source);
        let (rows, regions, places, paths) = Default::default();
        Ok(Filler { source, process, sheets, rows, regions, pytorch, places, paths })
    }

    fn finish(self) -> Result<u64> {
        for (_, sheet) in self.sheets {
            sheet.finish()?;
        }
        Ok(self.rows)
    }

    /// Adds a row; its first cell is the process.
    pub(super) fn row(&mut self, table: &'static str, cells: &[Cell]) -> Result<()> {
        let Some(sheet) = self.sheets.get_mut(table) else { return Ok(()) };
        let mut row = Vec::with_capacity(cells.len() + 1);
        row.push(Cell::Text(&self.process));
        row.extend_from_slice(cells);
        self.rows += 1;
        sheet.row(&row)
    }

    /// A time of day.
    pub(super) fn wall(&self, ns: u64) -> Cell<'static> {
        Cell::int(self.source.wall(ns))
    }

    /// Where a stack is, in one line.
    fn place(&mut self, stack: u32, caller: u32) -> Rc<str> {
        let source = self.source;
        let place = || labels::stack(source, &source.frames(stack), caller).into();
        self.places.entry((stack, caller)).or_insert_with(place).clone()
    }

    fn device(&self, context: u16) -> Cell<'static> {
        if context == 0 {
            return Cell::None;
        }
        self.source.contexts.get(&context).map_or(Cell::None, |d| Cell::int((*d).into()))
    }

    fn step(&mut self, step: &Step<'_>) -> Result<()> {
        match step.what {
            // What was before the window is no event of it.
            _ if step.before => Ok(()),
            // One that comes back because its free failed, or leaves the pool, is no new one.
            What::Alloc(a) if a.event.time != step.time => Ok(()),
            What::Alloc(a) => self.event(step, &a.event, Some(a), Cell::None),
            What::Free(a, by) if by.kind == EventKind::Free => self.event(step, by, Some(a), Cell::None),
            What::SegmentAlloc(s) => self.event(step, &s.event, None, Cell::None),
            What::SegmentFree(_, by) if by.kind == EventKind::SegmentFree => self.event(step, by, None, Cell::None),
            What::Map(of, e) => self.event(step, e, of, Cell::None),
            What::Oom(oom) => self.oom(oom),
            What::Other(e) => self.other(step, e),
            What::Free(..) | What::SegmentFree(..) => Ok(()),
        }
    }

    fn other(&mut self, step: &Step<'_>, e: &Event) -> Result<()> {
        let source = self.source;
        let named = |n: u64| source.texts.get(&(n as u32)).map_or(Cell::None, |t| text(t));
        let thread = Cell::int(step.thread.into());
        match e.kind {
            EventKind::Sample => {
                let cells = [
                    self.wall(e.time),
                    Cell::int(e.time),
                    self.device(e.context),
                    Cell::int(e.bytes),
                    Cell::int(e.block),
                    Cell::int(e.block.saturating_sub(e.bytes)),
                    Cell::int(e.extra[0]),
                    Cell::int(e.extra[1]),
                    Cell::some(e.context.into()),
                ];
                return self.row("samples", &cells);
            }
            EventKind::Counters => return self.counters(e),
            EventKind::Mark => {
                let number = Cell::int(self.regions.around(step.thread).marks.into());
                let cells = [self.wall(e.time), Cell::int(e.time), thread, number, named(e.extra[0])];
                self.row("marks", &cells)?;
            }
            _ => {}
        }
        let said = match e.kind {
            EventKind::Mark | EventKind::RegionBegin => named(e.extra[0]),
            EventKind::Trim => TrimWhy::from_number(e.code as u8).map_or(Cell::None, |w| Cell::Text(w.name())),
            _ => Cell::None,
        };
        self.event(step, e, None, said)
    }

    /// A row of `events`. `of`: the allocation it is about.
    fn event(&mut self, step: &Step<'_>, e: &Event, of: Option<&Allocation>, said: Cell) -> Result<()> {
        let source = self.source;
        let thread = source.threads.get(&step.thread);
        let about = of.map_or(e, |a| &a.event);
        let allocates = matches!(e.kind, EventKind::Alloc | EventKind::Free);
        let place = matches!(e.kind, EventKind::Alloc | EventKind::Map | EventKind::SegmentAlloc);
        // Of a free, only the stream is its own.
        let [segment, stream, took] = match e.kind {
            EventKind::Alloc | EventKind::SegmentAlloc | EventKind::SegmentFree => e.extra,
            EventKind::Free => [about.extra[0], e.extra[1], e.extra[2]],
            EventKind::AllocFailed | EventKind::BadFree | EventKind::FreeFailed => [0, e.extra[1], e.extra[2]],
            _ => [0; 3],
        };
        let (bytes, address) = if place { (e.bytes, e.address) } else { (about.bytes, about.address) };
        let block = match of {
            Some(a) if allocates => Cell::int(a.block()),
            _ => Cell::None,
        };
        let how = match e.kind {
            EventKind::Alloc => Cell::Text(Served::from_number(e.how).map_or("driver", Served::name)),
            EventKind::Free => Cell::Text(lives::how(e.kind, e.how)),
            _ => Cell::None,
        };
        let trim = e.kind == EventKind::Trim;
        let cells = [
            self.wall(e.time),
            Cell::int(e.time),
            Cell::int(step.thread.into()),
            thread.map_or(Cell::None, |t| Cell::int(t.tid.into())),
            thread.map_or(Cell::None, |t| text(&t.name)),
            Cell::Text(e.kind.name()),
            Cell::some(e.id),
            Cell::some(address),
            Cell::some(bytes),
            block,
            Cell::some(segment),
            of.map_or(Cell::None, |a| text(layer_name(a.layer))),
            if about.memory.name() == "none" { Cell::None } else { Cell::Text(about.memory.name()) },
            text(e.api.name()),
            how,
            Cell::some(about.context.into()),
            of.map_or_else(|| self.device(e.context), |a| Cell::int(a.device.into())),
            if trim { Cell::None } else { Cell::some(e.code.into()) },
            Cell::some(e.stack.into()),
            if e.caller == 0 { Cell::None } else { text(source.history.module_name(e.caller)) },
            Cell::some(stream),
            Cell::some(took),
            said,
        ];
        self.row("events", &cells)
    }

    fn life(&mut self, life: &Life) -> Result<()> {
        let source = self.source;
        let (a, e) = (&life.allocation, &life.allocation.event);
        let place = self.place(e.stack, e.caller);
        let regions = &self.regions;
        let path = || regions.path(life.around.path, &source.texts).into();
        let region = self.paths.entry(life.around.path).or_insert_with(path).clone();
        let mark = (life.around.marks as usize).checked_sub(1).and_then(|i| source.marks.get(i));
        let ended = |of: &dyn Fn(&lives::Ended) -> Cell<'static>| life.ended.as_ref().map_or(Cell::None, of);
        let cells = [
            Cell::int(e.id),
            self.wall(e.time),
            Cell::int(e.time),
            ended(&|x| self.wall(x.time)),
            ended(&|x| Cell::int(x.time)),
            ended(&|x| Cell::int(x.time.saturating_sub(e.time))),
            Cell::int(e.bytes),
            Cell::int(a.block()),
            Cell::some(e.address),
            text(layer_name(a.layer)),
            Cell::Bool(self.pytorch.is_segment(a)),
            Cell::Text(e.memory.name()),
            Cell::Text(Served::from_number(e.how).map_or("driver", Served::name)),
            text(e.api.name()),
            Cell::some(e.extra[0]),
            Cell::int(a.device.into()),
            Cell::some(e.context.into()),
            Cell::some(e.extra[1]),
            Cell::some(e.extra[2]),
            Cell::some(e.stack.into()),
            text(&place),
            if e.caller == 0 { Cell::None } else { text(source.history.module_name(e.caller)) },
            Cell::int(a.thread.into()),
            source.threads.get(&a.thread).map_or(Cell::None, |t| text(&t.name)),
            text(&region),
            mark.map_or(Cell::None, |m| text(&m.1)),
            Cell::int(life.around.marks.into()),
            ended(&|x| Cell::Text(x.how)),
            ended(&|x| Cell::int(x.thread.into())),
            ended(&|x| Cell::some(x.stack.into())),
        ];
        self.row("allocations", &cells)
    }

    fn segment(&mut self, life: &SegmentLife) -> Result<()> {
        let (s, e) = (&life.segment, &life.segment.event);
        let cells = [
            Cell::int(e.id),
            self.wall(e.time),
            Cell::int(e.time),
            life.ended.map_or(Cell::None, |x| self.wall(x.0)),
            life.ended.map_or(Cell::None, |x| Cell::int(x.0)),
            Cell::int(s.bytes()),
            Cell::some(e.address),
            Cell::int(s.device.into()),
            Cell::some(e.context.into()),
            Cell::some(e.extra[2]),
            life.ended.map_or(Cell::None, |x| Cell::Text(x.1)),
        ];
        self.row("segments", &cells)
    }

    fn turn(&mut self, turn: Turn) -> Result<()> {
        match turn {
            Turn::Begin(_) => Ok(()),
            Turn::End(region, time) => self.region(&region, Some(time)),
        }
    }

    fn region(&mut self, r: &Region, end: Option<u64>) -> Result<()> {
        let source = self.source;
        let path = self.regions.path(r.path, &source.texts);
        let cells = [
            self.wall(r.begin),
            Cell::int(r.begin),
            end.map_or(Cell::None, |t| self.wall(t)),
            end.map_or(Cell::None, Cell::int),
            Cell::int(r.thread.into()),
            source.texts.get(&r.text).map_or(Cell::None, |t| text(t)),
            text(&path),
            Cell::Bool(r.process),
        ];
        self.row("regions", &cells)
    }

    /// One event holds a page of counters.
    fn counters(&mut self, e: &Event) -> Result<()> {
        let [a, b, c] = e.extra;
        let values = [e.id, e.address, e.bytes, e.block, a, b, c];
        let names = NAMES.iter().skip(usize::from(e.code) * PER_EVENT);
        for (name, value) in names.zip(values) {
            let cells = [self.wall(e.time), Cell::int(e.time), text(name), Cell::int(value)];
            self.row("counters", &cells)?;
        }
        Ok(())
    }

    fn oom(&mut self, oom: &Oom) -> Result<()> {
        let place = self.place(oom.stack, 0);
        let holder = |h: &vramscope_core::trace::Holder| {
            let place = self.place(h.stack, h.caller);
            json!({"bytes": h.bytes, "count": h.count, "place": &*place, "stack": h.stack})
        };
        let holders = json!(oom.holders.iter().map(holder).collect::<Vec<_>>()).to_string();
        let advice = oom.advice.join("\n");
        let limit = oom.limit.as_ref();
        let cells = [
            self.wall(oom.time),
            Cell::int(oom.time),
            Cell::int(oom.thread.into()),
            Cell::int(oom.device.into()),
            text(&oom.what),
            Cell::int(oom.asked),
            Cell::some(oom.segment),
            Cell::int(oom.free),
            Cell::int(oom.total),
            limit.map_or(Cell::None, |l| Cell::int(l.bytes)),
            limit.map_or(Cell::None, |l| Cell::int(l.used)),
            limit.map_or(Cell::None, |l| text(&l.by)),
            Cell::int(oom.pytorch_active),
            Cell::int(oom.pytorch_inactive),
            Cell::int(oom.pytorch_largest),
            Cell::int(oom.pool_active),
            Cell::int(oom.pool_inactive),
            Cell::int(oom.pool_largest),
            Cell::int(oom.outside),
            Cell::int(oom.rest),
            oom.others.map_or(Cell::None, Cell::int),
            Cell::some(oom.stack.into()),
            text(&place),
            text(&holders),
            text(&advice),
        ];
        self.row("ooms", &cells)
    }
}
