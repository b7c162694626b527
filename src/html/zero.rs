//! One zero of time for the ranks of a job, so that a moment of one rank can be looked for in another: the beginning of the first
//! of them. Clocks of several hosts are put right as `vramscope merge` does it.

use vramscope_core::trace::Header;

use crate::merge::clocks::{self, Voice};
use crate::report::History;
use crate::report::text::{clean, time};

/// What to add to the times of each history, in nanoseconds; nothing, if they are not the ranks of one job.
pub fn of_headers(headers: &[Header]) -> Vec<u64> {
    let mut ranks: Vec<&str> = headers.iter().filter_map(Header::rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let job = |h: &Header| h.job().map(ToString::to_string);
    let one = headers.windows(2).all(|h| job(&h[0]) == job(&h[1]));
    if headers.len() < 2 || ranks.len() < headers.len() || !one {
        return vec![0; headers.len()];
    }
    since_first(headers.iter().map(|h| i128::from(wall(h))))
}

/// The same, with the hosts' clocks put right, and what a person should know of that; nothing, if `shifts` are right.
pub fn put_right(histories: &[History], shifts: &[u64]) -> Option<(Vec<u64>, Vec<String>)> {
    if shifts.iter().all(|s| *s == 0) {
        return None;
    }
    let voice = |(h, shift): (&History, &u64)| {
        let wall = |time: u64| wall(&h.header).saturating_add(time.saturating_sub(*shift));
        let marks = h.facts.regions.marks.iter().map(|m| (m.name.as_str(), wall(m.time)));
        Voice::new(&h.header.host, marks, h.facts.met.iter().map(|t| wall(*t)))
    };
    let voices: Vec<Voice> = histories.iter().zip(shifts).map(voice).collect();
    let clocks = clocks::apart(&voices);
    let corrected: Vec<_> = clocks.iter().filter(|c| c.corrected).collect();
    if corrected.is_empty() {
        return None;
    }
    let ahead = |h: &History| corrected.iter().find(|c| c.host == h.header.host).map_or(0, |c| c.ahead);
    let starts = histories.iter().map(|h| i128::from(wall(&h.header)) - i128::from(ahead(h)));
    let say = |c: &&clocks::Clock| {
        let (by, way) = (time(c.ahead.unsigned_abs()), if c.ahead > 0 { "ahead" } else { "behind" });
        format!("the clock of {} is {by} {way}: its ranks' times are put right", clean(&c.host))
    };
    Some((since_first(starts), corrected.iter().map(say).collect()))
}

/// Wall clock of a history's zero: nanoseconds since 1970.
fn wall(h: &Header) -> u64 {
    h.start_seconds.saturating_mul(1_000_000_000).saturating_add(h.start_nanoseconds.into())
}

/// The longest that ranks of a job may begin after the first; more is another run, or damage.
const LATEST: i128 = 24 * 3600 * 1_000_000_000;

fn since_first(starts: impl Iterator<Item = i128> + Clone) -> Vec<u64> {
    let first = starts.clone().min().unwrap_or(0);
    let shifts: Vec<i128> = starts.map(|s| s - first).collect();
    match shifts.iter().all(|s| *s <= LATEST) {
        true => shifts.into_iter().map(|s| s as u64).collect(),
        false => vec![0; shifts.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{MIB, Script};
    use vramscope_core::event::{Event, EventKind, Memory};
    use vramscope_core::trace::{Line, Text};

    /// A rank that began so many milliseconds after 1970, and at each of whose marks it was as late by its host's clock.
    fn rank(rank: &str, host: &str, start: u64, marks: &[u64]) -> Script {
        let mut s = Script::new();
        let Line::Header(h) = &mut s.lines[0] else { panic!() };
        (h.host, h.start_seconds, h.start_nanoseconds) = (host.into(), 0, start as u32 * 1_000_000);
        h.rank.insert("RANK".into(), rank.into());
        for (i, at) in marks.iter().enumerate() {
            let name = format!("epoch {i}");
            s.lines.push(Line::Text(Text { text: i as u32 + 1, value: name }));
            s.direct(Memory::Device, MIB, 0, 0);
            s.time = at * 1_000_000 - 1_000_000;
            s.event(Event { kind: EventKind::Mark, extra: [i as u64 + 1, 0, 0], ..Event::default() });
        }
        s
    }

    fn shifts(scripts: &[&Script]) -> Vec<u64> {
        let headers: Vec<Header> = scripts.iter().map(|s| s.history().header).collect();
        of_headers(&headers).iter().map(|ns| ns / 1_000_000).collect()
    }

    #[test]
    fn the_first_rank_begins_at_zero() {
        let (a, b) = (rank("0", "a", 250, &[]), rank("1", "a", 30, &[]));
        assert_eq!(shifts(&[&a, &b]), [220, 0]);
        // Two runs of one rank, or one history.
        assert_eq!(shifts(&[&a, &a]), [0, 0]);
        assert_eq!(shifts(&[&a]), [0]);
        let mut other = rank("2", "a", 30, &[]);
        let Line::Header(h) = &mut other.lines[0] else { panic!() };
        h.rank.insert("SLURM_JOB_ID".into(), "8".into());
        assert_eq!(shifts(&[&a, &other]), [0, 0]);
    }

    #[test]
    fn hosts_clocks_are_put_right_by_common_marks() {
        // Both come to their marks at once; the second host's clock is 400 ms ahead.
        let (a, b) = (rank("0", "a", 100, &[50, 100, 150]), rank("1", "b", 520, &[30, 80, 130]));
        let shifts = shifts(&[&a, &b]);
        assert_eq!(shifts, [0, 420]);
        let ns: Vec<u64> = shifts.iter().map(|ms| ms * 1_000_000).collect();
        let read = |s: &Script, shift| {
            History::of_lines(s.lines.iter().cloned().map(|l| crate::report::history::later(l, shift)))
        };
        let histories = [read(&a, ns[0]), read(&b, ns[1])];
        let (right, says) = put_right(&histories, &ns).unwrap();
        assert_eq!(right, [0, 20_000_000]);
        assert_eq!(says, ["the clock of b is 400 ms ahead: its ranks' times are put right"]);
        let again = [read(&a, right[0]), read(&b, right[1])];
        let marks = |h: &History| h.facts.regions.marks.iter().map(|m| m.time).collect::<Vec<_>>();
        assert_eq!(marks(&again[0]), marks(&again[1]));
    }
}
