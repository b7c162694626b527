//! How numbers look to a person: bytes, counts, times, shares; and colour, where the terminal wants it.
//!
//! Plain ASCII, so that a report survives logs, mails and serial consoles.

pub use vramscope_core::text::{bytes, count, percent, plural, time};

/// Columns a report fits in.
pub const WIDTH: usize = 100;

/// A part from 0 to 1, as [`percent`] writes it.
pub fn part(p: f64) -> String {
    percent((p.clamp(0.0, 1.0) * 1e6).round() as u64, 1_000_000)
}

/// Cuts a text to this many characters, the end replaced by `...`.
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    let keep: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{keep}...")
}

/// A text over several lines of at most so many characters: `first` before the first, `next` before the others. Only a word
/// that is longer by itself stands out.
pub fn fold(text: &str, width: usize, first: &str, next: &str) -> Vec<String> {
    let mut lines = vec![first.to_string()];
    let mut is_begun = false;
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        let last = lines.last().map_or(0, |l| l.chars().count());
        if is_begun && last + 1 + word.chars().count() > width {
            lines.push(next.to_string());
            is_begun = false;
        }
        if let Some(line) = lines.last_mut() {
            if is_begun {
                line.push(' ');
            }
            line.push_str(word);
        }
        is_begun = true;
    }
    lines
}

/// Cuts a text to this many characters, the start replaced by `...`: for paths, whose end says more.
pub fn clip_start(text: &str, width: usize) -> String {
    let n = text.chars().count();
    if n <= width {
        return text.to_string();
    }
    let keep: String = text.chars().skip(n - width.saturating_sub(3)).collect();
    format!("...{keep}")
}

/// Text from outside (paths, names, messages) without what would move a terminal's cursor.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Colours, or none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    /// Whether to colour.
    pub on: bool,
}

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// A heading, or the number that matters.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// What may be skipped.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// What is wrong.
    pub fn red(self, text: &str) -> String {
        self.with("31", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(1 << 20), "1.00 MiB");
        assert_eq!(bytes((1 << 20) - 1), "1.00 MiB");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(bytes(1_556_925_644), "1.45 GiB");
        assert_eq!(bytes(141 << 30), "141 GiB");
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(plural(1, "stack"), "1 stack");
        assert_eq!(time(0), "0 s");
        assert_eq!(time(820), "820 ns");
        assert_eq!(time(12_345_678_901), "12.3 s");
        assert_eq!(time(7_380_000_000_000), "2 h 03 min");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(99_999, 100_000), ">99.9 %");
        assert_eq!(percent(0, 5), "0 %");
        assert_eq!(percent(5, 0), "-");
    }

    #[test]
    fn cutting() {
        assert_eq!(clip("abcdefgh", 6), "abc...");
        assert_eq!(fold("one two three", 9, "- ", "  "), ["- one two", "  three"]);
        assert_eq!(fold("/a/long/path", 4, "  ", "    "), ["  /a/long/path"]);
        assert_eq!(fold("", 4, "  ", "    "), ["  "]);
        assert_eq!(clip_start("/a/b/c.cpp", 8), "...c.cpp");
        assert_eq!(clean("a\x1b[2Jb\n"), "a [2Jb ");
        assert_eq!(Paint { on: false }.bold("x"), "x");
        assert_eq!(Paint { on: true }.bold("x"), "\x1b[1mx\x1b[0m");
    }
}
