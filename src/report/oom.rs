//! Out of memory: what the library said at that moment, with the names of its stacks.

use vramscope_core::trace::{Holder, Oom};

use super::Page;
use super::history::History;
use super::text::{WIDTH, bytes, clean, count, fold, percent, plural, time};
use super::{frames, stacks};

/// Explanations shown; a program that tries sizes has many.
const SHOWN: usize = 3;

/// Writes the section. A program that asks again and again for the same, from the same place, is told of once.
pub fn section(page: &mut Page, history: &History) {
    let mut told: Vec<(&Oom, Vec<&Oom>)> = Vec::new();
    let same = |a: &Oom, b: &Oom| (&a.what, a.asked, a.stack, a.device) == (&b.what, b.asked, b.stack, b.device);
    for oom in &history.ooms {
        match told.iter_mut().find(|(first, _)| same(first, oom)) {
            Some((_, again)) => again.push(oom),
            None => told.push((oom, Vec::new())),
        }
    }
    for (first, again) in told.iter().take(SHOWN) {
        one(page, history, first);
        if let Some(last) = again.last() {
            let many = plural(again.len() as u64, "time");
            page.line(&format!("  the same failed {many} more, last at {}", time(last.time)));
        }
    }
    let more: usize = told.iter().skip(SHOWN).map(|(_, again)| 1 + again.len()).sum();
    if more > 0 {
        page.line(&format!("  and {} explained", plural(more as u64, "more failure")));
    }
}

fn one(page: &mut Page, history: &History, oom: &Oom) {
    let asked = if oom.asked > 0 { format!("asked for {}", bytes(oom.asked)) } else { "found no memory".into() };
    page.heading(&format!("OUT OF MEMORY  {} {asked} at {}", clean(&oom.what), time(oom.time)));
    let shown: Vec<&Holder> = oom.holders.iter().take(page.top).collect();
    let all = shown.iter().map(|h| h.stack).chain([oom.stack]);
    let addresses = frames::addresses(history, all);
    page.names.resolve(&history.modules, addresses);
    page.row(&format!("GPU {}", oom.device), &format!("{:>9} free of {}", bytes(oom.free), bytes(oom.total)));
    layers(page, history, oom);
    if oom.stack != 0 {
        page.line("  asked at");
        let frames = frames::shown(history, &page.names, oom.stack);
        stacks::stack(page, &frames);
    }
    let used = oom.total.saturating_sub(oom.free);
    if !shown.is_empty() {
        page.line("  the biggest holders then");
    }
    for (i, h) in shown.into_iter().enumerate() {
        let (size, part) = (bytes(h.bytes), percent(h.bytes, used));
        let head = format!("{:>3}. {size:>9}  {part:>7}   {}", i + 1, plural(h.count, "allocation"));
        let mut line = page.paint.bold(&head);
        if let Some(grew) = &h.grew {
            let more = format!("  grew from {}, +{} in {}", count(grew.from), bytes(grew.bytes), time(grew.since));
            line += &page.paint.red(&more);
        }
        page.line(&line);
        if h.stack == 0 && h.caller != 0 {
            page.line(&format!("        {}", clean(history.module_name(h.caller))));
            continue;
        }
        let frames = frames::shown(history, &page.names, h.stack);
        stacks::stack(page, &frames);
    }
    if !oom.advice.is_empty() {
        page.line("  what would help");
    }
    for advice in &oom.advice {
        fold(&clean(advice), WIDTH, "    - ", "      ").iter().for_each(|line| page.line(line));
    }
}

