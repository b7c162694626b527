//! What would have been served where a request found no memory.

use vramscope_core::trace::{Oom, PYTORCH};

use super::Page;
use super::oom::OutOfMemory;
use super::text::bytes;

/// The largest request that would have been served.
pub fn of(oom: &Oom) -> u64 {
    let room = match oom.refused_by() {
        Some(limit) => oom.free.min(limit.bytes.saturating_sub(limit.used)),
        // Refused although that much is free: by a limit that is not told.
        None if oom.asked > 0 && oom.free >= oom.needs() => 0,
        None => oom.free,
    };
    if oom.what != PYTORCH { room } else { tensor_in(room, oom.expandable).max(oom.pytorch_largest) }
}

/// The largest tensor that PyTorch makes a new segment for in so much room: from 10 MiB one of its own, in steps of 2 MiB;
/// below it takes 20 MiB, and 2 MiB up to 1 MiB. An expandable one grows by pages of 20 MiB, and of 2 MiB up to 1 MiB.
fn tensor_in(room: u64, expandable: bool) -> u64 {
    const MIB: u64 = 1 << 20;
    match room {
        pages if expandable && pages >= 20 * MIB => pages / (20 * MIB) * (20 * MIB),
        small if expandable && small >= 2 * MIB => MIB,
        own if own >= LARGE => own / (2 * MIB) * (2 * MIB),
        small if small >= 2 * MIB => MIB,
        _ => 0,
    }
}

/// A tensor from here on has a segment of its own size.
const LARGE: u64 = 10 << 20;

/// What would have been served. A tensor may have been refused where a larger one, with a segment of its own size, fits.
pub fn row(page: &mut Page, oom: &OutOfMemory) {
    let (fits, piece) = (oom.would_have_fit, oom.pytorch_largest);
    match oom.asked {
        0 => {}
        _ if fits == 0 => {}
        asked if fits < asked => {
            let within = if oom.what == PYTORCH && fits == piece { ", in a free block" } else { "" };
            page.row("would have fit", &format!("{:>9} at most{within}", bytes(fits)));
        }
        _ if oom.what == PYTORCH && fits > piece => {
            let within = if piece > 0 { format!("up to {} in a free block, or ", bytes(piece)) } else { String::new() };
            let own = format!("{} to {} in a new segment", bytes(LARGE), bytes(fits));
            page.row("would have fit", &format!("{within}{own}"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::report::oom::tests::written;
    use crate::report::testing::MIB;
    use vramscope_core::trace::Oom;

    /// PyTorch asks for a segment of 20 MiB for 8, and for one of its own size for 14: with 18 free that fits.
    #[test]
    fn what_would_have_fit_is_what_pytorch_would_ask_the_driver_for() {
        let fits = |asked: u64, free: u64, piece: u64| {
            let sizes = |oom: &mut Oom| {
                (oom.asked, oom.free, oom.pytorch_largest) = (asked * MIB, free * MIB, piece * MIB);
            };
            let text = written(sizes);
            let row = text.lines().find(|l| l.starts_with("  would have fit")).unwrap_or("");
            row.split_whitespace().skip(3).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(fits(8, 18, 4), "up to 4.00 MiB in a free block, or 10.0 MiB to 18.0 MiB in a new segment");
        assert_eq!(fits(8, 19, 0), "10.0 MiB to 18.0 MiB in a new segment");
        assert_eq!(fits(8, 9, 4), "4.00 MiB at most, in a free block");
        assert_eq!(fits(8, 9, 0), "1.00 MiB at most");
        assert_eq!(fits(64, 33, 4), "32.0 MiB at most");
        assert_eq!(fits(64, 33, 50), "50.0 MiB at most, in a free block");
        assert_eq!(fits(64, 70, 8), "8.00 MiB at most, in a free block");
        assert_eq!(fits(64, 70, 0), "", "a limit that is not told refused it");
        let expandable = |asked: u64, free: u64| {
            let text = written(|oom: &mut Oom| {
                (oom.asked, oom.free, oom.pytorch_largest, oom.expandable) = (asked * MIB, free * MIB, 0, true);
            });
            let row = text.lines().find(|l| l.starts_with("  would have fit")).unwrap_or("");
            let heading = text.lines().find(|l| l.starts_with("OUT OF MEMORY")).unwrap_or_default();
            let asked = heading.split_once("asked for ").unwrap().1.split_once(" at ").unwrap().0;
            format!("{asked}: {}", row.split_whitespace().skip(3).collect::<Vec<_>>().join(" "))
        };
        let more = "more of an expandable segment";
        assert_eq!(expandable(8, 18), format!("8.00 MiB (up to 20.0 MiB {more}): 1.00 MiB at most"));
        assert_eq!(expandable(64, 70), format!("64.0 MiB (up to 80.0 MiB {more}): 60.0 MiB at most"));
        assert!(written(|oom| oom.asked = 8 * MIB).contains("asked for 8.00 MiB (a new segment of 20.0 MiB) at"));
    }
}
