//! What is in the tables. docs/tables.md is the same as text; a test compares them.

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A whole number of 64 bits.
    Int,
    /// A time of day: microseconds, UTC.
    Time,
    /// A text.
    Text,
    /// Yes or no.
    Bool,
}

impl Type {
    /// As docs/tables.md calls it.
    pub fn name(self) -> &'static str {
        match self {
            Type::Int => "int64",
            Type::Time => "timestamp",
            Type::Text => "text",
            Type::Bool => "bool",
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Type,
    /// What it means.
    pub about: &'static str,
}

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Name, also of its folder.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
}

macro_rules! tables {
    ($($table:ident: $about:literal { $($name:ident $kind:ident $says:literal,)* })*) => {
        /// All tables.
        pub const TABLES: &[Table] = &[$(Table {
            name: stringify!($table),
            about: $about,
            columns: &[$(Column { name: stringify!($name), kind: Type::$kind, about: $says },)*],
        },)*];
    };
}

tables! {
    processes: "A row for each history." {
        process Text "host, process id and second of the start: what tells the processes of a run apart",
        host Text "host name",
        pid Int "process id",
        parent Int "its parent's",
        program Text "path of the program",
        arguments Text "its arguments, as JSON",
        directory Text "working directory",
        start_time Time "wall clock at the history's time zero",
        end_time Time "of the last event",
        events Int "events in the history",
        lost Int "events that could not be recorded; nothing: not finished, so not known",
        ended Text "`exit`, `killed`, `stopped`, `snapshot` (docs/trace-format.md); nothing: not finished",
        status Int "exit status, or 128 + signal",
        vramscope Text "version that recorded it",
        driver Int "CUDA version of the driver, as 13000",
        granularity Int "bytes in which the driver charges",
        rank_variables Text "RANK, LOCAL_RANK, WORLD_SIZE, ..., as JSON",
        settings Text "the settings that were given, as JSON",
    }
    devices: "A row for each GPU of a process." {
        process Text "the process",
        device Int "CUDA ordinal in it",
        name Text "name",
        uuid Text "`GPU-...`: the same GPU in all processes",
        bytes Int "memory in all",
    }
    events: "A row for each event, in the order of time." {
        process Text "the process",
        time Time "when, by wall clock",
        ns Int "when, in nanoseconds since the history's start",
        thread Int "number of the thread",
        tid Int "the kernel's number of it",
        thread_name Text "its name",
        kind Text "`alloc`, `free`, `segment_alloc`, ... (docs/trace-format.md)",
        id Int "the allocation, segment or region",
        address Int "device pointer, host pointer or handle; one past 2^63 is negative",
        bytes Int "bytes asked for",
        block Int "bytes of the block that serves it",
        segment Int "id of the pool's segment that it lies in",
        layer Text "`pool`, `device`, `async`, `vmm`, `managed`, `array`, `pinned`, `registered`, `imported`, `tensor`: every allocation is in one",
        memory Text "kind of memory",
        api Text "the C function that was called",
        how Text "who served an allocation, or how a free was done",
        context Int "number of the context",
        device Int "CUDA ordinal; nothing where an event has no context",
        code Int "CUresult, if not success",
        stack Int "number of the call stack, for `stacks`",
        caller Text "file name of the module that called",
        stream Int "handle of the stream; nothing: the default stream",
        took Int "nanoseconds in calls of the driver",
        text Text "what a mark says, name of a region, why a trim was",
    }
    allocations: "A row for each allocation, from its beginning to its end." {
        process Text "the process",
        id Int "its number in the process",
        alloc_time Time "when it was given, by wall clock",
        alloc_ns Int "the same in nanoseconds since the history's start",
        free_time Time "when it was given back; nothing: never",
        free_ns Int "the same since the start",
        lifetime_ns Int "from the one to the other",
        bytes Int "bytes asked for",
        block Int "bytes of the block that serves it: what `active` counts",
        address Int "device pointer, host pointer or handle; one past 2^63 is negative",
        layer Text "as in `events`. `tensor` lies inside memory of the other layers: do not add it to them",
        pytorch_segment Bool "it is the driver's memory that PyTorch cuts tensors from",
        memory Text "kind of memory",
        how Text "who served it: `driver`, `hit`, `miss`, ...",
        api Text "the C function that was called",
        segment Int "id of the pool's segment",
        device Int "CUDA ordinal",
        context Int "number of the context",
        stream Int "handle of the stream; nothing: the default stream",
        took Int "nanoseconds in calls of the driver",
        stack Int "number of the call stack, for `stacks`",
        place Text "where that is in one line: the innermost line of the user's own Python, else the innermost frame",
        caller Text "file name of the module that called",
        thread Int "number of the thread",
        thread_name Text "its name",
        region Text "the regions the thread was in, `step/forward`",
        mark Text "the last mark before, of any thread",
        marks Int "marks so far: the number of the step, where each has one",
        freed Text "how it was given back: `driver`, `cached`, ...; `context_end`; `export`; nothing: never",
        free_thread Int "number of the thread that did",
        free_stack Int "number of the call stack of that",
    }
    segments: "A row for each piece that the pool took from the driver." {
        process Text "the process",
        id Int "its number",
        alloc_time Time "when it was taken, by wall clock",
        alloc_ns Int "the same since the start",
        free_time Time "when it was given back; nothing: never",
        free_ns Int "the same since the start",
        bytes Int "its bytes",
        address Int "device pointer",
        device Int "CUDA ordinal",
        context Int "number of the context",
        took Int "nanoseconds that the driver took for it",
        freed Text "`segment_free`, `context_end`, `export`; nothing: never",
    }
    stacks: "A row for each frame of each call stack." {
        process Text "the process",
        stack Int "number of the stack",
        frame Int "number of the frame, 0: the innermost",
        function Text "function, or `libfoo.so+0x1234`",
        file Text "source file, or the module's",
        line Int "line",
        module Text "file name of the module of a native frame",
        offset Int "return address in it",
        python Bool "a frame of Python",
        inlined Bool "inlined into the next frame",
        guessed Bool "found by guessing",
        shown Bool "a report shows it (not: the interpreter, CUDA's runtime, below main)",
    }
    samples: "A row for each time that a device was asked what is in use." {
        process Text "the process",
        time Time "when, by wall clock",
        ns Int "since the start",
        device Int "CUDA ordinal",
        free Int "bytes free, as the driver says",
        total Int "bytes in all",
        used Int "the rest: of all processes",
        pool_active Int "bytes of the pool in use",
        pool_inactive Int "bytes of the pool kept for reuse",
        context Int "number of the context",
    }
    ooms: "A row for each out-of-memory that was explained." {
        process Text "the process",
        time Time "when, by wall clock",
        ns Int "since the start",
        thread Int "number of the thread that asked",
        device Int "CUDA ordinal",
        what Text "the C function, or `PyTorch`",
        asked Int "bytes asked for",
        segment Int "bytes of the new segment (or of pages of an expandable one) that PyTorch needs for it; nothing: none",
        free Int "bytes free on the device",
        total Int "bytes in all",
        limit_bytes Int "the limit of the process on the device; nothing: none",
        limit_used Int "how much of it is in use",
        limit_by Text "what set it",
        pytorch_active Int "bytes of tensors",
        pytorch_inactive Int "what PyTorch keeps besides",
        pytorch_largest Int "the largest free piece of it",
        pool_active Int "bytes of the pool in use",
        pool_inactive Int "what it keeps besides",
        pool_largest Int "the largest piece of it",
        outside Int "bytes past both",
        rest Int "context, modules, driver; other processes where `others` is nothing",
        others Int "bytes of other processes",
        stack Int "number of the call stack",
        place Text "where that is, in one line",
        holders Text "who held most, as JSON: `bytes`, `count`, `place`, `stack`",
        advice Text "what would help, a line each",
    }
    marks: "A row for each mark." {
        process Text "the process",
        time Time "when, by wall clock",
        ns Int "since the start",
        thread Int "number of the thread",
        mark Int "number of the mark, from 1: `marks` of `allocations`",
        text Text "what it says",
    }
    regions: "A row for each region that was left, or was open at the end." {
        process Text "the process",
        begin_time Time "when it was entered, by wall clock",
        begin_ns Int "since the start",
        end_time Time "when it was left; nothing: it was not",
        end_ns Int "since the start",
        thread Int "number of the thread",
        name Text "name",
        path Text "with the regions around it, `step/forward`: `region` of `allocations`",
        whole_process Bool "of the whole process, not of a thread",
    }
    counters: "A row for each counter of the pool, each time it was told." {
        process Text "the process",
        time Time "when, by wall clock",
        ns Int "since the start",
        name Text "its name (docs/trace-format.md)",
        value Int "total since the start",
    }
}

