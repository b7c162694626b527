//! A profile for pprof: what is in use at a moment, and all that was allocated, by stack of Python and native lines.

mod proto;

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::owners::{Asked, Held, Owners};
use super::select::layer_name;
use super::source::Frame;
use super::{Format, Source, Target, folded, labels};
use crate::report::text::bytes;
use proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};

/// See the module.
pub struct Pprof;

impl Format for Pprof {
    fn binary(&self) -> bool {
        true
    }

    fn flags(&self) -> &'static [&'static str] {
        &["allocated"]
    }

    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>> {
        let asked = Asked::of(source)?;
        let owners = Owners::of(source, asked)?;
        source.resolve(&owners.stacks());
        let profile = Builder::new().profile(source, &owners, asked);
        let mut out = GzEncoder::new(target.create()?, Compression::default());
        out.write_all(&profile.encode_to_vec())?;
        out.finish()?.finish()?;
        Ok(Vec::new())
    }
}

/// Numbers what a profile names.
struct Builder {
    texts: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    locations: HashMap<(u32, u64, i64, i64), u64>,
    mappings: HashMap<u32, u64>,
    out: Profile,
}

impl Builder {
    fn new() -> Builder {
        let (texts, functions, locations, mappings) = Default::default();
        let mut builder = Builder { texts, functions, locations, mappings, out: Profile::default() };
        builder.text("");
        builder
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.out.string_table.len() as i64;
        self.out.string_table.push(text.to_string());
        self.texts.insert(text.to_string(), number);
        number
    }

