//! Sizes as people write them, in flags and variables: one reading for the command and the preload library.

/// A size, or a part of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Percent of the device's memory, at most 100.
    Percent(u64),
}

/// Reads `4096`, `512MiB`, `512M` (1024-based), `512MB` (1000-based) or, where allowed, `10%`.
pub fn parse(text: &str, percent: bool) -> Result<Size, String> {
    let wrong = || {
        let allowed = if percent {
            "bytes, a size like 512MiB or 2GiB, or a part like 10%"
        } else {
            "bytes, or a size like 512MiB or 2GiB"
        };
        format!("'{text}' is no size; allowed: {allowed}")
    };
    let t = text.trim();
    let digits = t.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(t.len());
    let (number, unit) = t.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let number: f64 = number.parse().map_err(|_| wrong())?;
    if unit == "%" {
        let whole = number.fract() == 0.0 && number <= 100.0;
        return if percent && whole { Ok(Size::Percent(number as u64)) } else { Err(wrong()) };
    }
    let scale: u64 = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    let bytes = number * scale as f64;
    // Above 2^53 a history could not hold it, and no device has it.
    if (scale == 1 && number.fract() != 0.0) || bytes > (1u64 << 53) as f64 {
        Err(wrong())
    } else {
        Ok(Size::Bytes(bytes as u64))
    }
}

/// Whether it is a bare number of less than a mebibyte, which was meant otherwise: nobody wants a limit of ten bytes.
pub fn lacks_unit(text: &str, bytes: u64) -> bool {
    (1..0x10_0000).contains(&bytes) && text.trim().bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let size = |t| parse(t, true).unwrap();
        assert_eq!(size("0"), Size::Bytes(0));
        assert_eq!(size("4096"), Size::Bytes(4096));
        assert_eq!(size("512MiB"), Size::Bytes(512 << 20));
        assert_eq!(size("512m"), Size::Bytes(512 << 20));
        assert_eq!(size("1.5 GiB"), Size::Bytes(3 << 29));
        assert_eq!(size("2GB"), Size::Bytes(2_000_000_000));
        assert_eq!(size("10%"), Size::Percent(10));
        for wrong in ["", "MiB", "-1", "10 apples", "101%", "1.5%", "1.5", "9999999T", "1e9"] {
            let message = parse(wrong, true).unwrap_err();
            assert!(message.contains("512MiB") && message.contains("10%"), "{message}");
        }
        assert!(!parse("10%", false).unwrap_err().contains("a part"));
    }
}
