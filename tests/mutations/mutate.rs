//! What is done to a history: in its text, in its lines, and in its compressed bytes.

/// The same numbers for the same seed.
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn of(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `n`; 0 for 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }
}

/// In the place of a number, or anywhere.
const WORDS: &[&str] = &[
    "0",
    "1",
    "255",
    "256",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9007199254740991",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999",
    "-1",
    "1.5",
    "1e308",
    "-0",
    "null",
    "true",
    "\"0xffffffffffffffff\"",
    "\"0x\"",
    "\"18446744073709551615\"",
    "[]",
    "{}",
    "[[1,2],[3]]",
    "\"\"",
    "\"\\u0000\\ud800\"",
    "\"\\u001b[2J\"",
    "\u{202e}",
    "nan",
    "",
];

const KINDS: &[&str] = &[
    "alloc",
    "free",
    "segment_alloc",
    "segment_free",
    "alloc_failed",
    "free_failed",
    "bad_free",
    "sample",
    "context",
    "context_end",
    "trim",
    "export",
    "map",
    "unmap",
    "counters",
    "exit",
    "mark",
    "region_begin",
    "region_end",
    "live",
    "header",
    "footer",
    "stack",
    "python",
    "text",
    "module",
    "symbol",
    "thread",
    "device",
    "note",
    "oom",
    "quantum",
];

/// A history, changed.
pub fn case(histories: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> =
        pick(histories, random).split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    for _ in 0..random.below(12) {
        change_lines(&mut lines, histories, random);
    }
    let text = lines.concat();
    if random.below(2) == 0 {
        let mut text = text;
        for _ in 0..random.below(4) {
            change_bytes(&mut text, random);
        }
        return text;
    }
    // Frames of some lines each; then the frames are changed.
    let each = 1 + random.below(lines.len());
    let mut frames: Vec<Vec<u8>> =
        lines.chunks(each).map(|lines| zstd::bulk::compress(&lines.concat(), 1).expect("a frame")).collect();
    for _ in 0..random.below(3) {
        let (at, other) = (random.below(frames.len()), random.below(frames.len()));
        match random.below(4) {
            0 => frames.swap(at, other),
            1 => frames.insert(at, frames[other].clone()),
            // A frame that readers skip.
            2 => frames.insert(at, b"\x50\x2a\x4d\x18\x05\0\0\0hello".to_vec()),
            _ => drop(frames.remove(at)),
        }
        if frames.is_empty() {
            break;
        }
    }
    let mut bytes = frames.concat();
    for _ in 0..random.below(4) {
        change_bytes(&mut bytes, random);
    }
    bytes
}

fn pick<'a, T>(all: &'a [T], random: &mut Random) -> &'a T {
    &all[random.below(all.len())]
}

fn change_lines(lines: &mut Vec<Vec<u8>>, histories: &[Vec<u8>], random: &mut Random) {
    if lines.is_empty() {
        return;
    }
    let (at, other) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(14) {
        0 => lines.swap(at, other),
        1 => drop(lines.remove(at)),
        2 => lines.insert(at, lines[other].clone()),
        // A run of them, moved or again.
        3 => {
            let run: Vec<_> = lines[at..].iter().take(1 + random.below(200)).cloned().collect();
            if random.below(2) == 0 {
                lines.drain(at..at + run.len());
            }
            let to = random.below(lines.len());
            lines.splice(to..to, run);
        }
        4 => {
            let deep = random.below(100_000);
            let (open, close) = *pick(&[("[", "]"), ("{\"a\":", "}")], random);
            let value = if open == "[" { String::new() } else { "1".to_owned() };
            let line = format!(
                "{{\"kind\":\"{}\",\"frames\":{}{value}{}}}\n",
                pick(KINDS, random),
                open.repeat(deep),
                close.repeat(deep)
            );
            lines.insert(at, line.into_bytes());
        }
        5 => {
            let line =
                format!("{{\"kind\":\"note\",\"time\":1,\"message\":\"{}\"}}\n", "n".repeat(random.below(1 << 20)));
            lines.insert(at, line.into_bytes());
        }
        6 => lines.insert(at, format!("{{\"kind\":\"{}\"}}\n", pick(KINDS, random)).into_bytes()),
        7 => {
            let from = b"{\"kind\":\"";
            if let Some(rest) = lines[at].strip_prefix(from)
                && let Some(end) = rest.iter().position(|b| *b == b'"')
            {
                lines[at] = [from, pick(KINDS, random).as_bytes(), &rest[end..]].concat();
            }
        }
        8 => {
            let history: Vec<_> =
                pick(histories, random).split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
            let from = random.below(history.len());
            lines.extend_from_slice(&history[from..]);
        }
        _ => change_number(&mut lines[at], random),
    }
}

/// Puts something in the place of a number.
fn change_number(line: &mut Vec<u8>, random: &mut Random) {
    let starts: Vec<usize> =
        (1..line.len()).filter(|i| line[*i].is_ascii_digit() && !line[*i - 1].is_ascii_digit()).collect();
    if starts.is_empty() {
        return;
    }
    let from = *pick(&starts, random);
    let end = line[from..].iter().position(|b| !b.is_ascii_digit()).map_or(line.len(), |n| from + n);
    let word = if random.below(3) == 0 {
        (random.next() >> random.below(64)).to_string()
    } else {
        (*pick(WORDS, random)).to_owned()
    };
    line.splice(from..end, word.into_bytes());
}

fn change_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(5) {
        0 => bytes.truncate(at),
        1 => {
            let end = bytes.len().min(at + random.below(64));
            drop(bytes.drain(at.min(end)..end));
        }
        2 => {
            let word = pick(WORDS, random).as_bytes().to_vec();
            bytes.splice(at..at, word);
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}
