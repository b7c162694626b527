//! A job on a terminal.

use std::collections::BTreeSet;

use super::odd::{Odd, median};
use super::rank::Rank;
use super::{Differing, Job};
use crate::diff::in_words;
use crate::diff::text::{fold, names_missing, stack};
use crate::diff::verdict::signed;
use crate::report::Page;
use crate::report::text::{WIDTH, bytes, clean, clip, count, plural, time};

/// Rows of ranks; of more only those that are special are shown.
const ROWS: usize = 40;

/// Writes the job.
pub fn write(page: &mut Page, job: &Job) {
    head(page, job);
    table(page, job);
    odd(page, job);
    if let Some(differing) = &job.differing {
        stacks(page, differing);
    }
    collectives(page, job);
    times(page, job);
    steps(page, job);
    notes(page, job);
    names_missing(page);
}

fn head(page: &mut Page, job: &Job) {
    let Some(first) = job.ranks.first() else { return };
    let h = &first.run.history.header;
    let command = if h.arguments.is_empty() { h.program.clone() } else { h.arguments.join(" ") };
    let title = page.paint.bold("JOB");
    page.line(&format!("{title}  {}", clip(&clean(&command), WIDTH - 5)));
    let hosts: BTreeSet<&str> = job.ranks.iter().map(Rank::host).collect();
    let gpus: BTreeSet<&str> = job.ranks.iter().flat_map(Rank::gpus).collect();
    let ranked = job.ranks.iter().any(|r| r.rank.is_some());
    let of = job.world.size.map_or(String::new(), |n| format!(" of {n}"));
    let what = if ranked { "rank" } else { "process" };
    let n = job.ranks.len() as u64;
    let what = match (what, n) {
        ("process", n) if n != 1 => format!("{n} processes"),
        _ => plural(n, what),
    };
    let hosts = plural(hosts.len() as u64, "host");
    page.row("histories", &format!("{what}{of} on {hosts}, {}", plural(gpus.len() as u64, "GPU")));
    let t = &job.total;
    page.row(
        "in use",
        &format!("{:>9} at once, about; {:>9} is the sum of the peaks", bytes(t.at_once), bytes(t.peaks)),
    );
    page.row("reserved", &format!("{:>9} in all", bytes(t.reserved)));
    if t.failed > 0 {
        page.row("failed", &plural(t.failed, "allocation"));
    }
    for text in &job.world.says {
        let text = page.paint.red(&clean(text));
        fold(page, "  ", &text);
    }
    for (gpu, ranks) in &job.shared {
        fold(page, "  ", &format!("{} use one GPU: {}", ranks.join(", "), clean(gpu)));
    }
}

fn table(page: &mut Page, job: &Job) {
    page.heading("RANKS");
    let special: BTreeSet<usize> = job.odd.iter().map(|o| o.at).collect();
    let few = job.ranks.len() <= ROWS;
    let shown = |i: &usize| few || special.contains(i) || job.ranks[*i].died || *i < page.top;
    let rows: Vec<usize> = (0..job.ranks.len()).filter(shown).collect();
    let (head, lines) = super::table::lines(job, &rows);
    let head = page.paint.dim(&head);
    page.line(&head);
    for (i, line) in rows.iter().zip(lines) {
        let line = if job.ranks[*i].died || special.contains(i) { page.paint.red(&line) } else { line };
        page.line(&line);
    }
    if rows.len() < job.ranks.len() {
        page.line(&format!(
            "  and {} that are not special",
            plural((job.ranks.len() - rows.len()) as u64, "more rank")
        ));
    }
    let mut notes = vec!["  peak: in use; waste: reserved and not in use"];
    if !job.collectives.is_empty() {
        notes.push("  comms: libraries for communication between ranks, of the peak");
    }
    if job.ranks.iter().any(|r| r.others() > 0) {
        notes.push("  outside: what else of the peak neither the pool nor PyTorch's allocator gave out");
    }
    for note in notes {
        let note = page.paint.dim(note);
        page.line(&note);
    }
}

