//! Out of memory: what the library said at that moment, with the names of its stacks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Serialize;
use vramscope_core::trace::{Grew, Oom, OomLimit};

use super::Page;
use super::by;
use super::fits;
use super::frames::{self, Shown};
use super::history::History;
use super::pinned::{self, Pinned};
use super::stacks;
use super::text::{bytes, clean, count, percent, plural, time};

/// Explanations shown; a program that tries sizes has many.
const SHOWN: usize = 3;

/// A request that found no memory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OutOfMemory {
    /// When.
    pub time: u64,
    /// CUDA ordinal of the device.
    pub device: u32,
    /// The C function that failed, or `PyTorch`.
    pub what: String,
    /// Bytes asked for; 0: no certain number.
    pub asked: u64,
    /// Bytes of the new segment that PyTorch needed for it; 0: none, or not told.
    pub segment: u64,
    /// They are of pages mapped into an expandable segment, fewer where its end is free.
    pub expandable: bool,
    /// Bytes free on the device,
    pub free: u64,
    /// and in all.
    pub total: u64,
    /// The limit of the process; missing: none, or not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<OomLimit>,
    /// Whether that refused it.
    pub by_limit: bool,
    /// Bytes in use that the holders' shares are told of.
    pub in_use: u64,
    /// Bytes of this process that the history accounts for.
    pub ours: u64,
    /// Bytes of PyTorch's tensors,
    pub pytorch_active: u64,
    /// what it keeps besides,
    pub pytorch_inactive: u64,
    /// and the largest piece of that.
    pub pytorch_largest: u64,
    /// Bytes in use in vramscope's pool,
    pub pool_active: u64,
    /// what it keeps besides,
    pub pool_inactive: u64,
    /// and the largest piece of that.
    pub pool_largest: u64,
    /// Bytes past both, with the driver's rounding,
    pub outside: u64,
    /// by library.
    pub libraries: Vec<Library>,
    /// Context, modules, driver; and other processes where `others` is missing.
    pub rest: u64,
    /// Other processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<u64>,
    /// The largest request that would have been served at that moment.
    pub would_have_fit: u64,
    /// The call stack that asked, innermost first.
    pub stack: Vec<Shown>,
    /// Who held most.
    pub holders: Vec<OomHolder>,
    /// What would help.
    pub advice: Vec<String>,
    /// PyTorch's segments at that moment, and what pins them; missing without PyTorch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<Pinned>,
}

/// What a library holds past PyTorch and the pool.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Library {
    /// Its file's name.
    pub library: String,
    /// Bytes.
    pub bytes: u64,
}

/// Who held memory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OomHolder {
    /// The line.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
    /// It grew all along: from so many allocations, by so many bytes, in so many nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grew: Option<Grew>,
    /// The call stack, innermost first.
    pub stack: Vec<Shown>,
}

/// All explanations of a history.
pub fn of(page: &mut Page, history: &History) -> Vec<OutOfMemory> {
    history.ooms.iter().map(|oom| answer(page, history, oom)).collect()
}

