//! A moment of a history as a person writes it: `12.5s`, `3min`, `peak`, `end`, or the text of a mark.

use super::source::Source;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nanoseconds since the history's start.
    Time(u64),
    /// When most device memory was active.
    Peak,
    /// The last event.
    End,
    /// The first mark of this text.
    Mark(String),
}

impl Moment {
    /// Reads one. A number without a unit is seconds; what is no time is a mark.
    pub fn parse(text: &str) -> Result<Moment, String> {
        let text = text.trim();
        match text {
            "" => return Err("empty; allowed: 12.5s, 300ms, 2min, 1h, peak, end, or the text of a mark".to_string()),
            "peak" => return Ok(Moment::Peak),
            "end" => return Ok(Moment::End),
            _ => {}
        }
        Ok(time(text).map_or_else(|| Moment::Mark(text.to_string()), Moment::Time))
    }

    /// When it is. The error says what marks there are.
    pub fn of(&self, source: &Source) -> anyhow::Result<u64> {
        match self {
            Moment::Time(time) => Ok(*time),
            Moment::End => Ok(source.end),
            Moment::Peak => source.peak(),
            Moment::Mark(text) => source.marks.iter().find(|m| m.1 == *text).map(|m| m.0).ok_or_else(|| {
                let marks: Vec<&str> = source.marks.iter().take(5).map(|m| m.1.as_str()).collect();
                let have = match marks.len() {
                    0 => "it has no marks".to_string(),
                    _ => format!("its first marks: {}", marks.join(", ")),
                };
                let text = crate::report::text::clean(text);
                let file = source.path.display();
                anyhow::anyhow!("{file}: '{text}' is no time (12.5s, 300ms, 2min), nor a mark of this history ({have})")
            }),
        }
    }
}

/// A span of time: `1h`, `2min`, `12.5s`, `12.5`, `300ms`, `20us`, `5ns`.
fn time(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let one = match unit.trim() {
        "" | "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        "min" | "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number * one) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        for (text, ns) in
            [("12.5s", 12_500_000_000), ("3", 3_000_000_000), ("300 ms", 300_000_000), ("2min", 120_000_000_000)]
        {
            assert_eq!(Moment::parse(text), Ok(Moment::Time(ns)));
        }
        assert_eq!(Moment::parse("peak"), Ok(Moment::Peak));
        assert_eq!(Moment::parse("epoch 3"), Ok(Moment::Mark("epoch 3".into())));
        assert_eq!(Moment::parse("-1s"), Ok(Moment::Mark("-1s".into())));
        assert!(Moment::parse(" ").is_err());
    }
}