    fn profile(mut self, source: &Source, owners: &Owners, asked: Asked) -> Profile {
        for (name, unit) in
            [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
        {
            let (r#type, unit) = (self.text(name), self.text(unit));
            self.out.sample_type.push(ValueType { r#type, unit });
        }
        // The first is taken for the program.
        let program = source.history.modules.values().find(|m| m.path == source.history.header.program);
        if let Some(program) = program {
            self.mapping(source, program.module);
        }
        for held in &owners.held {
            self.sample(source, held);
        }
        if owners.pytorch_inactive > 0 {
            let frame = Frame { function: "(inactive in PyTorch)".into(), python: true, ..Frame::default() };
            let location_id = vec![self.location(source, &[&frame])];
            let value = vec![0, 0, 1, owners.pytorch_inactive as i64];
            self.out.sample.push(Sample { location_id, value, label: Vec::new() });
        }
        let shown = if asked == Asked::Allocated { "alloc_space" } else { "inuse_space" };
        self.out.default_sample_type = self.text(shown);
        let active = owners.held.iter().map(|h| h.live.bytes).sum::<u64>() + owners.pytorch_inactive;
        let inuse = match asked {
            Asked::Allocated => Asked::At(source.end.min(source.selection.to)).name(),
            asked => asked.name(),
        };
        let comment = self.text(&format!("{}: inuse is {} {inuse}", labels::program(source), bytes(active)));
        self.out.comment.push(comment);
        self.out.time_nanos = source.wall(0) as i64;
        self.out.duration_nanos = source.end as i64;
        self.out
    }

    fn sample(&mut self, source: &Source, held: &Held) {
        let frames = source.frames(held.stack);
        let mut location_id = Vec::new();
        let mut at = 0;
        while at < frames.len() {
            // Functions inlined into one another are one place.
            let inlined = frames[at..].iter().take_while(|f| f.inlined).count();
            let together: Vec<&Frame> = frames[at..].iter().take(inlined + 1).collect();
            at += together.len();
            location_id.push(self.location(source, &together));
        }
        if location_id.is_empty() {
            let function = folded::without_stack(source, held);
            location_id.push(self.location(source, &[&Frame { function, python: true, ..Frame::default() }]));
        }
        let value = [held.ever.count, held.ever.bytes, held.live.count, held.live.bytes].map(|n| n as i64).to_vec();
        let mut label = Vec::new();
        for (key, value) in [("layer", layer_name(held.layer)), ("api", held.api.name())] {
            let (key, str) = (self.text(key), self.text(value));
            label.push(Label { key, str });
        }
        self.out.sample.push(Sample { location_id, value, label });
    }

    /// The place of these frames, of which all but the last are inlined into the next.
    fn location(&mut self, source: &Source, frames: &[&Frame]) -> u64 {
        let Some(first) = frames.first() else { return 0 };
        let line: Vec<Line> =
            frames.iter().map(|f| Line { function_id: self.function(f), line: f.line.into() }).collect();
        // Of a native place its address is enough; hidden frames of inlined ones make it another.
        let key =
            (first.number, first.offset, line[0].function_id as i64, i64::from(first.line) << 16 | line.len() as i64);
        if let Some(id) = self.locations.get(&key) {
            return *id;
        }
        let id = self.out.location.len() as u64 + 1;
        self.locations.insert(key, id);
        let (mapping_id, address) = match source.history.modules.get(&first.number) {
            Some(module) if !first.python => {
                (self.mapping(source, first.number), module.address.saturating_add(first.offset))
            }
            _ if first.python => (0, 0),
            _ => (0, first.offset),
        };
        self.out.location.push(Location { id, mapping_id, address, line });
        id
    }

    fn function(&mut self, f: &Frame) -> u64 {
        let (name, filename) = (self.text(&f.function), self.text(&f.file));
        let next = self.out.function.len() as u64 + 1;
        let id = *self.functions.entry((name, filename)).or_insert(next);
        if id == next {
            // Where a system name is another one, pprof takes the name as it is: else it would cut `<module>`.
            self.out.function.push(Function { id, name, system_name: 0, filename });
        }
        id
    }

    fn mapping(&mut self, source: &Source, number: u32) -> u64 {
        if let Some(id) = self.mappings.get(&number) {
            return *id;
        }
        let id = self.out.mapping.len() as u64 + 1;
        self.mappings.insert(number, id);
        let module = source.history.modules.get(&number).cloned().unwrap_or_default();
        let (filename, build_id) = (self.text(&module.path), self.text(&module.build_id));
        self.out.mapping.push(Mapping {
            id,
            memory_start: module.address,
            memory_limit: module.address.saturating_add(module.bytes),
            filename,
            build_id,
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::training::{PEAK, opened, training};
    use crate::report::testing::MIB;
    use std::io::Read;

    #[test]
    fn a_profile_is_whole_and_adds_up() {
        let (folder, mut source) = opened(&training());
        let path = folder.path().join("out.pb.gz");
        Pprof.write(&mut source, &Target::Path(path.clone())).unwrap();
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
        let p = Profile::decode(&bytes[..]).unwrap();
        let text = |n: i64| p.string_table[n as usize].as_str();
        assert_eq!(text(0), "");
        let types: Vec<&str> = p.sample_type.iter().map(|t| text(t.r#type)).collect();
        assert_eq!(types, ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
        assert_eq!(text(p.default_sample_type), "inuse_space");
        let sum = |i: usize| p.sample.iter().map(|s| s.value[i]).sum::<i64>() as u64;
        assert_eq!(sum(3), PEAK);
        // Four tensors of 80 MiB in all, NCCL's, two blocks of the pool, the last of 2 MiB.
        assert_eq!((sum(0), sum(1)), (8, (80 + 32 + 16 + 2) * MIB));
        for s in &p.sample {
            assert!(!s.location_id.is_empty() && s.value.len() == 4);
            for id in &s.location_id {
                let l = p.location.iter().find(|l| l.id == *id).unwrap();
                assert!(l.mapping_id == 0 || p.mapping.iter().any(|m| m.id == l.mapping_id));
                assert!(!l.line.is_empty());
                assert!(l.line.iter().all(|l| p.function.iter().any(|f| f.id == l.function_id)));
            }
        }
        // Inlined functions share a place.
        let lines = |l: &Location| l.line.iter().map(|l| text(p.function[l.function_id as usize - 1].name)).collect();
        let places: Vec<Vec<&str>> = p.location.iter().map(lines).collect();
        assert!(places.contains(&vec!["helper", "step"]) && places.contains(&vec!["Net.forward"]), "{places:?}");
    }
}