fn odd(page: &mut Page, job: &Job) {
    if job.ranks.len() < 2 {
        return;
    }
    let two = job.ranks.len() == 2;
    page.heading(if two { "HOW THE TWO DIFFER" } else { "ODD ONE OUT" });
    if job.odd.is_empty() {
        match super::odd::widest(&job.ranks) {
            Some((what, least, most)) => {
                let (what, least, most) = (clean(&what), bytes(least), bytes(most));
                fold(
                    page,
                    "  ",
                    &format!("no rank stands out from the others, though they differ: {what} is {least} to {most}"),
                );
            }
            None => page.line("  none: what each owner holds is alike on all ranks"),
        }
        return;
    }
    let mut ranks: Vec<usize> = Vec::new();
    for o in &job.odd {
        if !ranks.contains(&o.at) {
            ranks.push(o.at);
        }
    }
    for at in ranks.iter().take(page.top) {
        let mine: Vec<&Odd> = job.odd.iter().filter(|o| o.at == *at).collect();
        let name = page.paint.bold(&job.ranks[*at].name());
        let texts = mine.iter().map(|o| say(o, two)).collect::<Vec<_>>();
        fold(page, "  ", &format!("{name}: {}", texts.join("; ")));
    }
    if ranks.len() > page.top {
        page.line(&format!("  and {}", plural((ranks.len() - page.top) as u64, "more rank")));
    }
}

/// One number of an odd rank in words.
pub fn say(o: &Odd, two: bool) -> String {
    let than = if two { "the other's" } else { "the median" };
    let usual = match o.usual {
        0 => String::new(),
        usual => format!("; {} is usual", bytes(usual)),
    };
    let way = if o.bytes < o.median { "less" } else { "more" };
    let (off, what) = (bytes(o.bytes.abs_diff(o.median)), clean(&o.what));
    format!("{what} {} ({off} {way} than {than} {}{usual})", bytes(o.bytes), bytes(o.median))
}

fn stacks(page: &mut Page, d: &Differing) {
    if d.changes.is_empty() {
        return;
    }
    page.heading(&format!("WHAT DIFFERS at the peak, {} against {}", d.odd, d.typical));
    let few = page.top.min(5);
    for (i, c) in d.changes.iter().take(few).enumerate() {
        let head = format!("{:>3}. {:>10}", i + 1, signed(c.bytes()));
        let from = format!("   {} -> {}", in_words(c.before), in_words(c.after));
        let note = clip(&c.note, WIDTH.saturating_sub(head.len() + from.len() + 2));
        let line = format!("{}{from}  {}", page.paint.bold(&head), page.paint.dim(&note));
        page.line(line.trim_end());
        stack(page, &c.frames);
    }
    let rest: i64 = d.changes.iter().skip(few).map(|c| c.bytes()).sum();
    if d.changes.len() > few {
        page.line(&format!("     {:>10}   in {}", signed(rest), plural((d.changes.len() - few) as u64, "more stack")));
    }
    page.line("  vramscope diff shows all of it");
}

fn collectives(page: &mut Page, job: &Job) {
    if job.collectives.is_empty() {
        return;
    }
    page.heading("COLLECTIVES' BUFFERS at each rank's peak");
    for (library, all) in &job.collectives {
        let (least, most) = (all.iter().min().copied().unwrap_or(0), all.iter().max().copied().unwrap_or(0));
        let sum: u64 = all.iter().sum();
        let text = if least == most {
            format!("{:>9} on each rank, {} in all", bytes(least), bytes(sum))
        } else {
            let name = |n: u64| all.iter().position(|b| *b == n).map_or(String::new(), |i| job.ranks[i].name());
            format!(
                "{:>9} at the median, {} at least ({}), {} at most ({}), {} in all",
                bytes(median(all.iter().copied())),
                bytes(least),
                name(least),
                bytes(most),
                name(most),
                bytes(sum)
            )
        };
        page.row(&clip(&clean(library), 21), &text);
    }
}

