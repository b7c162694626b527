//! PyTorch's snapshot as a pickle has it, entry by entry.

use anyhow::{Result, anyhow, bail};

use super::tree::{Tree, Value};

/// Devices that a snapshot may have.
const DEVICES: usize = 256;

/// What an entry of a trace tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A block was given out.
    Alloc,
    /// It was given back, maybe while another stream still uses it.
    FreeRequested,
    /// It can be given out again.
    FreeCompleted,
    /// A segment came from the driver.
    SegmentAlloc,
    /// It went back.
    SegmentFree,
    /// A piece of an expandable segment was mapped.
    SegmentMap,
    /// It was unmapped.
    SegmentUnmap,
    /// A request failed.
    Oom,
    /// The snapshot itself, or something that a program said.
    Other,
}

/// An entry of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Where; of an `oom`: free bytes of the device.
    pub address: u64,
    /// Bytes: of a block those that were asked for.
    pub size: u64,
    /// Bytes of the block, if vramscope wrote it.
    pub block: u64,
    /// Handle of the stream.
    pub stream: u64,
    /// When, in microseconds since 1970; 0: not told.
    pub time: u64,
    /// Its frames.
    pub frames: Option<Value>,
    /// What a program said.
    pub said: Option<Value>,
}

/// A segment at the end.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Number of its device.
    pub device: u32,
    /// Where.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Handle of the stream.
    pub stream: u64,
    /// It was mapped piece by piece.
    pub expandable: bool,
    /// Its frames.
    pub frames: Option<Value>,
    blocks: Value,
}

/// A live block at the end.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Where.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Of them asked for.
    pub requested: u64,
    /// Its frames.
    pub frames: Option<Value>,
}

/// A snapshot.
#[derive(Debug)]
pub struct Snapshot {
    /// Its values.
    pub tree: Tree,
    root: Value,
    traces: Vec<Value>,
    segments: Vec<Segment>,
    /// Devices that it tells of.
    pub devices: u32,
    /// Sizes of blocks are known: vramscope wrote it.
    pub ours: bool,
    /// Sizes are rounded to 512 bytes and no more.
    pub plain: bool,
}

impl Snapshot {
    /// Finds its parts. The error says which is missing or is not what it should be.
    pub fn new(tree: Tree, root: Value) -> Result<Snapshot> {
        // torch.cuda.memory_snapshot() gives the segments alone.
        let bare = tree.list(root).is_some();
        let segments = if bare { Some(root) } else { tree.get(root, "segments") };
        let Some(list) = segments.and_then(|s| tree.list(s)) else {
            bail!("not a snapshot of PyTorch's memory: it has no list `segments`");
        };
        let segments: Vec<Segment> =
            list.iter().enumerate().map(|(i, s)| segment(&tree, *s, i)).collect::<Result<_>>()?;
        let traces = match tree.get(root, "device_traces") {
            None => Vec::new(),
            Some(list) => tree.list(list).ok_or_else(|| anyhow!("device_traces is no list"))?.to_vec(),
        };
        if let Some(i) = traces.iter().position(|t| tree.list(*t).is_none()) {
            bail!("device_traces[{i}] is no list");
        }
        let devices = segments.iter().map(|s| s.device as usize + 1).chain([traces.len(), 1]).max().unwrap_or(1);
        if devices > DEVICES {
            bail!("it tells of {devices} devices; up to {DEVICES} are read");
        }
        let ours = tree.get(root, "vramscope").is_some();
        let divisions = tree.get(root, "allocator_settings").and_then(|s| tree.get(s, "roundup_power2_divisions"));
        let divided = |d| tree.dict(d).is_some_and(|d| d.iter().any(|(_, n)| !matches!(n, Value::Number(0 | 1))));
        let plain = !divisions.is_some_and(divided);
        Ok(Snapshot { tree, root, traces, segments, devices: devices as u32, ours, plain })
    }

    /// Something of the program that vramscope wrote down.
    pub fn of_program(&self, key: &str) -> Option<Value> {
        self.tree.get(self.tree.get(self.root, "vramscope")?, key)
    }

    /// Entries of a device's trace.
    pub fn entries(&self, device: u32) -> usize {
        self.traces.get(device as usize).and_then(|t| self.tree.list(*t)).map_or(0, <[Value]>::len)
    }

