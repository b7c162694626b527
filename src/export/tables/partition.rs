//! Where the rows of a history lie: by run, rank and day.

use std::path::{Path, PathBuf};

use vramscope_core::trace::Header;

use super::File;
use crate::export::{Source, labels};

/// Name of the run that histories are of: as asked for, else the job's id, else the first one's program and start.
pub fn run(sources: &[Source]) -> String {
    if let Some(run) = sources.iter().find_map(|s| s.options.run.clone()) {
        return run;
    }
    if let Some(job) = sources.iter().find_map(|s| s.history.header.job()) {
        return job.to_string();
    }
    let first = sources.iter().min_by_key(|s| s.wall(0));
    first.map_or(String::new(), |s| {
        let (day, second) = (date(s.wall(0)), s.wall(0) / 1_000_000_000 % 86_400);
        let (h, m, s_) = (second / 3600, second / 60 % 60, second % 60);
        format!("{}-{}-{h:02}{m:02}{s_:02}", labels::program(s), day)
    })
}

/// What tells a process from all others of its run.
pub fn process(header: &Header) -> String {
    format!("{}-{}-{}", header.host, header.pid, header.start_seconds)
}

/// The file of a table.
pub fn path(folder: &Path, table: &str, run: &str, source: &Source, file: File) -> PathBuf {
    let h = &source.history.header;
    let rank = h.rank().unwrap_or("0");
    folder
        .join(table)
        .join(format!("run={}", safe(run)))
        .join(format!("rank={}", safe(rank)))
        .join(format!("date={}", date(source.wall(0))))
        .join(format!("{}.{}", safe(&process(h)), file.ending()))
}

/// A value in a path, as Hive escapes it.
fn safe(text: &str) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    let mut out = String::new();
    for b in text.as_bytes().iter().take(100) {
        match plain(b) {
            true => out.push(*b as char),
            false => out.push_str(&format!("%{b:02X}")),
        }
    }
    // No file is to be hidden, or the folder above.
    if out.is_empty() || out.starts_with('.') { format!("_{out}") } else { out }
}

/// The day in UTC of a time in nanoseconds since 1970: `2026-11-30`.
pub fn date(wall: u64) -> String {
    let (year, month, day) = civil((wall / 86_400_000_000_000) as i64);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of a day since 1970. (Howard Hinnant's algorithm: years begin in March, eras have 400.)
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, of_month)
}

/// A time as CSV has it: `2026-11-30T06:10:32.000001Z`.
pub fn iso(wall: u64) -> String {
    let (second, us) = (wall / 1_000_000_000, wall / 1_000 % 1_000_000);
    let (h, m, s) = (second / 3600 % 24, second / 60 % 60, second % 60);
    format!("{}T{h:02}:{m:02}:{s:02}.{us:06}Z", date(wall))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_164_800, "2024-02-29"),
            (1_764_453_600, "2025-11-29"),
            (4_107_542_399, "2100-02-28"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000), day);
        }
        assert_eq!(iso(1_764_453_600_000_001_001), "2025-11-29T22:00:00.000001Z");
    }

    #[test]
    fn names_stay_inside_the_folder() {
        assert_eq!(safe("../x y"), "_..%2Fx%20y");
        assert_eq!(safe("a=b"), "a%3Db");
        assert_eq!(safe(""), "_");
        assert_eq!(safe("gpu-7.local_1"), "gpu-7.local_1");
    }
}
