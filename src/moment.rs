//! A moment of a history, as a person names it on the command line: one rule for all commands.

use std::fmt;
use std::str::FromStr;

use crate::report::History;
use crate::report::text::{clean, clip, time};

/// What a flag takes for a moment, for its help.
macro_rules! moments {
    () => {
        "peak, end, a time after the start (1.5s, 200ms, 2min), or the text of a mark (NAME#2: the second so named)"
    };
}
pub(crate) use moments;

/// Marks that are named of those that there are.
const NAMED: usize = 8;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Moment {
    /// When most was in use.
    #[default]
    Peak,
    /// After the last event.
    End,
    /// This many nanoseconds after recording began.
    Time(u64),
    /// A mark, as it was written.
    Mark(String),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        Ok(match text.trim() {
            "" => return Err(concat!("give ", moments!()).to_string()),
            "peak" => Moment::Peak,
            "end" => Moment::End,
            word => nanoseconds(word).map_or_else(|| Moment::Mark(text.to_string()), Moment::Time),
        })
    }
}

/// A number with its unit. One without is no time: marks are called so.
fn nanoseconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" | "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let ns = number.parse::<f64>().ok()? * scale;
    (ns < 9e18).then_some(ns as u64)
}

impl Moment {
    /// Whether it is this mark, the n-th of this text, from 1. (A text may itself end in `#2`.)
    pub fn is_mark(&self, text: &str, nth: u64) -> bool {
        let Moment::Mark(wanted) = self else { return false };
        let counted = || wanted.rsplit_once('#').is_some_and(|(name, n)| name == text && n.parse() == Ok(nth));
        wanted == text && nth == 1 || counted()
    }

    /// As a flag takes it.
    pub fn word(&self) -> String {
        match self {
            Moment::Peak => "peak".to_string(),
            Moment::End => "end".to_string(),
            Moment::Time(ns) => format!("{ns}ns"),
            Moment::Mark(text) => text.clone(),
        }
    }

    /// Why a history that goes from `start` to `end` can't have it: a time that it says nothing of.
    pub fn outside(&self, history: &History, (start, end): (u64, u64)) -> Option<String> {
        let Moment::Time(at) = self else { return None };
        if history.is_snapshot() {
            return Some("a snapshot is of one moment, and has no other".to_string());
        }
        if *at > end {
            return Some(format!("{} is not in it: the history ends at {}", time(*at), time(end)));
        }
        // A part begins with what was live then, and does not say what was before.
        let before = history.is_part() && *at < start;
        before.then(|| format!("{} is not in it: what is left of the history begins at {}", time(*at), time(start)))
    }

