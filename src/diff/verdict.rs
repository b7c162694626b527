//! A comparison in one sentence, and whether it fails a limit.

use std::str::FromStr;

use super::Diff;
use super::basis::Basis;
use super::change::Change;
use crate::report::text::{bytes, clip, percent, plural};

/// How much more is still no failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// So many hundredths of what was.
    Percent(f64),
    /// So many bytes.
    Bytes(u64),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let wrong = || format!("{text:?} is no limit: give a share as 5% or a size as 200MiB");
        if let Some(number) = text.strip_suffix('%') {
            let number: f64 = number.trim().parse().map_err(|_| wrong())?;
            return if number.is_finite() && number >= 0.0 { Ok(Limit::Percent(number)) } else { Err(wrong()) };
        }
        let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let unit: f64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024f64.powi(2),
            "g" | "gib" => 1024f64.powi(3),
            "t" | "tib" => 1024f64.powi(4),
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(wrong()),
        };
        Ok(Limit::Bytes((number * unit) as u64))
    }
}

impl Limit {
    /// Whether a number grew by more.
    pub fn passed(self, before: u64, after: u64) -> bool {
        let more = after.saturating_sub(before);
        match self {
            Limit::Bytes(limit) => more > limit,
            Limit::Percent(limit) => more as f64 * 100.0 > before as f64 * limit,
        }
    }
}

/// What grew by more than the limit: what is compared, and of a peak what was reserved, too, for that is what a GPU must have.
pub fn failures(diff: &Diff, limit: Limit) -> Vec<String> {
    let mut says = Vec::new();
    let what = match diff.basis {
        Basis::Total => "bytes allocated".to_string(),
        Basis::Most => "what stacks held at most, added up,".to_string(),
        _ => format!("memory in use {}", diff.basis),
    };
    let mut check = |what: String, [before, after]: [u64; 2]| {
        if limit.passed(before, after) {
            says.push(format!("{what} grew from {} to {} ({})", bytes(before), bytes(after), share(before, after)));
        }
    };
    check(what, diff.held);
    if diff.basis == Basis::default() {
        check("memory reserved at most".into(), diff.reserved);
    }
    says
}

/// Growth as a share of what was: `+12.5 %`.
pub fn share(before: u64, after: u64) -> String {
    match (before, after) {
        (0, 0) => "none".into(),
        (0, _) => "new".into(),
        _ if after / before >= 10 => format!("x{}", after / before),
        _ if after >= before && (after - before) * 2000 < before => "<0.1 %".into(),
        _ if after >= before => format!("+{}", percent_of(after - before, before)),
        _ if (before - after) * 2000 < before => "<0.1 %".into(),
        _ => format!("-{}", percent(before - after, before)),
    }
}

/// As [`percent`], which is of parts of a whole; growth may be more than the whole.
fn percent_of(part: u64, whole: u64) -> String {
    if part < whole {
        return percent(part, whole);
    }
    format!("{:.0} %", part as f64 * 100.0 / whole as f64)
}

/// How many times as much: `x1.25`.
pub fn factor(before: u64, after: u64) -> String {
    if before == 0 || after == 0 {
        return String::new();
    }
    let f = after as f64 / before as f64;
    if f >= 99.5 { format!("x{f:.0}") } else { format!("x{f:.2}") }
}

/// Bytes with their sign.
pub fn signed(b: i64) -> String {
    let sign = if b < 0 { "-" } else { "+" };
    if b == 0 { "0 B".into() } else { format!("{sign}{}", bytes(b.unsigned_abs())) }
}

