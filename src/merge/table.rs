//! The ranks' rows: only columns that say something, as wide as they must be.

use super::Job;
use super::rank::Rank;
use crate::diff::headline;
use crate::report::text::{WIDTH, bytes, clean, clip, count};

/// A column: its heading and what it says of a rank.
type Column<'a> = (&'static str, Box<dyn Fn(&Rank) -> String + 'a>);

/// The heading and a line for each of these ranks.
pub fn lines(job: &Job, rows: &[usize]) -> (String, Vec<String>) {
    let columns = columns(job);
    let cells: Vec<Vec<String>> =
        rows.iter().map(|i| columns.iter().map(|(_, f)| f(&job.ranks[*i])).collect()).collect();
    let width = |column: usize| {
        let longest = cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        longest.max(columns[column].0.len())
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    // Two spaces between columns where there is room.
    let wide = widths.iter().map(|w| w + 2).sum::<usize>() <= WIDTH;
    let line = |texts: Vec<&str>| {
        let mut line = String::new();
        for (i, text) in texts.iter().enumerate() {
            // Names stand left, numbers right.
            let left = matches!(columns[i].0, "" | "host" | "ended");
            let cell = if left { format!("{text:<w$}", w = widths[i]) } else { format!("{text:>w$}", w = widths[i]) };
            line += if wide || i == 0 { "  " } else { " " };
            line += &cell;
        }
        clip(line.trim_end(), WIDTH)
    };
    let head = line(columns.iter().map(|c| c.0).collect());
    (head, cells.iter().map(|row| line(row.iter().map(String::as_str).collect())).collect())
}

fn columns<'a>(job: &'a Job) -> Vec<Column<'a>> {
    let ranks = &job.ranks;
    let any = |f: fn(&Rank) -> u64| ranks.iter().any(|r| f(r) > 0);
    let hosts = ranks.iter().any(|r| r.host() != ranks[0].host());
    let mut columns: Vec<Column<'a>> = vec![("", Box::new(|r| clip(&r.name(), 12)))];
    if hosts {
        columns.push(("host", Box::new(|r| clip(&clean(r.host()), 10))));
    }
    columns.push(("pid", Box::new(|r| r.run.history.header.pid.to_string())));
    columns.push((
        "GPU",
        Box::new(|r| {
            let devices: Vec<String> = r.run.held.devices().keys().map(u32::to_string).collect();
            clip(&devices.join(","), 7)
        }),
    ));
    columns.push(("peak", Box::new(|r| bytes(r.peak()))));
    columns.push(("at", Box::new(|r| seconds(r.wall(r.run.held.peak().time).saturating_sub(job.total.from)))));
    columns.push(("reserved", Box::new(|r| bytes(r.reserved()))));
    columns.push(("waste", Box::new(|r| format!("{} %", (headline::waste(&r.run) + 5) / 10))));
    for (name, f) in [("comms", Rank::collectives as fn(&Rank) -> u64), ("outside", Rank::others)] {
        if any(f) {
            columns.push((name, Box::new(move |r| bytes(f(r)))));
        }
    }
    columns.push(("at end", Box::new(|r| bytes(r.end()))));
    if any(|r| r.run.work.failed) {
        columns.push(("failed", Box::new(|r| count(r.run.work.failed))));
    }
    columns.push(("ended", Box::new(|r| r.ended.clone())));
    columns
}

/// A time in a narrow column: `12.5ms`, `4.58s`, `725s`.
fn seconds(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    match s {
        _ if s < 1.0 => format!("{:.1}ms", s * 1e3),
        _ if s < 100.0 => format!("{s:.2}s"),
        _ => format!("{s:.0}s"),
    }
}
