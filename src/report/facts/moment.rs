//! A moment that somebody asked about: what every holder held then.

use super::ledger::{Ledger, Use};
use crate::report::state::State;
use crate::report::tally::Tally;

/// Which moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// When most was in use.
    Peak,
    /// After the last event.
    End,
    /// This many nanoseconds after recording began.
    Time(u64),
    /// The mark of this name, the n-th of them, from 1.
    Mark(String, u64),
}

impl Wanted {
    /// The moment that a text names: `peak`, `end`, `1.5s`, `200ms`, `12us`, or a mark, also `NAME#2`.
    pub fn parse(text: &str) -> Wanted {
        match text {
            "peak" => return Wanted::Peak,
            "end" => return Wanted::End,
            _ => {}
        }
        if let Some(ns) = nanoseconds(text) {
            return Wanted::Time(ns);
        }
        match text.rsplit_once('#').and_then(|(name, n)| Some((name, n.parse::<u64>().ok()?))) {
            Some((name, n)) if n > 0 && !name.is_empty() => Wanted::Mark(name.to_string(), n),
            _ => Wanted::Mark(text.to_string(), 1),
        }
    }
}

fn nanoseconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let ns = number.parse::<f64>().ok()? * scale;
    (ns.is_finite() && ns < 9e18).then_some(ns as u64)
}

/// What was held at such a moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Which.
    pub wanted: Wanted,
    /// Its time.
    pub time: u64,
    /// Each holder's sum, by number; holders that came later had nothing.
    pub held: Vec<Tally>,
    /// All of it.
    pub usage: Use,
}

impl Moment {
    pub(super) fn of(wanted: Wanted, time: u64, ledger: &Ledger, state: &State) -> Moment {
        let held = ledger.holders.iter().map(|h| h.now).collect();
        Moment { wanted, time, held, usage: ledger.usage(state) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_by_name() {
        assert_eq!(Wanted::parse("peak"), Wanted::Peak);
        assert_eq!(Wanted::parse("1.5s"), Wanted::Time(1_500_000_000));
        assert_eq!(Wanted::parse("200 ms"), Wanted::Time(200_000_000));
        assert_eq!(Wanted::parse("epoch 3"), Wanted::Mark("epoch 3".into(), 1));
        assert_eq!(Wanted::parse("epoch#4"), Wanted::Mark("epoch".into(), 4));
        assert_eq!(Wanted::parse("a#0"), Wanted::Mark("a#0".into(), 1));
        assert_eq!(Wanted::parse("7"), Wanted::Mark("7".into(), 1));
    }
}
