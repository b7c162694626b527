//! At a glance: how much at most, when and whose; what was left; what was wasted; what failed; and in one sentence what
//! matters most.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Page;
use super::facts::Facts;
use super::facts::ledger::{Holder, Use};
use super::history::History;
use super::state::Sample;
use super::tally::{LAYERS, Layer, Tally, Totals};
use super::text::{bytes, count, part, plural, time};
use super::verdict::Verdict;

/// The state of memory at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Moment {
    /// When: nanoseconds.
    pub time: u64,
    /// Device bytes that somebody may use.
    pub active: u64,
    /// Device bytes held from the driver.
    pub reserved: u64,
    /// The same by layer; what is in a layer that lies in another is not active twice.
    pub layers: Vec<LayerSum>,
    /// Who is active, the largest first.
    pub owners: Vec<OwnerSum>,
}

/// What a layer of memory amounts to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LayerSum {
    /// Its name: `pool`, `PyTorch's tensors`, `PyTorch's segments`, `direct`, …
    pub layer: &'static str,
    /// Bytes active in it.
    pub active: u64,
    /// Bytes held for it.
    pub reserved: u64,
    /// Allocations.
    pub count: u64,
    /// Whether it counts among the process's device memory: pinned and other processes' memory does not.
    pub on_device: bool,
}

/// What one owner has.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OwnerSum {
    /// `PyTorch`, or the library that called.
    pub owner: String,
    /// Bytes active.
    pub active: u64,
}

/// What a device said of itself when most of it was used.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Said {
    /// CUDA ordinal.
    pub device: u32,
    /// When.
    pub time: u64,
    /// Bytes used on it, by everybody.
    pub used: u64,
    /// Bytes that it has.
    pub total: u64,
    /// Bytes of ours in it, with the driver's rounding.
    pub ours: u64,
}

/// A device when most was active, as what it said nearest to that moment tells.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AtPeak {
    /// CUDA ordinal.
    pub device: u32,
    /// Bytes used on it by everybody, as it said.
    pub used: u64,
    /// Bytes that it has.
    pub total: u64,
    /// Bytes of ours in it then, with the driver's rounding.
    pub ours: u64,
    /// The rest: context, modules, driver and other processes.
    pub rest: u64,
    /// When it was asked.
    pub said_at: u64,
    /// It said that less is used than is ours.
    pub less: bool,
}

/// At a glance.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Glance {
    /// What matters most.
    pub verdict: Verdict,
    /// When most was active.
    pub peak: Moment,
    /// When most was reserved: time, and bytes then.
    pub reserved_peak_time: u64,
    /// Bytes reserved at most.
    pub reserved_peak: u64,
    /// Bytes active when most was reserved.
    pub active_at_reserved_peak: u64,
    /// At the end.
    pub end: Moment,
    /// Part of what was reserved at most that was never needed: 1 - active at most / reserved at most.
    pub waste: f64,
    /// The same in bytes.
    pub waste_bytes: u64,
    /// Requests that failed: what the program, or who called PyTorch, saw.
    pub failed: u64,
    /// Of them for want of memory.
    pub failed_out_of_memory: u64,
    /// Calls of the driver that failed for all of them: PyTorch asks again before it gives up.
    pub failed_calls: u64,
    /// Requests that were served when PyTorch asked again.
    pub served_later: u64,
    /// Frees of something not live.
    pub bad_frees: u64,
    /// Events that were lost.
    pub lost: u64,
    /// What each device said when most of it was used.
    pub devices_said: Vec<Said>,
    /// Each device when most was active.
    pub devices_at_peak: Vec<AtPeak>,
}

