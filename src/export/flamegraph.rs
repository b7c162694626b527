//! A flame graph as one SVG file, drawn by inferno: with search and zoom, no network.

use anyhow::{Context, Result};
use inferno::flamegraph::color::{BasicPalette, Palette};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

use super::folded::Stacks;
use super::{Format, Source, Target};

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
        let mut options = Options::default();
        options.title = stacks.title(source);
        options.count_name = "bytes".to_string();
        options.colors = Palette::Basic(BasicPalette::Mem);
        options.text_truncate_direction = TextTruncateDirection::Right;
        // The same picture for the same history.
        options.deterministic = true;
        let lines: Vec<String> = stacks.lines.iter().map(|(stack, bytes)| format!("{stack} {bytes}")).collect();
        let mut out = target.create()?;
        from_lines(&mut options, lines.iter().map(String::as_str), &mut out).context("drawing the flame graph")?;
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
