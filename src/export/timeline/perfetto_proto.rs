//! The part of Perfetto's protobuf messages that we write, by their numbers in `protos/perfetto/trace`. (The crates that
//! have such bindings record a running program's spans and have no counters of another process.)

use prost::Message;

/// `TracePacket`
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// What clocks say at one moment.
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    /// When, in nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Whose interned texts are meant.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// What happened on a track.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// Texts by number.
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    /// [`CLEARED`], [`NEEDED`].
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: numbers of texts begin anew.
pub const CLEARED: u32 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`: uses numbers of texts.
pub const NEEDED: u32 = 2;

/// `ClockSnapshot`
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    /// The clocks.
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
}

/// `ClockSnapshot.Clock`
#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    /// [`REALTIME`], [`BOOTTIME`].
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

/// `BUILTIN_CLOCK_REALTIME`: since 1970.
pub const REALTIME: u32 = 1;
/// `BUILTIN_CLOCK_BOOTTIME`: the clock of a trace's packets.
pub const BOOTTIME: u32 = 6;

/// `TrackDescriptor`
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Its number.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// It is a process.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// It is a thread.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// The track it lies in.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// It is a counter.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
    /// [`BY_RANK`].
    #[prost(int32, optional, tag = "11")]
    pub child_ordering: Option<i32>,
    /// Place among its siblings.
    #[prost(int32, optional, tag = "12")]
    pub sibling_order_rank: Option<i32>,
}

/// `ChildTracksOrdering.EXPLICIT`
pub const BY_RANK: i32 = 3;

/// `ProcessDescriptor`
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// Process id.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its arguments.
    #[prost(string, repeated, tag = "2")]
    pub cmdline: Vec<String>,
    /// Name.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// `ThreadDescriptor`
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    /// Process id.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Thread id.
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    /// Name.
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

/// `CounterDescriptor`
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// [`BYTES`].
    #[prost(int32, optional, tag = "3")]
    pub unit: Option<i32>,
}

/// `UNIT_SIZE_BYTES`
pub const BYTES: i32 = 3;

/// `TrackEvent`
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// What is to be said of it.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// [`BEGIN`], [`END`], [`INSTANT`], [`COUNTER`].
    #[prost(int32, optional, tag = "9")]
    pub r#type: Option<i32>,
    /// Its name, by number.
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    /// Where.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// A counter's value.
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
}

/// `TYPE_SLICE_BEGIN`
pub const BEGIN: i32 = 1;
/// `TYPE_SLICE_END`
pub const END: i32 = 2;
/// `TYPE_INSTANT`
pub const INSTANT: i32 = 3;
/// `TYPE_COUNTER`
pub const COUNTER: i32 = 4;

/// `DebugAnnotation`
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// Name, by number.
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    /// A number,
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// or an address,
    #[prost(uint64, optional, tag = "7")]
    pub pointer_value: Option<u64>,
    /// or several,
    #[prost(message, repeated, tag = "12")]
    pub array_values: Vec<DebugAnnotation>,
    /// or a text, by number.
    #[prost(uint64, optional, tag = "17")]
    pub string_value_iid: Option<u64>,
}

/// `InternedData`
#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    /// Names of events.
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<InternedName>,
    /// Names of annotations.
    #[prost(message, repeated, tag = "3")]
    pub debug_annotation_names: Vec<InternedName>,
    /// Texts of annotations.
    #[prost(message, repeated, tag = "29")]
    pub debug_annotation_string_values: Vec<InternedName>,
}

/// `EventName`, `DebugAnnotationName` and `InternedString`, which look the same in a file.
#[derive(Clone, PartialEq, Message)]
pub struct InternedName {
    /// Number.
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    /// Text.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}
