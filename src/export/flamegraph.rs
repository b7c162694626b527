//! A flame graph as one SVG file, drawn by inferno: with search and zoom, no network.

use anyhow::Result;

use super::folded::Stacks;
use super::{Format, Source, Target};
use crate::flame::Flame;

/// See the module.
pub struct Flamegraph;

impl Format for Flamegraph {
    fn flags(&self) -> &'static [&'static str] {
        &["allocated"]
    }

    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>> {
        let stacks = Stacks::of(source)?;
        if stacks.lines.is_empty() {
            anyhow::bail!("{}: nothing was {}: nothing to draw", source.path.display(), stacks.asked.name());
        }
        let lines: Vec<String> = stacks.lines.iter().map(|(stack, bytes)| format!("{stack} {bytes}")).collect();
        let mut out = target.create()?;
        let title = stacks.title(source);
        Flame { title: &title, subtitle: None }.draw(&lines, &mut out)?;
        out.finish()?;
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::training::{opened, training};

    #[test]
    fn a_picture_of_the_peak() {
        let (folder, mut source) = opened(&training());
        let path = folder.path().join("out.svg");
        Flamegraph.write(&mut source, &Target::Path(path.clone())).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        for part in
            ["<svg", "program: 104 MiB active at the peak, ", "Net.forward (train.py:20) (41,943,040 bytes, 38.46%)"]
        {
            assert!(svg.contains(part), "{part} is missing");
        }
        source.selection.device = Some(7);
        let e = Flamegraph.write(&mut source, &Target::Path(folder.path().join("none"))).unwrap_err();
        assert!(e.to_string().ends_with("nothing to draw"), "{e}");
    }
}
