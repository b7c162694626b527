//! Jobs whose ranks are known by construction.

use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::trace::{Footer, Line, Text};

use super::*;
use crate::diff::basis::Basis;
use crate::diff::run::Run;
use crate::report::Page;
use crate::report::testing::{MIB, Script, named};
use crate::report::text::{Paint, WIDTH};

const SECOND: u64 = 1_000_000_000;

/// What a rank is made of.
#[derive(Clone)]
struct Made {
    rank: &'static str,
    world: &'static str,
    host: &'static str,
    /// Its clock when it starts.
    start: u64,
    /// MiB of activations, of what NCCL takes, and kept to the end.
    work: u64,
    nccl: u64,
    /// Time between its marks.
    pace: u64,
    footer: Option<(&'static str, Option<i32>)>,
}

const MADE: Made = Made {
    rank: "0",
    world: "4",
    host: "gpu01",
    start: 1000,
    work: 500,
    nccl: 64,
    pace: 1_000_000,
    footer: Some(("exit", Some(0))),
};

impl Made {
    fn script(&self) -> Script {
        let mut s = Script::new();
        if let Some(Line::Header(h)) = s.lines.first_mut() {
            h.rank = BTreeMap::from([("RANK".into(), self.rank.into()), ("WORLD_SIZE".into(), self.world.into())]);
            h.host = self.host.into();
            h.start_seconds = self.start;
            // Runs of other times are other processes.
            h.pid = 3000 + self.start as u32 + self.rank.parse::<u32>().unwrap_or(0);
        }
        s.module(4, "/usr/lib/libnccl.so.2");
        s.lines.push(Line::Text(Text { text: 1, value: "step".into() }));
        let (load, forward, init) =
            (s.stack(&[(1, 0x10), (1, 0x90)]), s.stack(&[(1, 0x20), (1, 0x90)]), s.stack(&[(4, 0x77), (1, 0x90)]));
        s.direct(Memory::Vmm, self.nccl * MIB, init, 4);
        s.direct(Memory::Device, 100 * MIB, load, 1);
        for _ in 0..5 {
            s.time += self.pace;
            s.event(Event { kind: EventKind::Mark, extra: [1, 0, 0], ..Event::default() });
        }
        s.direct(Memory::Device, self.work * MIB, forward, 1);
        if let Some((end, status)) = self.footer {
            s.event(Event { kind: EventKind::Exit, ..Event::default() });
            s.lines.push(Line::Footer(Footer { end: end.into(), status, ..Footer::default() }));
        }
        s
    }

    fn rank(&self) -> Rank {
        Rank::of(Run::of_lines(self.script().lines.into_iter(), &Basis::default()))
    }
}

fn names() -> Names {
    let mut names = Names::new(&[]);
    for (offset, function) in [(0x10, "load()"), (0x20, "forward()"), (0x90, "main")] {
        names.insert(1, offset, vec![named(function, "/job/model.cu", 7)]);
    }
    names.insert(4, 0x77, vec![named("ncclCommInit", "", 0)]);
    names
}

fn job(made: &[Made]) -> Job {
    let mut job = Job::of(made.iter().map(Made::rank).collect());
    job.look_closer([&mut names(), &mut names()]);
    job
}

fn written(job: &Job) -> String {
    let mut page = Page::new(Paint::default(), &[], 10);
    text::write(&mut page, job);
    println!("{}", page.out);
    for line in page.out.lines() {
        assert!(line.chars().count() <= WIDTH && line.is_ascii() && line.trim_end() == line, "{line:?}");
    }
    page.out
}

/// Text as if the screen were wide.
fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const RANKS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];

/// Ranks that differ by some bytes, as they do.
fn alike(n: usize, world: &'static str) -> Vec<Made> {
    (0..n).map(|i| Made { rank: RANKS[i], world, work: 500 + i as u64 % 3, ..MADE }).collect()
}

#[test]
fn ranks_that_are_alike_have_no_odd_one() {
    let job = job(&alike(8, "8"));
    assert_eq!((job.odd.len(), job.world.missing.len(), job.differing.is_none()), (0, 0, true));
    assert_eq!(job.collectives["libnccl.so"], [64 * MIB; 8]);
    let text = written(&job);
    assert!(text.contains("8 ranks of 8 on 1 host") && text.contains("none: what each owner holds is alike"));
    assert!(text.contains("64.0 MiB on each rank, 512 MiB in all"));
}

