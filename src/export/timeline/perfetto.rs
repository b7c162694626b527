//! Perfetto's own format: packets of protobuf, one after the other. Names and texts are written once and then meant by number.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;

use super::perfetto_proto::{self as proto, DebugAnnotation, InternedData, InternedName, TracePacket, TrackEvent};
use super::{Args, Timeline, Track, TrackKind, Value};

/// All packets are of one writer.
const SEQUENCE: u32 = 1;

/// Writes packets.
pub struct Writer<W> {
    /// Where to.
    pub out: W,
    events: Texts,
    names: Texts,
    values: Texts,
    bytes: Vec<u8>,
}

/// Texts that were numbered.
#[derive(Default)]
struct Texts {
    known: HashMap<String, u64>,
    new: Vec<InternedName>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let number = self.known.len() as u64 + 1;
        self.known.insert(text.to_string(), number);
        self.new.push(InternedName { iid: Some(number), name: Some(text.to_string()) });
        number
    }
}

impl<W: Write> Writer<W> {
    /// Begins; `start`: the wall clock at time 0, in nanoseconds since 1970.
    pub fn new(out: W, start: u64) -> Result<Writer<W>> {
        let (events, names, values) = Default::default();
        let mut writer = Writer { out, events, names, values, bytes: Vec::new() };
        let clock = |id, ns| proto::Clock { clock_id: Some(id), timestamp: Some(ns) };
        let clocks = vec![clock(proto::BOOTTIME, 0), clock(proto::REALTIME, start)];
        writer.packet(TracePacket {
            clock_snapshot: Some(proto::ClockSnapshot { clocks }),
            timestamp: Some(0),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(proto::CLEARED),
            ..TracePacket::default()
        })?;
        Ok(writer)
    }

    /// A field of `Trace`: repeated packet, number 1.
    fn packet(&mut self, packet: TracePacket) -> Result<()> {
        self.bytes.clear();
        prost::encoding::message::encode(1, &packet, &mut self.bytes);
        self.out.write_all(&self.bytes)?;
        Ok(())
    }

    fn descriptor(&mut self, descriptor: proto::TrackDescriptor) -> Result<()> {
        self.packet(TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        })
    }

    fn event(&mut self, time: u64, event: TrackEvent) -> Result<()> {
        let interned = InternedData {
            event_names: std::mem::take(&mut self.events.new),
            debug_annotation_names: std::mem::take(&mut self.names.new),
            debug_annotation_string_values: std::mem::take(&mut self.values.new),
        };
        self.packet(TracePacket {
            timestamp: Some(time),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            interned_data: (interned != InternedData::default()).then_some(interned),
            sequence_flags: Some(proto::NEEDED),
            ..TracePacket::default()
        })
    }

    fn annotation(&mut self, value: &Value<'_>) -> DebugAnnotation {
        let mut a = DebugAnnotation::default();
        match value {
            Value::Number(n) => a.uint_value = Some(*n),
            Value::Address(n) => a.pointer_value = Some(*n),
            Value::Text(text) => a.string_value_iid = Some(self.values.number(text)),
            Value::List(texts) => a.array_values = texts.iter().map(|t| self.annotation(&Value::Text(t))).collect(),
        }
        a
    }

    fn said(&mut self, r#type: i32, track: u64, time: u64, name: &str, args: Args) -> Result<()> {
        let name_iid = Some(self.events.number(name));
        let annotate = |(name, value): &(&str, Value<'_>)| {
            let name_iid = Some(self.names.number(name));
            DebugAnnotation { name_iid, ..self.annotation(value) }
        };
        let debug_annotations = args.iter().map(annotate).collect();
        let (r#type, track_uuid) = (Some(r#type), Some(track));
        self.event(time, TrackEvent { debug_annotations, r#type, name_iid, track_uuid, counter_value: None })
    }
}

impl<W: Write> Timeline for Writer<W> {
    fn process(&mut self, track: u64, pid: u32, name: &str, command: &[String]) -> Result<()> {
        self.descriptor(proto::TrackDescriptor {
            uuid: Some(track),
            process: Some(proto::ProcessDescriptor {
                pid: Some(pid as i32),
                cmdline: command.to_vec(),
                process_name: Some(name.to_string()),
            }),
            child_ordering: Some(proto::BY_RANK),
            ..Default::default()
        })
    }

    fn track(&mut self, track: &Track) -> Result<()> {
        let thread = match track.kind {
            TrackKind::Thread(tid) => Some(proto::ThreadDescriptor {
                pid: Some(track.pid as i32),
                tid: Some(tid as i32),
                thread_name: Some(track.name.to_string()),
            }),
            _ => None,
        };
        let counter =
            (track.kind == TrackKind::Counter).then_some(proto::CounterDescriptor { unit: Some(proto::BYTES) });
        self.descriptor(proto::TrackDescriptor {
            uuid: Some(track.id),
            // A thread's parent is its process by its numbers.
            parent_uuid: thread.is_none().then_some(track.parent),
            name: thread.is_none().then(|| track.name.to_string()),
            process: None,
            thread,
            counter,
            child_ordering: (track.kind == TrackKind::Group).then_some(proto::BY_RANK),
            sibling_order_rank: Some(track.rank as i32),
        })
    }

    fn count(&mut self, track: u64, time: u64, value: u64) -> Result<()> {
        let (r#type, track_uuid) = (Some(proto::COUNTER), Some(track));
        self.event(time, TrackEvent { r#type, track_uuid, counter_value: Some(value as i64), ..TrackEvent::default() })
    }

    fn begin(&mut self, track: u64, time: u64, name: &str, args: Args) -> Result<()> {
        self.said(proto::BEGIN, track, time, name, args)
    }

    fn end(&mut self, track: u64, time: u64) -> Result<()> {
        self.event(time, TrackEvent { r#type: Some(proto::END), track_uuid: Some(track), ..TrackEvent::default() })
    }

    fn slice(&mut self, track: u64, from: u64, to: u64, name: &str, args: Args) -> Result<()> {
        self.begin(track, from, name, args)?;
        self.end(track, to)
    }

    fn moment(&mut self, track: u64, time: u64, name: &str, args: Args) -> Result<()> {
        self.said(proto::INSTANT, track, time, name, args)
    }
}