/// Everything but the verdict, which is made of all answers.
pub fn of(history: &History) -> Glance {
    let (facts, state) = (&history.facts, &history.state);
    let ledger = &facts.ledger;
    let end = facts.end(state);
    let (most, top) = (ledger.reserved_peak.reserved, ledger.peak.in_use);
    let failed = &history.errors.failed;
    Glance {
        verdict: Verdict::default(),
        peak: moment(history, facts, ledger.peak, &ledger.peak_totals, ledger.peak.time, |h| ledger.at_peak(h)),
        reserved_peak_time: ledger.reserved_peak.time,
        reserved_peak: most,
        active_at_reserved_peak: ledger.reserved_peak.in_use,
        end: moment(history, facts, end, &state.now, history.end, |h| h.now),
        waste: if most == 0 { 0.0 } else { (most.saturating_sub(top)) as f64 / most as f64 },
        waste_bytes: most.saturating_sub(top),
        failed: failed.values().map(|f| f.count).sum(),
        failed_out_of_memory: failed.iter().filter(|((code, _, _), _)| *code == 2).map(|(_, f)| f.count).sum(),
        failed_calls: failed.values().map(|f| f.tries).sum(),
        served_later: history.errors.served.values().map(|f| f.count).sum(),
        bad_frees: history.errors.bad,
        lost: history.lost(),
        devices_said: state.samples.iter().map(said).collect(),
        devices_at_peak: at_peak(history),
    }
}

fn said((device, s): (&u32, &Sample)) -> Said {
    Said { device: *device, time: s.time, used: s.used, total: s.total, ours: s.ours }
}

fn at_peak(history: &History) -> Vec<AtPeak> {
    // Ours at another moment than the rest adds up to what no device ever said.
    let device = |(device, s): (u32, Sample)| AtPeak {
        device,
        used: s.used,
        total: s.total,
        ours: s.ours,
        rest: s.used.saturating_sub(s.ours),
        said_at: s.time,
        less: s.used < s.ours,
    };
    history.facts.said.nearest(history.facts.ledger.peak.time).map(device).collect()
}

fn moment(
    history: &History,
    facts: &Facts,
    usage: Use,
    totals: &Totals,
    time: u64,
    held: impl Fn(&Holder) -> Tally,
) -> Moment {
    let mut owners: BTreeMap<String, u64> = BTreeMap::new();
    let mut segments: BTreeMap<Layer, Tally> = BTreeMap::new();
    for h in &facts.ledger.holders {
        let t = held(h);
        if h.torch {
            segments.entry(h.layer()).or_default().merge(t);
        }
        if t.bytes == 0 || !facts.ledger.counts(h) {
            continue;
        }
        let owner = match (h.tensor, h.caller) {
            (true, _) => "PyTorch".to_string(),
            (_, 0) => "(unknown)".to_string(),
            (_, caller) => super::text::clean(history.module_name(caller)),
        };
        *owners.entry(owner).or_default() += t.bytes;
    }
    let mut owners: Vec<OwnerSum> = owners.into_iter().map(|(owner, active)| OwnerSum { owner, active }).collect();
    owners.sort_by_key(|o| std::cmp::Reverse(o.active));
    let layers = LAYERS.into_iter().filter_map(|l| layer(l, totals, &segments, usage)).collect();
    Moment { time, active: usage.in_use, reserved: usage.reserved, layers, owners }
}

fn layer(layer: Layer, totals: &Totals, segments: &BTreeMap<Layer, Tally>, usage: Use) -> Option<LayerSum> {
    let t = totals.layer(layer);
    let mut sum = LayerSum {
        layer: layer.name(),
        active: t.bytes,
        reserved: t.bytes,
        count: t.count,
        on_device: layer.on_device(),
    };
    match layer {
        Layer::Pool => sum.reserved = totals.pool_reserved(),
        Layer::Tensor => {
            sum.reserved = usage.torch;
            sum.on_device = true;
        }
        // Segments are told with the tensors that lie in them.
        _ if usage.tensors > 0 => {
            let torch = segments.get(&layer).copied().unwrap_or_default();
            sum.active = t.bytes.saturating_sub(torch.bytes);
            sum.reserved = sum.active;
            sum.count = t.count.saturating_sub(torch.count);
        }
        _ => {}
    }
    (sum.reserved > 0 || sum.count > 0).then_some(sum)
}

