//! Lines to a person, which never break the program that they are about: a closed pipe is no error.

use std::io::Write;

/// A line on stderr, with our name before it.
pub fn line(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "vramscope: {}", steady(text));
}

/// Text of some lines without what would move a terminal's cursor: paths and names from outside may be in it.
fn steady(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { ' ' } else { c }).collect()
}

/// A message without the ` (os error 2)` that Rust adds to what the system says.
pub fn plain(message: &str) -> String {
    let mut text = message.to_string();
    while let Some(start) = text.find(" (os error ") {
        let end = text[start..].find(')').map_or(text.len(), |i| start + i + 1);
        text.replace_range(start..end, "");
    }
    text
}

/// Text on stderr as it is.
pub fn raw(text: &[u8]) {
    let _ = std::io::stderr().lock().write_all(text);
}

/// Text on stdout. A reader that has gone (`report | head`) has seen enough.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(anyhow::anyhow!("stdout: {e}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_for_people() {
        assert_eq!(super::plain("a: No such file or directory (os error 2)"), "a: No such file or directory");
        assert_eq!(super::steady("a\u{1b}[2J\r\u{9b}\nb"), "a [2J  \nb");
        assert_eq!(super::plain("x (os error 13); y"), "x; y");
    }
}