fn answer(page: &mut Page, history: &History, oom: &Oom) -> OutOfMemory {
    let all = oom.holders.iter().map(|h| h.stack).chain([oom.stack]);
    let addresses = frames::addresses(history, all);
    page.names.resolve(&history.modules, addresses);
    let lines = |stack: u32| frames::shown(history, &page.names, stack).lines(page.all_frames);
    let holders = oom.holders.iter().map(|h| {
        let stack = if h.stack == 0 { Vec::new() } else { lines(h.stack) };
        let name = match by::own(&stack) {
            Some(frame) => by::line(frame),
            None if h.caller != 0 => clean(history.module_name(h.caller)),
            None => "(no stack)".to_string(),
        };
        OomHolder { name, bytes: h.bytes, count: h.count, grew: h.grew.clone(), stack }
    });
    let holders = holders.collect();
    let stack = if oom.stack == 0 { Vec::new() } else { lines(oom.stack) };
    let near = |h: &&super::facts::holes::Holes| h.failure && h.time >= oom.time && h.segments > 0;
    let holes = history.facts.holes.iter().filter(near).min_by_key(|h| h.time);
    let segments = holes.map(|holes| pinned::of(page, history, holes));
    let library =
        |l: &vramscope_core::trace::Library| Library { library: clean(history.module_name(l.module)), bytes: l.bytes };
    OutOfMemory {
        time: oom.time,
        device: oom.device,
        what: clean(&oom.what),
        asked: oom.asked,
        segment: oom.segment.max(Oom::segment_for(&oom.what, oom.asked, oom.expandable)),
        expandable: oom.expandable,
        free: oom.free,
        total: oom.total,
        limit: oom.limit.clone(),
        by_limit: oom.refused_by().is_some(),
        in_use: oom.in_use().0,
        ours: oom.pytorch_active + oom.pytorch_inactive + oom.pool_active + oom.pool_inactive + oom.outside,
        pytorch_active: oom.pytorch_active,
        pytorch_inactive: oom.pytorch_inactive,
        pytorch_largest: oom.pytorch_largest,
        pool_active: oom.pool_active,
        pool_inactive: oom.pool_inactive,
        pool_largest: oom.pool_largest,
        outside: oom.outside,
        libraries: oom.libraries.iter().map(library).collect(),
        rest: oom.rest,
        others: oom.others,
        would_have_fit: fits::of(oom),
        stack,
        holders,
        advice: oom.advice.iter().map(|a| clean(a)).collect(),
        segments,
    }
}

/// What a request takes, in words.
pub fn asked(oom: &OutOfMemory) -> String {
    match oom.asked {
        0 => "found no memory".to_string(),
        n if oom.segment > n && bytes(oom.segment) != bytes(n) => {
            let segment = bytes(oom.segment);
            let takes = match oom.expandable {
                true => format!("up to {segment} more of an expandable segment"),
                false => format!("a new segment of {segment}"),
            };
            format!("asked for {} ({takes})", bytes(n))
        }
        n => format!("asked for {}", bytes(n)),
    }
}