/// Writes the section.
pub fn section(page: &mut Page, history: &History, glance: &Glance) {
    page.heading("AT A GLANCE");
    let verdict = &glance.verdict;
    let text = if verdict.is_bad() { page.paint.red(&verdict.text) } else { verdict.text.clone() };
    page.row("verdict", &text);
    if history.is_snapshot() {
        return;
    }
    let p = &glance.peak;
    let recorded = if history.pauses.any() { " as far as was recorded" } else { "" };
    page.row("peak", &format!("{} active at {}{recorded}{}", bytes(p.active), time(p.time), owners(p)));
    let unused = match history.pauses.any() {
        true => "what was active while recording was paused is not known".to_string(),
        false => {
            format!("{} of it ({}) more than was ever active at once", bytes(glance.waste_bytes), part(glance.waste))
        }
    };
    let (most, at) = (bytes(glance.reserved_peak), time(glance.reserved_peak_time));
    page.row("reserved", &format!("{most} at most, at {at}; {unused}"));
    let e = &glance.end;
    page.row("at the end", &format!("{} active, {} reserved", bytes(e.active), bytes(e.reserved)));
    if glance.failed > 0 {
        let of = match glance.failed_out_of_memory {
            n if n == glance.failed => "for want of memory".to_string(),
            0 => "none for want of memory".to_string(),
            n => format!("{} for want of memory", count(n)),
        };
        let calls = match glance.failed_calls {
            n if n > glance.failed => format!(", after {} of the driver", plural(n, "call")),
            _ => String::new(),
        };
        page.row("failed", &format!("{}, {of}{calls}", plural(glance.failed, "request")));
    }
    if glance.served_later > 0 {
        let more = plural(glance.served_later, "request");
        page.row("nearly failed", &format!("{more}, served when PyTorch had given back what it kept, and asked again"));
    }
}

/// What a device had at the peak, and when it was asked.
fn device(d: &AtPeak, peak: u64) -> String {
    // What has just happened is not a second old.
    const NOW: u64 = 1_000_000;
    let age = match d.said_at.abs_diff(peak) {
        0..NOW => "at the peak".to_string(),
        age if d.said_at < peak => format!("{} before the peak", time(age)),
        age => format!("{} after the peak", time(age)),
    };
    if d.less {
        let (said, ours) = (bytes(d.used), bytes(d.ours));
        return format!(
            "{said:>9} used, asked {age}: less than our {ours} then, another process may have freed meanwhile"
        );
    }
    let (used, ours, rest) = (bytes(d.used), bytes(d.ours), bytes(d.rest));
    format!("{used:>9} used = {ours} ours + {rest} context, modules, driver, other processes, asked {age}")
}

/// `: PyTorch 1.20 GiB, libnccl.so.2 512 MiB and 3 more`
fn owners(m: &Moment) -> String {
    let shown: Vec<String> = m.owners.iter().take(3).map(|o| format!("{} {}", o.owner, bytes(o.active))).collect();
    let more = if m.owners.len() > 3 { format!(" and {} more", m.owners.len() - 3) } else { String::new() };
    if shown.is_empty() { String::new() } else { format!(": {}{more}", shown.join(", ")) }
}

/// Writes the layers at the peak.
pub fn layers(page: &mut Page, history: &History, glance: &Glance) {
    let p = &glance.peak;
    if history.is_snapshot() {
        let at = history.footer.as_ref().map_or(0, |f| f.time);
        page.heading(&format!("LIVE  {} active at {}", bytes(p.active), time(at)));
    } else {
        page.heading(&format!("PEAK  {} active at {}", bytes(p.active), time(p.time)));
    }
    for l in &p.layers {
        let mut text = format!("{:>9} in {}", bytes(l.active), plural(l.count, "allocation"));
        if !l.on_device {
            text += " (not device memory of this process)";
        } else if l.reserved != l.active {
            text +=
                &format!(", {} inactive, {} reserved", bytes(l.reserved.saturating_sub(l.active)), bytes(l.reserved));
        }
        page.row(l.layer, &text);
    }
    for d in &glance.devices_at_peak {
        page.row(&format!("GPU {}", d.device), &device(d, p.time));
    }
}
