//! The moment at which two histories are compared.

use std::fmt;
use std::str::FromStr;

use crate::report::text;

/// A moment of a history, or all of it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Moment {
    /// When most was in use.
    #[default]
    Peak,
    /// The end.
    End,
    /// Not one moment: each stack when it held most.
    Most,
    /// No moment: everything that was ever allocated.
    Total,
    /// So many nanoseconds after recording began.
    Time(u64),
    /// A mark of the program's, by its text: the first so named, or the one of that number, from 1.
    Mark(String, u32),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        match text {
            "" => return Err("--at wants peak, end, most, total, a time as 1.5s, or the text of a mark".into()),
            "peak" => return Ok(Moment::Peak),
            "end" => return Ok(Moment::End),
            "most" => return Ok(Moment::Most),
            "total" => return Ok(Moment::Total),
            _ => {}
        }
        if let Some(time) = time(text) {
            return Ok(Moment::Time(time));
        }
        // `epoch#3` is the third mark `epoch`.
        let counted = text.rsplit_once('#').and_then(|(name, n)| Some((name, n.parse::<u32>().ok()?)));
        Ok(match counted {
            Some((name, n)) if n > 0 && !name.is_empty() => Moment::Mark(name.into(), n),
            _ => Moment::Mark(text.into(), 1),
        })
    }
}

/// `250ms`, `1.5s`, `2min`, `1h` as nanoseconds.
fn time(text: &str) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().ok()?;
    let unit = match unit.trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" | "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    Some((number * unit) as u64)
}

impl Moment {
    /// As a person writes it.
    pub fn key(&self) -> String {
        match self {
            Moment::Peak => "peak".into(),
            Moment::End => "end".into(),
            Moment::Most => "most".into(),
            Moment::Total => "total".into(),
            Moment::Time(ns) => format!("{ns}ns"),
            Moment::Mark(name, 1) => name.clone(),
            Moment::Mark(name, n) => format!("{name}#{n}"),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Peak => f.write_str("at the peak"),
            Moment::End => f.write_str("at the end"),
            Moment::Most => f.write_str("when each stack held most"),
            Moment::Total => f.write_str("allocated in all"),
            Moment::Time(ns) => write!(f, "at {}", text::time(*ns)),
            Moment::Mark(name, 1) => write!(f, "at the mark \"{}\"", text::clean(name)),
            Moment::Mark(name, n) => write!(f, "at mark {n} \"{}\"", text::clean(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_as_people_write_them() {
        for (text, moment) in [
            ("peak", Moment::Peak),
            ("end", Moment::End),
            ("most", Moment::Most),
            ("total", Moment::Total),
            ("1.5s", Moment::Time(1_500_000_000)),
            ("20 ms", Moment::Time(20_000_000)),
            ("2min", Moment::Time(120_000_000_000)),
            ("epoch 3", Moment::Mark("epoch 3".into(), 1)),
            ("epoch#3", Moment::Mark("epoch".into(), 3)),
            ("#3", Moment::Mark("#3".into(), 1)),
            ("3 steps", Moment::Mark("3 steps".into(), 1)),
        ] {
            assert_eq!(moment.key().parse(), Ok(moment.clone()), "{text}");
            assert_eq!(text.parse(), Ok(moment), "{text}");
        }
        assert!("".parse::<Moment>().is_err());
        assert_eq!(Moment::Mark("a\n".into(), 2).to_string(), "at mark 2 \"a \"");
    }
}