/// Writes the section. A program that asks again and again for the same, from the same place, is told of once.
pub fn section(page: &mut Page, ooms: &[OutOfMemory]) {
    let mut told: Vec<(&OutOfMemory, Vec<&OutOfMemory>)> = Vec::new();
    let mut places: HashMap<_, usize> = HashMap::new();
    for oom in ooms {
        let stack: Vec<String> = oom.stack.iter().map(by::line).collect();
        match places.entry((&oom.what, oom.asked, oom.device, stack)) {
            Entry::Occupied(place) => told[*place.get()].1.push(oom),
            Entry::Vacant(place) => {
                place.insert(told.len());
                told.push((oom, Vec::new()));
            }
        }
    }
    for (first, again) in told.iter().take(SHOWN) {
        one(page, first);
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

fn one(page: &mut Page, oom: &OutOfMemory) {
    page.heading(&format!("OUT OF MEMORY  {} {} at {}", oom.what, asked(oom), time(oom.time)));
    page.row(&format!("GPU {}", oom.device), &free(oom));
    if let Some(l) = &oom.limit {
        page.row("limit", &format!("{:>9} by {}, {} of it in use", bytes(l.bytes), clean(&l.by), bytes(l.used)));
    }
    layers(page, oom);
    fits::row(page, oom);
    if !oom.stack.is_empty() {
        page.line("  asked at");
        stacks::shown(page, &oom.stack);
    }
    let used = oom.in_use;
    if !oom.holders.is_empty() {
        let of = if oom.by_limit { "under the limit" } else { "on the GPU" };
        page.line(&match used {
            0 => "  the biggest holders then".to_string(),
            _ => format!("  the biggest holders then, and their share of the {} in use {of}", bytes(used)),
        });
    }
    for (i, h) in oom.holders.iter().take(page.top).enumerate() {
        let (size, part) = (bytes(h.bytes), percent(h.bytes, used));
        let part = if used > 0 { format!("{part:>7}   ") } else { String::new() };
        let head = format!("{:>3}. {size:>9}  {part}{}", i + 1, plural(h.count, "allocation"));
        let mut line = page.paint.bold(&head);
        if let Some(grew) = &h.grew {
            let more = format!("  grew from {}, +{} in {}", count(grew.from), bytes(grew.bytes), time(grew.since));
            line += &page.paint.red(&more);
        }
        page.line(&line);
        match h.stack.is_empty() {
            true => page.line(&format!("        {}", h.name)),
            false => stacks::shown(page, &h.stack),
        }
    }
    if let Some(segments) = oom.segments.as_ref().filter(|s| pinned::matters(s)) {
        pinned::write(page, segments);
    }
    if !oom.advice.is_empty() {
        page.line("  what would help");
    }
    for advice in &oom.advice {
        page.fold("    - ", advice);
    }
}

/// What was free, of how much where that is told.
pub fn free(oom: &OutOfMemory) -> String {
    let of = if oom.total > 0 { format!(" of {}", bytes(oom.total)) } else { String::new() };
    format!("{:>9} free{of}", bytes(oom.free))
}

fn layers(page: &mut Page, oom: &OutOfMemory) {
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
        let by = oom.libraries.iter().map(|l| format!("{} {}", l.library, bytes(l.bytes)));
        page.row("outside", &format!("{:>9}: {}", bytes(oom.outside), by.collect::<Vec<_>>().join(", ")));
    }
    match oom.others {
        // Of a file that does not tell how much the device has, nobody knows.
        _ if oom.total == 0 => {}
        Some(others) => {
            page.row("context, modules", &format!("{:>9} with what else the driver needs", bytes(oom.rest)));
            page.row("other processes", &format!("{:>9}", bytes(others)));
        }
        None => page.row("the rest", &format!("{:>9} context, modules, driver, other processes", bytes(oom.rest))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::testing::{MIB, Script, names, trained};
    use crate::report::text::{Paint, WIDTH};
    use vramscope_core::trace::{Grew, Holder, Library, Line};

    pub(in crate::report) fn written(change: impl Fn(&mut Oom)) -> String {
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
        script.lines.push(Line::Oom(Box::new(oom)));
        let mut page = Page::new(Paint::default(), &[], 10);
        page.names = names();
        let answers = of(&mut page, &script.history());
        section(&mut page, &answers);
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

    /// As an import has it: how much the device has is not told.
    #[test]
    fn an_unknown_total_is_not_shown_as_nothing() {
        let text = written(|oom| (oom.total, oom.others, oom.rest) = (0, None, 0));
        assert!(text.contains("  900 MiB free\n") && text.contains("  the biggest holders then\n"), "{text}");
        assert!(text.contains("1.  48.0 GiB  48 allocations"), "{text}");
        assert!(!text.contains("of 0 B") && !text.contains(" 0 B ") && !text.contains("the rest"), "{text}");
    }

    /// The room that a limit leaves, and shares of what counts to it.
    #[test]
    fn a_limit_is_named() {
        let limited = |by: &str, asked: u64| {
            let limit = Some(OomLimit { bytes: 100 << 30, used: 96 << 30, by: by.into() });
            written(|oom| (oom.asked, oom.free, oom.limit) = (asked << 30, 60 << 30, limit.clone()))
        };
        for by in ["VRAMSCOPE_LIMIT", "set_limit()", "ctl limit"] {
            let text = limited(by, 5);
            assert!(text.contains(&format!("100 GiB by {by}, 96.0 GiB of it in use\n")), "{text}");
            assert!(text.contains("would have fit         4.00 GiB at most"), "{text}");
            assert!(text.contains("their share of the 96.0 GiB in use under the limit"), "{text}");
            assert!(text.contains("1.  48.0 GiB   50.0 %"), "{text}");
        }
        // One that has room did not refuse.
        let text = limited("VRAMSCOPE_LIMIT", 1);
        assert!(text.contains("of it in use\n") && text.contains("in use on the GPU"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let text = written(|oom| *oom = Oom { what: "cuModuleLoadData".into(), total: 1 << 30, ..Oom::default() });
        assert!(text.contains("cuModuleLoadData found no memory at 0 s") && text.contains("the rest"));
        assert!(!text.contains("PyTorch") && !text.contains("holders") && !text.contains("help"));
    }
}