#[test]
fn ranks_that_all_differ_are_not_called_alike() {
    let mut made = alike(3, "3");
    (made[1].work, made[2].work) = (650, 800);
    let job = job(&made);
    assert!(job.odd.is_empty());
    let text = in_a_line(&written(&job));
    assert!(
        text.contains("no rank stands out from the others, though they differ: peak active is 664 MiB to 964 MiB"),
        "{text}"
    );
    assert!(!text.contains("alike"), "{text}");
}

#[test]
fn snapshots_and_copies_are_left_out_and_named() {
    let run = |made: &Made, path: &str, snapshot: bool| {
        let mut lines = made.script().lines;
        if snapshot {
            // What lives at some moment, and no event.
            lines.retain(|line| !matches!(line, Line::Event(..)));
            if let Some(Line::Header(h)) = lines.first_mut() {
                h.events_before = 7;
            }
        }
        let mut run = Run::of_lines(lines.into_iter(), &Basis::default());
        run.history.path = path.into();
        run
    };
    let made = alike(2, "2");
    let all = vec![
        run(&made[0], "now.jsonl", true),
        run(&made[0], "0.jsonl", false),
        run(&made[1], "1.jsonl", false),
        run(&made[1], "copy.jsonl", false),
    ];
    let (ranks, says) = choose::ranks(all);
    assert_eq!(ranks.iter().map(|r| r.run.path().to_str().unwrap()).collect::<Vec<_>>(), ["0.jsonl", "1.jsonl"]);
    assert_eq!(
        says,
        [
            "1 snapshot left out, of one moment only: now.jsonl",
            "1 more file left out, of a process that is shown already: copy.jsonl"
        ]
    );
    let (ranks, says) = choose::ranks(vec![run(&made[0], "now.jsonl", true)]);
    assert_eq!((ranks.len(), says.len()), (1, 0), "snapshots are better than nothing");
}

#[test]
fn the_odd_one_is_named_with_its_stack() {
    let mut made = alike(8, "8");
    made[5].work = 900;
    let job = job(&made);
    assert_eq!((job.odd[0].rank.as_str(), job.odd[0].bytes / MIB), ("rank 5", 1064));
    assert!(job.odd.iter().all(|o| o.rank == "rank 5"), "{:?}", job.odd);
    let differing = job.differing.as_ref().unwrap();
    assert_eq!(differing.changes[0].frames[0].what, "forward()");
    assert!(differing.changes[0].bytes() >= 398 * MIB as i64);
    let text = written(&job);
    assert!(text.contains("WHAT DIFFERS at the peak, rank 5 against rank"), "{text}");
}

#[test]
fn an_owner_that_differs_is_named_even_if_the_sum_is_the_same() {
    let mut made = alike(8, "8");
    (made[3].nccl, made[3].work) = (264, 301);
    let job = job(&made);
    let nccl = job.odd.iter().find(|o| o.what == "libnccl.so").unwrap();
    assert_eq!((nccl.rank.as_str(), nccl.bytes, nccl.median), ("rank 3", 264 * MIB, 64 * MIB));
    let said = "64.0 MiB at the median, 64.0 MiB at least (rank 0), 264 MiB at most (rank 3)";
    assert!(in_a_line(&written(&job)).contains(said));
}

#[test]
fn of_two_ranks_the_difference_is_told() {
    let mut made = alike(2, "2");
    made[1].work = 700;
    let text = written(&job(&made));
    assert!(text.contains("peak active 864 MiB (200 MiB more than the other's 664 MiB)"), "{text}");
}

