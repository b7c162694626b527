//! Limits of a device as people write them (`--limit`, `VRAMSCOPE_LIMIT`, `vramscope ctl PID limit`): one rule, and one
//! message that names all forms.

use crate::size::{self, Size};
use crate::text::plural;

/// The forms of a limit.
const FORMS: &str = "24GiB, 80%, 0.8 (a share), none; or one a device, 0:24GiB,1:50%";

/// A limit in bytes or as a share of the device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// Bytes; 0: no limit.
    Bytes(u64),
    /// A share, 0 to 1.
    Share(f64),
}

impl Limit {
    /// No limit.
    pub const NONE: Limit = Limit::Bytes(0);

    /// In bytes, of a device with this many.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Limit::Bytes(b) => b,
            // However small, it is no permission for all.
            Limit::Share(s) => ((total as f64 * s) as u64).max(u64::from(s > 0.0 && total > 0)),
        }
    }
}

/// Reads a limit for all devices, or one for each named. The error says what is allowed.
pub fn parse(text: &str) -> Result<Vec<(Option<u32>, Limit)>, String> {
    let mut limits: Vec<(Option<u32>, Limit)> = Vec::new();
    for part in text.split(',') {
        let (device, limit) = match part.split_once(':') {
            Some((device, limit)) => match device.trim().parse::<u32>() {
                Ok(n) => (Some(n), limit),
                Err(_) => return Err(format!("'{}' is no device; allowed: {FORMS}", device.trim())),
            },
            None => (None, part),
        };
        if limits.iter().any(|(other, _)| *other == device) {
            let which = device.map_or("all devices".to_owned(), |n| format!("device {n}"));
            return Err(format!("'{text}' has two limits for {which}; allowed: {FORMS}"));
        }
        limits.push((device, one(limit.trim())?));
    }
    Ok(limits)
}

fn one(text: &str) -> Result<Limit, String> {
    let wrong = |why: &str| Err(format!("'{text}' {why}; allowed: {FORMS}"));
    if matches!(text, "none" | "off") {
        return Ok(Limit::NONE);
    }
    if let (true, Ok(share)) = (text.contains('.'), text.parse::<f64>()) {
        return if share > 0.0 && share <= 1.0 { Ok(Limit::Share(share)) } else { wrong("is no share of a device") };
    }
    match size::parse(text, true) {
        Ok(Size::Bytes(0) | Size::Percent(0)) => wrong("would leave nothing"),
        Ok(Size::Bytes(n)) if size::lacks_unit(text, n) => wrong(&format!("is {}", plural(n, "byte"))),
        Ok(Size::Bytes(n)) => Ok(Limit::Bytes(n)),
        Ok(Size::Percent(n)) => Ok(Limit::Share(n as f64 / 100.0)),
        Err(_) => wrong("is no limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(parse("24GiB"), Ok(vec![(None, Limit::Bytes(24 << 30))]));
        assert_eq!(parse("80%"), Ok(vec![(None, Limit::Share(0.8))]));
        assert_eq!(parse("0.5"), Ok(vec![(None, Limit::Share(0.5))]));
        assert_eq!(parse("1.0"), Ok(vec![(None, Limit::Share(1.0))]));
        assert_eq!(parse("none"), Ok(vec![(None, Limit::NONE)]));
        let each = vec![(Some(0), Limit::Bytes(24 << 30)), (Some(1), Limit::Share(0.5))];
        assert_eq!(parse("0:24GiB, 1:50%"), Ok(each));
    }

    #[test]
    fn a_share_of_a_device() {
        assert_eq!(Limit::Share(0.5).of(1 << 30), 1 << 29);
        assert_eq!(Limit::Share(1e-10).of(1 << 30), 1, "0 would be no limit");
        assert_eq!((Limit::Share(0.0).of(1 << 30), Limit::Share(0.5).of(0)), (0, 0));
    }

    #[test]
    fn whatever_is_wrong_is_told_all_forms() {
        for wrong in
            ["", "0", "0%", "0.0", "150%", "1.5", "-1", "24", "much", "x:24GiB", "0:", "0:10MiB,0:1MiB", "1GiB,2GiB"]
        {
            let message = parse(wrong).unwrap_err();
            assert!(message.ends_with(&format!("; allowed: {FORMS}")), "{wrong}: {message}");
        }
        assert!(parse("24").unwrap_err().starts_with("'24' is 24 bytes"));
    }
}
