//! The messages of `profile.proto`, pprof's format.

use prost::Message;

/// A profile. Texts are numbers of its table of strings.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    /// What the values of a sample are.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// The programs and libraries.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// The places in code.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// The functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// The texts; the first is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// When, since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// How long it took.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// What a person should know.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The value shown first.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// A kind of value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    /// Name.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A stack and its values.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One for each kind.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// What else is to be said.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A word about a sample.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
    /// Name.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Text.
    #[prost(int64, tag = "2")]
    pub str: i64,
}

/// A program or library.
#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Where it lay.
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    /// To where.
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    /// Path.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Build id, hexadecimal.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// Its locations have what names there are: pprof need not look for more.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Files too.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Lines too.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Inlined frames too.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// A place in code.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The mapping; 0: none (Python).
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// Address in the process.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// Innermost first: several where functions were inlined.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, PartialEq, Message)]
pub struct Line {
    /// The function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line in its file; 0: unknown.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, PartialEq, Message)]
pub struct Function {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Name as in the file.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// File.
    #[prost(int64, tag = "4")]
    pub filename: i64,
}
