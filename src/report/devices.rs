//! Device by device, where there are several.

use serde::Serialize;

use super::Page;
use super::history::History;
use super::text::{bytes, clean, percent, time};

/// One device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceAnswer {
    /// CUDA ordinal in this process.
    pub device: u32,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Bytes that it has.
    pub total: u64,
    /// Most active on it, and when.
    pub peak: u64,
    /// When that was.
    pub peak_time: u64,
    /// Most reserved on it.
    pub reserved_peak: u64,
    /// Active at the end.
    pub end: u64,
}

/// All devices of the process.
pub fn of(history: &History) -> Vec<DeviceAnswer> {
    let known = &history.facts.ledger.devices;
    let all: std::collections::BTreeSet<u32> = history.devices.keys().chain(known.keys()).copied().collect();
    let one = |device: u32| {
        let (info, peak) = (history.devices.get(&device), known.get(&device));
        let end = history.state.devices.get(&device).map_or(0, |t| t.active());
        DeviceAnswer {
            device,
            name: info.map_or(String::new(), |d| clean(&d.name)),
            uuid: info.map_or(String::new(), |d| d.uuid.clone()),
            total: info.map_or(0, |d| d.bytes),
            peak: peak.map_or(0, |p| p.in_use.in_use),
            peak_time: peak.map_or(0, |p| p.in_use.time),
            reserved_peak: peak.map_or(0, |p| p.reserved.reserved),
            end,
        }
    };
    all.into_iter().map(one).collect()
}

/// Writes the section.
pub fn section(page: &mut Page, devices: &[DeviceAnswer]) {
    if devices.iter().filter(|d| d.peak > 0).count() < 2 {
        return;
    }
    page.heading("DEVICES");
    for d in devices.iter().filter(|d| d.peak > 0) {
        let of = match d.total {
            0 => String::new(),
            total => format!(" ({} of {})", percent(d.peak, total), bytes(total)),
        };
        page.row(
            &format!("GPU {}", d.device),
            &format!(
                "{:>9} active at {}{of}, {} reserved at most",
                bytes(d.peak),
                time(d.peak_time),
                bytes(d.reserved_peak)
            ),
        );
    }
}