/// A table by its name.
pub fn table(name: &str) -> &'static Table {
    TABLES.iter().find(|t| t.name == name).unwrap_or(&TABLES[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables as docs/tables.md has them.
    fn documented() -> String {
        let mut text = String::new();
        for table in TABLES {
            text +=
                &format!("\n## {}\n{}\n\n| column | type | meaning |\n| --- | --- | --- |\n", table.name, table.about);
            for c in table.columns {
                text += &format!("| `{}` | {} | {} |\n", c.name, c.kind.name(), c.about);
            }
        }
        text
    }

    #[test]
    fn the_documentation_is_the_schema() {
        let written = include_str!("../../../docs/tables.md");
        let from = written.find("\n## processes").unwrap_or(written.len());
        if written[from..] != documented() {
            println!("{}", documented());
            panic!("docs/tables.md: from '## processes' on it must be the text printed above");
        }
    }

    #[test]
    fn names_are_simple_and_differ() {
        for t in TABLES {
            let mut names: Vec<&str> = t.columns.iter().map(|c| c.name).collect();
            assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')), "{names:?}");
            assert!(names.iter().all(|n| !["run", "rank", "date"].contains(n)));
            names.sort();
            names.dedup();
            assert_eq!(names.len(), t.columns.len());
        }
    }
}