/// The comparison in a sentence.
pub fn verdict(diff: &Diff) -> String {
    let [before, after] = diff.held;
    let (grown, shrunk) = (diff.sum(true), diff.sum(false));
    let more = match diff.grew() {
        0 if grown == 0 && shrunk == 0 => return format!("the same {}: {}", diff.basis, bytes(after)),
        0 => format!("as much {}: {}", diff.basis, bytes(after)),
        g => format!("{} {} ({}, {} -> {})", signed(g), diff.basis, share(before, after), bytes(before), bytes(after)),
    };
    let count = |f: fn(&Change) -> bool| diff.of(false).filter(|c| f(c)).count() as u64;
    let (new, gone) = (count(Change::is_new), count(Change::is_gone));
    let grew = count(|c| c.bytes() > 0 && !c.is_new());
    let shrank = count(|c| c.bytes() < 0 && !c.is_gone());
    let mut parts = Vec::new();
    for (n, what) in [(grew, "grew"), (shrank, "shrank")] {
        if n > 0 {
            parts.push(format!("{} {what}", plural(n, "stack")));
        }
    }
    for (n, what) in [(new, "new"), (gone, "gone")] {
        if n > 0 {
            parts.push(format!("{n} {} {what}", if n == 1 { "is" } else { "are" }));
        }
    }
    let mut text = format!("{more}; {}", parts.join(", "));
    if let Some(first) = diff.of(false).next().filter(|c| c.bytes() != 0) {
        text += &format!("; most by {}: {}", place(first), signed(first.bytes()));
    }
    if let Some(scale) = scale(diff) {
        text += &format!("; {scale}");
    }
    text
}

/// Where a change is, in a few words: the user's line, or the innermost frame.
pub fn place(change: &Change) -> String {
    use crate::report::python::Whose;
    let frame = change.frames.iter().find(|f| f.whose == Whose::User).or(change.frames.first());
    let Some(frame) = frame else { return change.note.clone() };
    let what = clip(&frame.what, 40);
    if frame.place.is_empty() { what } else { format!("{what} ({})", frame.place) }
}

/// Whether most of the growth is one factor, as of a batch: `82 % of the growth is in stacks that hold x2.00`.
fn scale(diff: &Diff) -> Option<String> {
    let grown = diff.sum(true);
    let factor_of = |c: &Change| c.after.bytes as f64 / c.before.bytes as f64;
    let mut factors: Vec<(f64, u64)> = diff
        .of(false)
        .filter(|c| c.before.bytes > 0 && c.bytes() > 0)
        .map(|c| (factor_of(c), c.bytes().unsigned_abs()))
        .collect();
    factors.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The factor in the middle of the growth, and what is within a twentieth of it.
    let all: u64 = factors.iter().map(|f| f.1).sum();
    let mut sum = 0;
    let middle = factors.iter().find(|f| {
        sum += f.1;
        sum * 2 >= all
    })?;
    let middle = middle.0;
    let near: Vec<&(f64, u64)> = factors.iter().filter(|f| (f.0 / middle - 1.0).abs() < 0.05).collect();
    let bytes: u64 = near.iter().map(|f| f.1).sum();
    (near.len() >= 3 && bytes * 2 > grown && middle > 1.1)
        .then(|| format!("{} of what grew is in stacks that hold {middle:.2} times as much", percent(bytes, grown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        assert_eq!("5%".parse(), Ok(Limit::Percent(5.0)));
        assert_eq!("0".parse(), Ok(Limit::Bytes(0)));
        assert_eq!("1.5GiB".parse(), Ok(Limit::Bytes(3 << 29)));
        assert_eq!("200 MB".parse(), Ok(Limit::Bytes(200_000_000)));
        for wrong in ["", "%", "-5%", "a lot", "5 apples", "nan%", "inf%"] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
        assert!(Limit::Percent(5.0).passed(100, 106) && !Limit::Percent(5.0).passed(100, 105));
        assert!(Limit::Percent(5.0).passed(0, 1) && !Limit::Percent(5.0).passed(0, 0));
        assert!(!Limit::Percent(0.0).passed(100, 50) && Limit::Bytes(10).passed(0, 11));
    }

    #[test]
    fn growth_in_words() {
        assert_eq!(share(100, 150), "+50.0 %");
        assert_eq!(share(100, 250), "+150 %");
        assert_eq!(share(1, 20), "x20");
        assert_eq!(share(200, 150), "-25.0 %");
        assert_eq!((share(0, 5), share(0, 0)), ("new".into(), "none".into()));
        assert_eq!((factor(2, 5), factor(0, 5)), ("x2.50".into(), String::new()));
        assert_eq!((signed(-1024), signed(0), signed(3 << 20)), ("-1.00 KiB".into(), "0 B".into(), "+3.00 MiB".into()));
    }
}