fn layers(page: &mut Page, history: &History, oom: &Oom) {
    let kept = |active: u64, inactive: u64, largest: u64| {
        let pieces = if largest > 0 { format!(", the largest free block {}", bytes(largest)) } else { String::new() };
        format!("{:>9} active, {} inactive{pieces}", bytes(active), bytes(inactive))
    };
    if oom.pytorch_active + oom.pytorch_inactive > 0 {
        page.row("PyTorch", &kept(oom.pytorch_active, oom.pytorch_inactive, oom.pytorch_largest));
    }
    if oom.pool_active + oom.pool_inactive > 0 {
        page.row("pool", &kept(oom.pool_active, oom.pool_inactive, oom.pool_largest));
    }
    if oom.outside > 0 {
        let by = oom.libraries.iter().map(|l| format!("{} {}", clean(history.module_name(l.module)), bytes(l.bytes)));
        page.row("outside", &format!("{:>9}: {}", bytes(oom.outside), by.collect::<Vec<_>>().join(", ")));
    }
    match oom.others {
        Some(others) => {
            page.row("context, modules", &format!("{:>9} with what else the driver needs", bytes(oom.rest)));
            page.row("other processes", &format!("{:>9}", bytes(others)));
        }
        None => page.row("the rest", &format!("{:>9} context, modules, driver, other processes", bytes(oom.rest))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{MIB, Script, names, trained};
    use crate::report::text::Paint;
    use vramscope_core::trace::{Grew, Library, Line};

    fn written(change: impl Fn(&mut Oom)) -> String {
        written_of(1, change)
    }

    fn written_of(times: u64, change: impl Fn(&mut Oom)) -> String {
        let (mut script, stack): (Script, u32) = trained();
        let grew = Some(Grew { from: 12, bytes: 36 << 30, since: 30_000_000_000 });
        let mut oom = Oom {
            time: 1_500_000_000,
            what: "PyTorch".into(),
            asked: 2 << 30,
            stack,
            free: 900 * MIB,
            total: 139 << 30,
            pytorch_active: 100 << 30,
            pytorch_inactive: 12 << 30,
            pytorch_largest: 1 << 30,
            outside: 3 << 30,
            libraries: vec![Library { module: 4, bytes: 3 << 30 }],
            rest: 600 * MIB,
            others: Some(20 << 30),
            holders: vec![
                Holder { stack, count: 48, bytes: 48 << 30, grew, ..Holder::default() },
                Holder { caller: 4, count: 1, bytes: 3 << 30, ..Holder::default() },
            ],
            advice: vec!["12.0 GiB lie unused: a word and ".to_string() + &"another word ".repeat(10) + "at last"],
            ..Oom::default()
        };
        change(&mut oom);
        for i in 0..times {
            script.lines.push(Line::Oom(Box::new(Oom { time: oom.time + i * 1_000_000, ..oom.clone() })));
        }
        let mut page = Page::new(Paint::default(), &[], 10);
        page.names = names();
        section(&mut page, &script.history());
        println!("{}", page.out);
        page.out
    }

    #[test]
    fn says_who_held_what_and_what_would_help() {
        let text = written(|_| ());
        for part in [
            "OUT OF MEMORY  PyTorch asked for 2.00 GiB at 1.50 s",
            "100 GiB active, 12.0 GiB inactive, the largest free block 1.00 GiB",
            "3.00 GiB: libc10_cuda.so 3.00 GiB",
            "other processes        20.0 GiB",
            "1.  48.0 GiB   34.8 %   48 allocations  grew from 12, +36.0 GiB in 30.0 s",
            "train.py:20",
            "    - 12.0 GiB lie unused",
            "      word another word",
        ] {
            assert!(text.contains(part), "{part} is missing");
        }
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH && l.is_ascii() && l.trim_end() == l));
    }

    #[test]
    fn a_loop_of_retries_is_told_of_once() {
        let text = written_of(5, |_| ());
        assert_eq!(text.matches("OUT OF MEMORY").count(), 1);
        assert!(text.ends_with("  the same failed 4 times more, last at 1.50 s\n"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let text = written(|oom| *oom = Oom { what: "cuModuleLoadData".into(), total: 1 << 30, ..Oom::default() });
        assert!(text.contains("cuModuleLoadData found no memory at 0 s") && text.contains("the rest"));
        assert!(!text.contains("PyTorch") && !text.contains("holders") && !text.contains("help"));
    }
}
