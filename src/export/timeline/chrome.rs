//! Chrome's trace events: a JSON array, one event a line. Lanes are threads with numbers of their own.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value as Json, json};

use super::{Args, Timeline, Track, TrackKind, Value};

/// Numbers of lanes begin here, past those of threads.
const LANES: u64 = 1 << 24;

/// Writes events.
pub struct Writer<W> {
    out: W,
    tracks: HashMap<u64, Place>,
    names: HashMap<u64, String>,
    lanes: u64,
    first: bool,
}

#[derive(Clone, Debug)]
struct Place {
    pid: u32,
    tid: u64,
    name: String,
}

impl<W: Write> Writer<W> {
    /// Begins.
    pub fn new(mut out: W) -> Result<Writer<W>> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let (tracks, names) = Default::default();
        Ok(Writer { out, tracks, names, lanes: LANES, first: true })
    }

    /// Ends.
    pub fn finish(mut self) -> Result<W> {
        self.out.write_all(b"\n]}\n")?;
        Ok(self.out)
    }

    fn event(&mut self, event: &Json) -> Result<()> {
        self.out.write_all(if std::mem::take(&mut self.first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    fn at(&mut self, track: u64, phase: &str, time: u64, more: Json) -> Result<()> {
        let Some(place) = self.tracks.get(&track) else { return Ok(()) };
        let mut event = json!({"ph": phase, "pid": place.pid, "tid": place.tid, "ts": us(time)});
        if let (Json::Object(event), Json::Object(more)) = (&mut event, more) {
            event.extend(more);
        }
        self.event(&event)
    }
}

/// Microseconds, as the format has them.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn words(args: Args) -> Json {
    let value = |v: &Value<'_>| match v {
        Value::Number(n) => json!(n),
        Value::Address(n) => json!(format!("{n:#x}")),
        Value::Text(text) => json!(text),
        Value::List(texts) => json!(texts),
    };
    Json::Object(args.iter().map(|(name, v)| (name.to_string(), value(v))).collect::<Map<_, _>>())
}

impl<W: Write> Timeline for Writer<W> {
    fn process(&mut self, _: u64, pid: u32, name: &str, command: &[String]) -> Result<()> {
        self.event(&json!({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}))?;
        let labels = command.join(" ");
        self.event(&json!({"ph": "M", "pid": pid, "tid": 0, "name": "process_labels", "args": {"labels": labels}}))
    }

    fn track(&mut self, track: &Track) -> Result<()> {
        let (pid, name) = (track.pid, track.name.to_string());
        let tid = match track.kind {
            TrackKind::Thread(tid) => u64::from(tid),
            TrackKind::Counter => 0,
            TrackKind::Group => {
                self.names.insert(track.id, name);
                return Ok(());
            }
            TrackKind::Lane => {
                self.lanes += 1;
                self.lanes
            }
        };
        // There are no groups here: their names go before those of their lanes.
        let name = match self.names.get(&track.parent) {
            Some(group) if track.kind != TrackKind::Counter => format!("{group}: {name}"),
            _ => name,
        };
        if track.kind != TrackKind::Counter {
            self.event(&json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}))?;
            // Lanes in their order, below the threads.
            let order = if tid > LANES { tid } else { u64::from(track.rank) };
            let args = json!({"sort_index": order});
            self.event(&json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": args}))?;
        }
        self.tracks.insert(track.id, Place { pid, tid, name });
        Ok(())
    }

    fn count(&mut self, track: u64, time: u64, value: u64) -> Result<()> {
        let name = self.tracks.get(&track).map_or(String::new(), |p| p.name.clone());
        self.at(track, "C", time, json!({"name": name, "args": {"bytes": value}}))
    }

    fn begin(&mut self, track: u64, time: u64, name: &str, args: Args) -> Result<()> {
        self.at(track, "B", time, json!({"name": name, "args": words(args)}))
    }

    fn end(&mut self, track: u64, time: u64) -> Result<()> {
        self.at(track, "E", time, json!({}))
    }

    fn slice(&mut self, track: u64, from: u64, to: u64, name: &str, args: Args) -> Result<()> {
        let duration = us(to.saturating_sub(from));
        self.at(track, "X", from, json!({"dur": duration, "name": name, "args": words(args)}))
    }

    fn moment(&mut self, track: u64, time: u64, name: &str, args: Args) -> Result<()> {
        self.at(track, "i", time, json!({"s": "t", "name": name, "args": words(args)}))
    }
}
