//! Flame graphs: the settings of all that the command draws, in one place. One SVG file, drawn by inferno, with search and zoom,
//! which opens in any browser without a network.

use std::io::Write;

use anyhow::{Result, anyhow};
use inferno::flamegraph::color::{BasicPalette, Palette};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

/// What is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flame<'a> {
    /// Above it.
    pub title: &'a str,
    /// Below the title.
    pub subtitle: Option<&'a str>,
}

impl Flame<'_> {
    /// Draws stacks, a line each: `outermost;...;innermost BYTES`. Lines with two numbers are a difference: inferno then colours
    /// by what grew and what shrank.
    pub fn draw(self, lines: &[String], out: impl Write) -> Result<()> {
        let mut options = Options::default();
        options.title = self.title.to_string();
        options.subtitle = self.subtitle.map(ToString::to_string);
        options.count_name = "bytes".to_string();
        options.colors = Palette::Basic(BasicPalette::Mem);
        // The beginning of a name says more than its end.
        options.text_truncate_direction = TextTruncateDirection::Right;
        // The same picture for the same history.
        options.deterministic = true;
        from_lines(&mut options, lines.iter().map(String::as_str), out)
            .map_err(|e| anyhow!("the flame graph cannot be drawn: {e}"))
    }
}

/// A frame's name without what folded stacks give a meaning to.
pub fn frame(name: &str) -> String {
    name.replace(';', ":").replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(lines: &[&str]) -> Result<String> {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let mut out = Vec::new();
        Flame { title: "Peak <1>", subtitle: Some("of all") }.draw(&lines, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn frames_are_boxes_and_odd_names_do_no_harm() {
        let odd = format!("{};{} 4096", frame("main (a;b.py:1)"), frame("x <y> &\n z"));
        let drawn = svg(&[&odd, "main 1"]).unwrap();
        for part in ["<?xml", "main (a:b.py:1)", "x &lt;y&gt; &amp;  z", "Peak &lt;1&gt;", "of all", "4,096 bytes"] {
            assert!(drawn.contains(part), "{part} is missing");
        }
        assert_eq!(svg(&[&odd]).unwrap(), svg(&[&odd]).unwrap());
        assert!(svg(&[]).is_err());
    }

    #[test]
    fn a_difference_has_its_own_colours() {
        let (grew, shrank) = (svg(&["main;step 10 20"]).unwrap(), svg(&["main;step 20 10"]).unwrap());
        assert_ne!(grew, shrank);
        assert!(grew.contains("; +50.00%") && shrank.contains("; -"), "{shrank}");
    }
}
