//! A flame graph of who holds what: one SVG file, which opens in any browser.

use inferno::flamegraph::{Direction, Options};

/// The picture. Lines are stacks, outermost frame first, with their bytes.
pub fn svg(title: &str, stacks: &[(Vec<String>, u64)]) -> Result<Vec<u8>, String> {
    // What separates frames and counts in the text that the library reads.
    let clean = |frame: &String| frame.replace(';', ",").replace(char::is_control, " ");
    let line = |(path, bytes): &(Vec<String>, u64)| {
        let path: Vec<String> = path.iter().map(clean).collect();
        format!("{} {bytes}", path.join(";"))
    };
    let mut lines: Vec<String> = stacks.iter().map(line).collect();
    lines.sort_unstable();
    let mut options = Options::default();
    options.title = title.to_string();
    options.count_name = "bytes".to_string();
    options.direction = Direction::Inverted;
    options.hash = true;
    let mut out = Vec::new();
    let from = lines.iter().map(String::as_str);
    inferno::flamegraph::from_lines(&mut options, from, &mut out).map_err(|e| format!("flame graph: {e}"))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_boxes_and_odd_names_do_no_harm() {
        let stacks = [(vec!["main (a;b.py:1)".to_string(), "x <y> &\n z".to_string()], 4096), (vec!["main".into()], 1)];
        let svg = String::from_utf8(svg("Peak <1>", &stacks).unwrap()).unwrap();
        assert!(
            svg.starts_with("<?xml") && svg.contains("main (a,b.py:1)") && svg.contains("x &lt;y&gt; &amp;  z"),
            "{svg}"
        );
        assert!(super::svg("", &[]).is_err());
    }
}
