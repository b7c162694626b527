//! How numbers look to a person: bytes, counts, times and shares, in plain ASCII.

/// Bytes with three figures that matter: `512 B`, `1.45 GiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = n as f64;
    let mut unit = 0;
    // 1023.5 would be printed as 1024.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{n} B"),
        _ if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// A count with commas: `23,583`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1 allocation`, `23,583 allocations`.
pub fn plural(n: u64, one: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {one}{s}", count(n))
}

/// A time or a span: `820 us`, `12.3 s`, `2 h 03 min`.
pub fn time(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    match ns {
        0 => "0 s".to_string(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => three(ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => three(ns as f64 / 1e6, "ms"),
        _ if s < 99.95 => three(s, "s"),
        _ if s < 3600.0 => format!("{} min {:02} s", s as u64 / 60, s as u64 % 60),
        _ => format!("{} h {:02} min", s as u64 / 3600, s as u64 / 60 % 60),
    }
}

fn three(v: f64, unit: &str) -> String {
    match v {
        _ if v < 9.995 => format!("{v:.2} {unit}"),
        _ if v < 99.95 => format!("{v:.1} {unit}"),
        _ => format!("{v:.0} {unit}"),
    }
}

/// A part of a whole: `97.4 %`; never `100.0 %` for less than all, nor `0.0 %` for more than nothing.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_string();
    }
    let p = part as f64 * 100.0 / whole as f64;
    match p {
        _ if part == 0 => "0 %".to_string(),
        _ if part == whole => "100 %".to_string(),
        _ if p >= 99.95 => ">99.9 %".to_string(),
        _ if p < 0.05 => "<0.1 %".to_string(),
        _ => format!("{p:.1} %"),
    }
}
