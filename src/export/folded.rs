//! Folded stacks: a line a stack, `outermost;…;innermost BYTES`, as flamegraph.pl, inferno and speedscope read them.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use super::owners::{Asked, Held, Owners};
use super::{Format, Source, Target, labels};
use crate::flame;
use crate::report::text::{bytes, clean};

/// See the module.
pub struct Folded;

impl Format for Folded {
    fn flags(&self) -> &'static [&'static str] {
        &["allocated"]
    }

    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>> {
        let folded = Stacks::of(source)?;
        let mut out = target.create()?;
        for (stack, bytes) in &folded.lines {
            writeln!(out, "{stack} {bytes}")?;
        }
        out.finish()?;
        Ok(folded.note().into_iter().collect())
    }
}

/// Bytes by stack.
pub struct Stacks {
    /// The stacks, outermost frame first.
    pub lines: BTreeMap<String, u64>,
    /// What was counted.
    pub asked: Asked,
}

impl Stacks {
    /// Counts what is asked for.
    pub fn of(source: &mut Source) -> Result<Stacks> {
        let asked = Asked::of(source)?;
        let owners = Owners::of(source, asked)?;
        source.resolve(&owners.stacks());
        let mut lines = BTreeMap::new();
        for held in owners.held.iter().filter(|h| asked.of_held(h).bytes > 0) {
            *lines.entry(line(source, held)).or_default() += asked.of_held(held).bytes;
        }
        if asked != Asked::Allocated && owners.pytorch_inactive > 0 {
            lines.insert("(inactive in PyTorch)".to_string(), owners.pytorch_inactive);
        }
        Ok(Stacks { lines, asked })
    }

    /// All bytes.
    pub fn sum(&self) -> u64 {
        self.lines.values().sum()
    }

    fn note(&self) -> Option<String> {
        self.lines.is_empty().then(|| format!("nothing was {}: the file is empty", self.asked.name()))
    }

    /// `train.py: 20.1 GiB active at the peak, 12.3 s`
    pub fn title(&self, source: &Source) -> String {
        format!("{}: {} {}", labels::program(source), bytes(self.sum()), self.asked.name())
    }
}

fn line(source: &Source, held: &Held) -> String {
    let frames = source.frames(held.stack);
    if frames.is_empty() {
        return flame::frame(&without_stack(source, held));
    }
    let names: Vec<String> = frames.iter().rev().map(|f| flame::frame(&labels::frame(source, f))).collect();
    names.join(";")
}

/// What stands for the stack where none was recorded: `cudaMalloc by libnccl.so.2 (no stack)`.
pub fn without_stack(source: &Source, held: &Held) -> String {
    let mut words = vec![held.api.name().to_string()];
    if held.caller != 0 {
        words.push(format!("by {}", clean(source.history.module_name(held.caller))));
    }
    words.push("(no stack)".to_string());
    words.retain(|w| !w.is_empty());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::training::{PEAK, opened, training};
    use crate::report::testing::MIB;

    fn written(change: impl Fn(&mut Source)) -> (String, Vec<String>) {
        let (folder, mut source) = opened(&training());
        change(&mut source);
        let path = folder.path().join("out");
        let notes = Folded.write(&mut source, &Target::Path(path.clone())).unwrap();
        (std::fs::read_to_string(path).unwrap(), notes)
    }

    #[test]
    fn the_peak_by_stack() {
        let (text, notes) = written(|_| ());
        println!("{text}");
        assert!(notes.is_empty());
        let lines = [
            format!("(inactive in PyTorch) {}", 24 * MIB),
            format!(
                "<module> (train.py:60);Net.forward (train.py:20);c10::cuda::alloc<std::map<int: int>>() (libc10_cuda.so) {}",
                40 * MIB
            ),
            format!("step (src/a.cpp:30);helper (src/a.cpp:3);libnccl.so.2+0x77 {}", 40 * MIB),
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        let sum: u64 = text.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, PEAK);
    }

    #[test]
    fn what_was_allocated() {
        let (text, _) = written(|source| source.options.allocated = true);
        assert!(text.contains(&format!("(libc10_cuda.so) {}\n", 80 * MIB)) && !text.contains("inactive"), "{text}");
    }

    #[test]
    fn nothing_is_said() {
        let (text, notes) = written(|source| source.selection.device = Some(7));
        assert_eq!((text.as_str(), notes.len()), ("", 1));
    }
}