#[test]
fn missing_ranks_and_strangers() {
    let made = alike(8, "8");
    let job_of = |some: &[usize]| job(&some.iter().map(|i| made[*i].clone()).collect::<Vec<_>>());
    let seven = job_of(&[0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(seven.world.missing, [5]);
    assert!(written(&seven).contains("WORLD_SIZE says 8, 7 ranks found: rank 5 is missing"));
    assert_eq!(job_of(&[0, 7]).world.missing, [1, 2, 3, 4, 5, 6]);
    // A rank that is there twice: the last run counts.
    let mut earlier = made[1].clone();
    (earlier.work, earlier.start) = (900, 10);
    let job = job(&[made[0].clone(), earlier, made[1].clone()]);
    assert_eq!(job.ranks.len(), 2);
    assert!(
        job.ranks[1].peak() < 700 * MIB && job.world.says[0].contains("rank 1 has another history, of an earlier run")
    );
    let mut other = made[2].clone();
    other.world = "4";
    assert!(job_says(&[made[0].clone(), other]).contains("not one job: WORLD_SIZE is 4 in some and 8"));
}

#[test]
fn helpers_and_processes_without_a_rank_are_left_out() {
    let made = alike(2, "2");
    let mut scripts: Vec<Script> = made.iter().map(Made::script).collect();
    // A child of rank 1 started later, and a process that is no rank.
    let (mut child, mut stranger) = (made[1].script(), made[0].script());
    if let (Some(Line::Header(c)), Some(Line::Header(s))) = (child.lines.first_mut(), stranger.lines.first_mut()) {
        (c.parent, c.pid, c.start_seconds) = (4001, 5000, 2000);
        s.rank.clear();
    }
    scripts.extend([child, stranger]);
    let ranks = scripts.into_iter().map(|s| Rank::of(Run::of_lines(s.lines.into_iter(), &Basis::default())));
    let job = Job::of(ranks.collect());
    assert_eq!(job.ranks.iter().map(|r| r.run.history.header.pid).collect::<Vec<_>>(), [4000, 4001]);
    assert!(job.world.says[0].contains("of a child process") && job.world.says[1].contains("1 history without a rank"));
}

fn job_says(made: &[Made]) -> String {
    job(made).world.says.join("\n")
}

#[test]
fn how_ranks_died() {
    let mut made = alike(4, "4");
    made[1].footer = Some(("killed", Some(137)));
    made[2].footer = None;
    made[3].footer = Some(("exit", Some(1)));
    let job = job(&made);
    assert_eq!(
        job.ranks.iter().map(|r| r.ended.as_str()).collect::<Vec<_>>(),
        ["exit", "SIGKILL", "not finished", "status 1"]
    );
    assert_eq!(job.ranks.iter().map(|r| r.died).collect::<Vec<_>>(), [false, true, true, true]);
    let text = written(&job);
    assert!(text.contains("SIGKILL") && text.contains("rank 2: the history is not finished"), "{text}");
}

#[test]
fn clocks_of_two_hosts_are_put_right_by_common_marks() {
    let mut made = alike(4, "4");
    for m in &mut made[2..] {
        // They start together, but their clock says 30 s more.
        (m.host, m.start) = ("gpu02", 1030);
    }
    let first = job(&made);
    let clock = &first.clocks[0];
    assert_eq!(
        (clock.host.as_str(), clock.ahead, clock.corrected, clock.moments),
        ("gpu02", 30 * SECOND as i64, true, 6)
    );
    assert!(first.total.last_peak - first.total.first_peak < SECOND);
    let said = "30.0 s ahead (from 6 common moments, within 0 s): times above are corrected by it";
    assert!(in_a_line(&written(&first)).contains(said));
    // A rank that is slow is no clock that is wrong: on its own host there is one clock.
    let mut slow = alike(4, "4");
    slow[3].pace = SECOND;
    let slow = job(&slow);
    assert!(slow.clocks.is_empty());
    assert_eq!((slow.steps.len(), slow.steps[4].last.as_str(), slow.steps[4].name.as_str()), (5, "rank 3", "step#5"));
    assert!(slow.steps[4].spread > 4 * SECOND && slow.steps[0].spread < SECOND);
    assert!(written(&slow).contains("step#5"));
}

#[test]
fn the_jobs_total_at_one_moment() {
    // Peaks that do not meet.
    let of = |rank, start, frees: bool| {
        let made = Made { rank, world: "2", start, work: 0, ..MADE };
        let mut s = made.script();
        let stack = s.stack(&[(1, 0x10)]);
        s.time += SECOND;
        let id = s.direct(Memory::Device, 1000 * MIB, stack, 1);
        if frees {
            s.free(id, vramscope_core::event::FreeHow::Driver);
        }
        s.event(Event { kind: EventKind::Exit, ..Event::default() });
        Rank::of(Run::of_lines(s.lines.into_iter(), &Basis::default()))
    };
    let apart = Job::of(vec![of("0", 1000, true), of("1", 1003, true)]);
    assert_eq!((apart.total.peaks / MIB, apart.total.at_once / MIB), (2328, 1164));
    let together = Job::of(vec![of("0", 1000, true), of("1", 1000, true)]);
    assert_eq!(together.total.at_once / MIB, 2328);
}

#[test]
fn json_says_the_same() {
    let mut made = alike(8, "8");
    made[5].work = 900;
    let json: serde_json::Value = serde_json::from_str(&json::write(&job(&made[..7]))).unwrap();
    assert_eq!(json["missing"], serde_json::json!([7]));
    assert_eq!(json["odd"][0]["rank"], "rank 5");
    assert_eq!(json["ranks"][5]["peak"], 1064 * MIB);
    assert_eq!(json["differing"]["stacks"][0]["frames"][0]["function"], "forward()");
    assert_eq!(json["collectives"]["libnccl.so"][0], 64 * MIB);
}
