//! A job as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::odd::Odd;
use super::rank::Rank;
use super::steps::Step;
use super::total::Total;
use super::{Differing, Job};
use crate::diff::headline;
use crate::diff::json::{Amount, Frame, frames, how};

#[derive(Debug, Serialize)]
struct Answer<'a> {
    /// Version of this form.
    version: u32,
    world_size: Option<u32>,
    missing: &'a [u32],
    says: &'a [String],
    total: &'a Total,
    ranks: Vec<Row<'a>>,
    odd: &'a [Odd],
    #[serde(skip_serializing_if = "Option::is_none")]
    differing: Option<Differ<'a>>,
    collectives: &'a BTreeMap<String, Vec<u64>>,
    clocks: Vec<Clock<'a>>,
    marks: &'a [Step],
    shared_gpus: &'a [(String, Vec<String>)],
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    rank: Option<u32>,
    host: &'a str,
    pid: u32,
    path: String,
    gpus: Vec<&'a str>,
    /// Wall clock at its time 0, corrected, in nanoseconds since 1970.
    start: u64,
    peak: u64,
    /// Nanoseconds after its start.
    peak_time: u64,
    reserved: u64,
    waste_permille: u64,
    collectives: u64,
    other_libraries: u64,
    owners: &'a BTreeMap<String, u64>,
    end: u64,
    failed: u64,
    ended: &'a str,
    died: bool,
    events: u64,
    caveats: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Differ<'a> {
    odd: &'a str,
    typical: &'a str,
    stacks: Vec<Stack<'a>>,
}

#[derive(Debug, Serialize)]
struct Stack<'a> {
    change: i64,
    typical: Amount,
    odd: Amount,
    #[serde(rename = "match")]
    how: &'static str,
    note: &'a str,
    frames: Vec<Frame<'a>>,
}

#[derive(Debug, Serialize)]
struct Clock<'a> {
    host: &'a str,
    ahead: i64,
    spread: u64,
    moments: usize,
    corrected: bool,
}

/// The answer.
pub fn write(job: &Job) -> String {
    let answer = Answer {
        version: 1,
        world_size: job.world.size,
        missing: &job.world.missing,
        says: &job.world.says,
        total: &job.total,
        ranks: job.ranks.iter().map(row).collect(),
        odd: &job.odd,
        differing: job.differing.as_ref().map(differ),
        collectives: &job.collectives,
        clocks: job
            .clocks
            .iter()
            .map(|c| Clock {
                host: &c.host,
                ahead: c.ahead,
                spread: c.spread,
                moments: c.moments,
                corrected: c.corrected,
            })
            .collect(),
        marks: &job.steps,
        shared_gpus: &job.shared,
    };
    let mut text = serde_json::to_string_pretty(&answer).unwrap_or_default();
    text.push('\n');
    text
}

fn row(r: &Rank) -> Row<'_> {
    Row {
        rank: r.rank,
        host: r.host(),
        pid: r.run.history.header.pid,
        path: r.run.path().display().to_string(),
        gpus: r.gpus().collect(),
        start: r.wall(0),
        peak: r.peak(),
        peak_time: r.run.held.peak().time,
        reserved: r.reserved(),
        waste_permille: headline::waste(&r.run),
        collectives: r.collectives(),
        other_libraries: r.others(),
        owners: &r.owners,
        end: r.end(),
        failed: r.run.work.failed,
        ended: &r.ended,
        died: r.died,
        events: r.run.events,
        caveats: r.run.caveats(),
    }
}

fn differ(d: &Differing) -> Differ<'_> {
    let stack = |c| -> Stack<'_> {
        let c: &crate::diff::change::Change = c;
        Stack {
            change: c.bytes(),
            typical: c.before.into(),
            odd: c.after.into(),
            how: how(c),
            note: &c.note,
            frames: frames(&c.frames),
        }
    };
    Differ { odd: &d.odd, typical: &d.typical, stacks: d.changes.iter().map(stack).collect() }
}