fn times(page: &mut Page, job: &Job) {
    if job.ranks.len() < 2 {
        return;
    }
    page.heading("TIMES");
    let t = &job.total;
    page.row("job", &format!("{} from the first rank's first event to the last's last", time(t.to - t.from)));
    let starts = job.ranks.iter().map(|r| r.wall(0));
    let skew = starts.max().unwrap_or(0) - t.from;
    page.row("recording began", &format!("within {}", time(skew)));
    page.row("peaks", &format!("within {}", time(t.last_peak - t.first_peak)));
    let hosts: BTreeSet<&str> = job.ranks.iter().map(Rank::host).collect();
    if hosts.len() > 1 && job.clocks.len() + 1 < hosts.len() {
        let text = "some hosts share no mark and no first memory of collectives with the first: their clocks are taken as they are";
        fold(page, "  ", text);
    }
    for clock in &job.clocks {
        let (size, spread) = (time(clock.ahead.unsigned_abs()), time(clock.spread));
        let way = if clock.ahead < 0 { "behind" } else { "ahead" };
        let moments = plural(clock.moments as u64, "common moment");
        let text = if clock.corrected {
            format!("{size} {way} (from {moments}, within {spread}): times above are corrected by it")
        } else {
            format!(
                "as the first host's, within {} (from {moments})",
                time(clock.ahead.unsigned_abs().max(clock.spread))
            )
        };
        page.row(&format!("clock of {}", clip(&clean(&clock.host), 12)), &text);
    }
}

fn steps(page: &mut Page, job: &Job) {
    if job.steps.is_empty() {
        return;
    }
    page.heading("MARKS, by the job's clock");
    let head = format!(
        "  {:<24} {:>9} {:>9}  {:<10} {:>10} {:>10}  {}",
        "", "first at", "spread", "last", "least", "most", "whose"
    );
    let head = page.paint.dim(&head);
    page.line(&head);
    // Where ranks are furthest apart says most.
    let mut widest: Vec<usize> = (0..job.steps.len()).collect();
    widest.sort_by_key(|i| std::cmp::Reverse(job.steps[*i].spread));
    widest.truncate(page.top);
    widest.sort_unstable();
    for i in widest {
        let s = &job.steps[i];
        let some = if s.ranks < job.ranks.len() { format!(" ({} ranks)", s.ranks) } else { String::new() };
        let line = format!(
            "  {:<24} {:>9} {:>9}  {:<10} {:>10} {:>10}  {}",
            clip(&format!("{}{some}", clean(&s.name)), 24),
            time(s.first.saturating_sub(job.total.from)),
            time(s.spread),
            if s.spread == 0 { "-".to_string() } else { clip(&s.last, 10) },
            bytes(s.least.0),
            bytes(s.most.0),
            if s.most.0 == s.least.0 { "-" } else { &s.most.1 }
        );
        page.line(&clip(&line, WIDTH));
    }
    if job.steps.len() > page.top {
        page.line(&format!("  the {} of {} marks that are furthest apart", page.top, count(job.steps.len() as u64)));
    }
}

fn notes(page: &mut Page, job: &Job) {
    let mut lines = Vec::new();
    for r in &job.ranks {
        lines.extend(r.run.caveats().into_iter().map(|c| format!("{}: {c}", r.name())));
        if let Some(oom) = r.run.history.ooms.first() {
            let asked = if oom.asked > 0 { format!(" for {}", bytes(oom.asked)) } else { String::new() };
            let when = time(r.wall(oom.time).saturating_sub(job.total.from));
            let path = r.run.path().display();
            lines.push(format!("{}: out of memory at {when}, {}{asked}: vramscope report {path}", r.name(), oom.what));
        }
    }
    if lines.is_empty() {
        return;
    }
    page.heading("NOTES");
    for line in lines.iter().take(page.top.max(10)) {
        fold(page, "  ", &clean(line));
    }
    if lines.len() > page.top.max(10) {
        page.line(&format!("  and {} more", lines.len() - page.top.max(10)));
    }
}
