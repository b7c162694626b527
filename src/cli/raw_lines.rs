//! The lines of a history as they stand in its files, for a copy that keeps what this version does not know.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use serde::de::IgnoredAny;
use vramscope_core::trace::read::{Reader, parts};
use vramscope_core::trace::write;

/// How a zstd frame begins.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether a file is compressed.
pub fn is_compressed(path: &Path) -> std::io::Result<bool> {
    Ok(BufReader::new(File::open(path)?).fill_buf()?.starts_with(&ZSTD))
}

/// The kind of a line; empty if it has none.
pub fn kind(line: &[u8]) -> String {
    // As our own writer has it.
    if let Some(rest) = line.strip_prefix(b"{\"kind\":\"")
        && let Some(end) = rest.iter().position(|b| *b == b'"' || *b == b'\\')
        && rest[end] == b'"'
    {
        return String::from_utf8_lossy(&rest[..end]).into_owned();
    }
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    serde_json::from_slice::<Kind>(line).map(|k| k.kind).unwrap_or_default()
}

/// Gives every line of an undamaged history to `each`, with its kind and its end of line. Of the later part of a
/// rotated one, the header and what only repeats are left out.
pub fn each(path: &Path, mut each: impl FnMut(&str, &[u8]) -> Result<()>) -> Result<()> {
    for (i, part) in parts(path).iter().enumerate() {
        let name = || part.display().to_string();
        let compressed = is_compressed(part).with_context(name)?;
        let file = BufReader::new(File::open(part).with_context(name)?);
        let mut text: Box<dyn BufRead> = match compressed {
            true => Box::new(BufReader::new(zstd::stream::read::Decoder::with_buffer(file).with_context(name)?)),
            false => Box::new(file),
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            text.read_until(b'\n', &mut line).with_context(name)?;
            let last = !line.ends_with(b"\n");
            if last {
                // It may still be being written.
                if serde_json::from_slice::<IgnoredAny>(&line).is_err() {
                    break;
                }
                line.push(b'\n');
            }
            match kind(&line) {
                kind if i > 0 && (kind == "header" || kind == "live") => {}
                kind => each(&kind, &line)?,
            }
            if last {
                break;
            }
        }
    }
    Ok(())
}

/// The same for a damaged one: the lines that can be read, written anew.
pub fn each_readable(path: &Path, mut each: impl FnMut(&str, &[u8]) -> Result<()>) -> Result<()> {
    let mut text = Vec::new();
    for line in Reader::open(path).map_err(|e| anyhow!("{e}"))? {
        text.clear();
        write::line(&mut text, &line);
        if !text.is_empty() {
            each(&kind(&text), &text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(kind(b"{\"kind\":\"alloc\",\"id\":1}\n"), "alloc");
        assert_eq!(kind(b"{ \"id\": 1, \"kind\" : \"module\" }"), "module");
        assert_eq!(kind(b"{\"kind\":\"al\\u006coc\"}"), "alloc");
        for line in [&b"{\"kind\":\"alloc"[..], b"{\"kind\":7}", b"text", b""] {
            assert_eq!(kind(line), "");
        }
    }
}
