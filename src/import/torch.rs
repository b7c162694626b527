//! PyTorch's memory snapshot as a history: its segments as what its allocator took from the driver, its blocks as
//! tensors in them, as if vramscope had watched the same program with nothing but PyTorch in it.
//!
//! The trace is the end of what happened, because PyTorch keeps it in a ring. What was live before it is found by going
//! through it once: what ends without having begun, and what is there at the end without having begun.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::Done;
use super::annotations::Annotations;
use super::lines::{Lines, Place};
use super::pickle;
use super::snapshot::Snapshot;
use super::track::Track;
use super::tree::Value;
use crate::report::text::count;

/// Imports a snapshot.
pub fn import(path: &Path, to: &mut Lines) -> Result<Done> {
    let place = || format!("{}", path.display());
    let file = File::open(path).with_context(|| format!("{}: cannot be read", place()))?;
    let (tree, root) =
        pickle::read(BufReader::with_capacity(1 << 18, file)).map_err(|e| anyhow!("{}: {e:#}", place()))?;
    let snapshot = Snapshot::new(tree, root).map_err(|e| anyhow!("{}: {e:#}", place()))?;
    convert(path, &snapshot, to).map_err(|e| anyhow!("{}: {e:#}", place()))
}

fn convert(path: &Path, snapshot: &Snapshot, to: &mut Lines) -> Result<Done> {
    let mut devices: Vec<Track> = (0..snapshot.devices).map(|d| Track::before(snapshot, d)).collect::<Result<_>>()?;
    let annotations = snapshot.annotations();
    let start = devices.iter().filter_map(|d| d.first).chain(annotations.iter().map(|a| a.1)).min().unwrap_or(0);
    let program = snapshot.of_program("program").map(|p| snapshot.tree.text(p).to_string());
    let pid =
        snapshot.of_program("pid").and_then(|p| if let Value::Number(n) = p { u32::try_from(n).ok() } else { None });
    to.header(path, program, pid.unwrap_or(0), start.saturating_mul(1000))?;
    to.modules()?;
    let mut names = Names::default();
    let mut done = Done::default();
    let told = |t: &Track| t.cut || snapshot.entries(t.device) > 0;
    // Of a machine's devices the snapshot names all.
    let some = devices.iter().any(told);
    devices.retain(|t| told(t) || !some && t.device == 0);
    for track in &mut devices {
        to.device(track.device)?;
        to.thread(track.device + 1, 0, &format!("GPU {}", track.device))?;
        track.live(snapshot, &mut names, to, &mut done)?;
    }
    // By time over all devices, each device's in its own order.
    let mut said = Annotations::new(annotations, start);
    loop {
        let next = devices.iter_mut().filter_map(|d| Some((d.peek(snapshot, start).transpose()?, d)));
        let mut best: Option<(u64, &mut Track)> = None;
        for (time, track) in next {
            let time = time?;
            if best.as_ref().is_none_or(|(t, _)| time < *t) {
                best = Some((time, track));
            }
        }
        let Some((time, track)) = best else { break };
        said.until(time, to)?;
        track.step(snapshot, time, &mut names, to)?;
    }
    said.until(u64::MAX, to)?;
    done.events = to.events();
    let (odd, cut) = devices.iter().fold((0, 0), |(a, b), d| (a + d.odd, b + u64::from(d.cut)));
    if odd > 0 {
        done.notes.push(format!("{} entries do not fit the ones before them: taken as far as they do", count(odd)));
    }
    if cut > 0 && done.events > 0 {
        done.notes.push(format!(
            "its trace is not whole (PyTorch keeps the last entries, and only while recording is on): {} allocations were live before it",
            count(done.live)
        ));
    }
    Ok(done)
}

/// Stacks by the list of frames that they come from.
#[derive(Default)]
pub struct Names {
    lists: HashMap<u32, u32>,
}

impl Names {
    /// The number of the stack of these frames; 0: none.
    pub fn stack(&mut self, snapshot: &Snapshot, frames: Option<Value>, to: &mut Lines) -> Result<u32> {
        let Some(Value::List(list)) = frames else { return Ok(0) };
        if let Some(stack) = self.lists.get(&list) {
            return Ok(*stack);
        }
        let tree = &snapshot.tree;
        let text = |f, key: &str| tree.get(f, key).map_or(String::new(), |t| tree.text(t).to_string());
        let mut places = Vec::new();
        for frame in tree.list(Value::List(list)).unwrap_or_default() {
            let (function, file) = (text(*frame, "name"), text(*frame, "filename"));
            if said_by_torch(&function, &file) {
                continue;
            }
            let file = if file == "??" { String::new() } else { file };
            let line = tree.number(*frame, "line").and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
            places.push(Place { function, file, line });
        }
        let stack = to.stack(&places)?;
        self.lists.insert(list, stack);
        Ok(stack)
    }
}

/// Frames that PyTorch's own viewer leaves out: how it gathers a stack, and the interpreter.
fn said_by_torch(function: &str, file: &str) -> bool {
    const FUNCTIONS: [&str; 6] =
        ["unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "PyEval_", "PyObject_", "PyFunction_"];
    const FILES: [&str; 8] = [
        "core/boxing",
        "pythonrun.c",
        "Modules/main.c",
        "Objects/call.c",
        "Objects/methodobject.c",
        "pycore_ceval.h",
        "ceval.c",
        "cpython/abstract.h",
    ];
    FUNCTIONS.iter().any(|f| function.contains(f)) || FILES.iter().any(|f| file.contains(f))
}