    /// What to say where it is none of the history's marks.
    pub fn missing<'a>(&self, marks: impl IntoIterator<Item = &'a str>) -> String {
        let mut names: Vec<&str> = marks.into_iter().collect();
        names.dedup();
        let more = if names.len() > NAMED { ", ..." } else { "" };
        let known = match names.len() {
            0 => "the history has no marks".to_string(),
            n => format!("its marks are {}{more}", clip(&clean(&names[..n.min(NAMED)].join(", ")), 200)),
        };
        format!("no mark {:?}: {known}; or give {}", clean(&self.word()), moments!())
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Peak => f.write_str("at the peak"),
            Moment::End => f.write_str("at the end"),
            Moment::Time(ns) => write!(f, "at {}", time(*ns)),
            Moment::Mark(text) => write!(f, "at the mark \"{}\"", clean(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::basis::Basis;
    use crate::diff::run::Run;
    use crate::export::Source;
    use crate::export::testing::file;
    use crate::report::testing::{Loop, MIB, Script};
    use vramscope_core::event::{Event, EventKind};
    use vramscope_core::trace::{Line, Text};

    #[test]
    fn moments_as_people_write_them() {
        for (text, moment) in [
            ("peak", Moment::Peak),
            ("end", Moment::End),
            ("1.5s", Moment::Time(1_500_000_000)),
            ("200 ms", Moment::Time(200_000_000)),
            ("12us", Moment::Time(12_000)),
            ("2min", Moment::Time(120_000_000_000)),
            ("3m", Moment::Time(180_000_000_000)),
            ("1h", Moment::Time(3_600_000_000_000)),
            ("7", Moment::Mark("7".into())),
            ("-1s", Moment::Mark("-1s".into())),
            ("9999999999999h", Moment::Mark("9999999999999h".into())),
            ("1.2.3s", Moment::Mark("1.2.3s".into())),
            ("3 steps", Moment::Mark("3 steps".into())),
            (" epoch", Moment::Mark(" epoch".into())),
            ("epoch#3", Moment::Mark("epoch#3".into())),
        ] {
            assert_eq!(text.parse(), Ok(moment.clone()), "{text}");
            assert_eq!(moment.word().parse(), Ok(moment), "{text}");
        }
        for text in ["", "  "] {
            assert!(text.parse::<Moment>().unwrap_err().starts_with("give peak, end, a time"));
        }
    }

    #[test]
    fn the_marks_that_a_text_means() {
        let is = |written: &str, text: &str, nth| written.parse::<Moment>().unwrap().is_mark(text, nth);
        assert!(is("epoch", "epoch", 1) && !is("epoch", "epoch", 2) && !is("epoch", "epochs", 1));
        assert!(is("epoch#3", "epoch", 3) && !is("epoch#3", "epoch", 1) && !is("epoch#0", "epoch", 1));
        assert!(is("epoch#3", "epoch#3", 1) && !is("epoch#3", "epoch#3", 2));
        // What would be something else.
        assert!(is("peak#1", "peak", 1) && is("2s#1", "2s", 1) && !is("peak", "peak", 1));
    }

    #[test]
    fn a_mark_that_is_not_there_is_told_with_those_that_are() {
        let said = Moment::Mark("e\n".into()).missing(["a", "a", "b"]);
        assert!(said.starts_with("no mark \"e \": its marks are a, b; or give peak, end"), "{said}");
        assert!(Moment::Mark("7".into()).missing([]).contains("the history has no marks; or give"));
        let many: Vec<String> = (0..20).map(|i| format!("step {i}")).collect();
        assert!(Moment::Mark("7".into()).missing(many.iter().map(String::as_str)).contains("step 7, ...;"));
    }
    /// When a moment is, to `report`, `export` and `diff`; none: it is not there.
    fn times(script: &Script, moment: &str) -> [Option<u64>; 3] {
        let moment: Moment = moment.parse().unwrap();
        let (_folder, path) = file(script);
        let history = History::read_at(&path, std::slice::from_ref(&moment)).unwrap();
        let report = crate::report::holders::held(&history, &history.facts, &moment).ok();
        let source = Source::open(&path, &[]).unwrap();
        let run = Run::read(&path, &Basis::At(moment.clone())).unwrap();
        let diff = run.held.has_moment().then(|| run.held.at_moment().time);
        [report.map(|(_, time, ..)| time), source.time(&moment).unwrap(), diff]
    }

    #[test]
    fn a_moment_is_the_same_to_every_command() {
        let mut l = Loop::new();
        for (text, value) in [(1, "epoch"), (2, "epoch#2"), (3, "peak")] {
            l.script.lines.push(Line::Text(Text { text, value: value.into() }));
        }
        let mark = |l: &mut Loop, text: u64, thread| {
            l.script.on(thread, Event { kind: EventKind::Mark, extra: [text, 0, 0], ..Event::default() });
            Some(l.script.time)
        };
        // The tensors' segment comes first, with the first of them: then most is reserved, and little in use.
        let small = l.tensor("empty", 3, MIB);
        let first = mark(&mut l, 1, 1);
        let large = l.tensor("empty", 4, 64 * MIB);
        let peak = Some(l.script.time);
        l.drop(large);
        let (last, literal, named) = (mark(&mut l, 1, 2), mark(&mut l, 2, 1), mark(&mut l, 3, 1));
        l.drop(small);
        l.script.footer("exit");
        for (moment, time) in [
            ("peak", peak),
            ("end", Some(l.script.time)),
            ("2ms", Some(2_000_000)),
            ("epoch", first),
            ("epoch#1", first),
            ("epoch#2", last),
            ("epoch#2#1", literal),
            ("peak#1", named),
            ("epoch#3", None),
            ("7", None),
        ] {
            assert_eq!(times(&l.script, moment), [time; 3], "{moment}");
        }
    }
}