    /// An entry of a device's trace.
    pub fn entry(&self, device: u32, i: usize) -> Result<Entry> {
        let trace = self.traces.get(device as usize).and_then(|t| self.tree.list(*t)).unwrap_or_default();
        let place = || format!("device_traces[{device}][{i}]");
        let value = *trace.get(i).ok_or_else(|| anyhow!("{} is not there", place()))?;
        let tree = &self.tree;
        let action = match tree.get(value, "action").map(|a| tree.text(a)) {
            Some("alloc") => Action::Alloc,
            Some("free_requested" | "free") => Action::FreeRequested,
            Some("free_completed") => Action::FreeCompleted,
            Some("segment_alloc") => Action::SegmentAlloc,
            Some("segment_free") => Action::SegmentFree,
            Some("segment_map") => Action::SegmentMap,
            Some("segment_unmap") => Action::SegmentUnmap,
            Some("oom") => Action::Oom,
            Some(_) => Action::Other,
            None => bail!("{} has no action", place()),
        };
        let number = |key: &str| tree.number(value, key);
        let wanted = |key: &str| match action {
            Action::Other => Ok(number(key).unwrap_or(0)),
            _ => number(key).ok_or_else(|| anyhow!("{} has no {key}, or one that is no whole number", place())),
        };
        let address = wanted(if action == Action::Oom { "device_free" } else { "addr" })?;
        let size = wanted("size")?;
        if action != Action::Oom {
            range(address, size).ok_or_else(|| anyhow!("{}: {size} bytes at {address:#x} is no range", place()))?;
        }
        Ok(Entry {
            action,
            address,
            size,
            block: number("block_size").unwrap_or(0),
            stream: number("stream").unwrap_or(0),
            time: number("time_us").unwrap_or(0),
            frames: tree.get(value, "frames"),
            said: tree.get(value, "user_metadata").filter(|_| action == Action::Other),
        })
    }

    /// The segments of a device at the end.
    pub fn segments(&self, device: u32) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |s| s.device == device)
    }

    /// The live blocks of a segment.
    pub fn blocks(&self, segment: &Segment) -> Result<Vec<Block>> {
        let (tree, mut at, mut live) = (&self.tree, segment.address, Vec::new());
        for (i, b) in tree.list(segment.blocks).unwrap_or_default().iter().enumerate() {
            let place = || format!("block {i} of the segment at {:#x}", segment.address);
            let size = tree.number(*b, "size").ok_or_else(|| anyhow!("{} has no size", place()))?;
            let (mut requested, mut frames) = (tree.number(*b, "requested_size"), tree.get(*b, "frames"));
            // As PyTorch 1.11 to 2.0 have it.
            if let Some(history) = tree.get(*b, "history").and_then(|h| tree.list(h)?.first().copied()) {
                requested = requested.or(tree.number(history, "real_size"));
                frames = frames.or(tree.get(history, "frames"));
            }
            let end = range(at, size).filter(|end| *end <= segment.address + segment.size);
            let end = end.ok_or_else(|| anyhow!("{} does not lie in it", place()))?;
            let state = tree.get(*b, "state").map_or("", |s| tree.text(s));
            // One that waits for another stream was given back by the program.
            if state == "active_allocated" && size > 0 {
                live.push(Block { address: at, size, requested: requested.unwrap_or(size).min(size), frames });
            }
            at = end;
        }
        Ok(live)
    }

    /// What the program or its profiler said and when: device, time in microseconds, stage, name.
    pub fn annotations(&self) -> Vec<(u32, u64, &str, &str)> {
        let list = self.tree.get(self.root, "external_annotations").and_then(|a| self.tree.list(a));
        let text = |a, key: &str| self.tree.get(a, key).map_or("", |t| self.tree.text(t));
        let one = |a: &Value| {
            let device = self.tree.number(*a, "device").unwrap_or(0).min(u64::from(self.devices) - 1) as u32;
            Some((device, self.tree.number(*a, "time_us")?, text(*a, "stage"), text(*a, "name")))
        };
        list.unwrap_or_default().iter().filter_map(one).collect()
    }
}

/// The end of a range; none if it is not one of a device's address space.
fn range(address: u64, size: u64) -> Option<u64> {
    address.checked_add(size).filter(|end| *end < 1 << 63)
}

fn segment(tree: &Tree, s: Value, i: usize) -> Result<Segment> {
    let place = || format!("segments[{i}]");
    let number = |key: &str| tree.number(s, key).ok_or_else(|| anyhow!("{} has no {key}", place()));
    let (address, size) = (number("address")?, number("total_size")?);
    range(address, size).ok_or_else(|| anyhow!("{}: {size} bytes at {address:#x} is no range", place()))?;
    let blocks = tree.get(s, "blocks").filter(|b| tree.list(*b).is_some());
    Ok(Segment {
        device: u32::try_from(tree.number(s, "device").unwrap_or(0)).unwrap_or(u32::MAX - 1),
        address,
        size,
        stream: tree.number(s, "stream").unwrap_or(0),
        expandable: tree.get(s, "is_expandable") == Some(Value::Flag(true)),
        frames: tree.get(s, "frames"),
        blocks: blocks.ok_or_else(|| anyhow!("{} has no list `blocks`", place()))?,
    })
}
