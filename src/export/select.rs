//! What part of a history is asked for.

use crate::report::tally::Layer;

/// A window of time, a device, a layer. Times are the history's: nanoseconds since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// What began at this time or before is delivered as live already.
    pub from: u64,
    /// What comes later is left out.
    pub to: u64,
    /// This device only.
    pub device: Option<u32>,
    /// This layer only.
    pub layer: Option<Layer>,
    /// `from` and `to` are one moment that was asked for (`--at`).
    pub moment: bool,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection { from: 0, to: u64::MAX, device: None, layer: None, moment: false }
    }
}

impl Selection {
    /// What is live at one moment.
    pub fn at(time: u64) -> Selection {
        Selection { from: time, to: time, moment: true, ..Selection::default() }
    }

    /// Whether memory of this device and layer is asked for.
    pub fn wants(&self, device: u32, layer: Layer) -> bool {
        self.device.is_none_or(|d| d == device) && self.layer.is_none_or(|l| l == layer)
    }
}

/// A layer by the name a flag has for it; these are the words of [`LAYER_NAMES`].
pub fn layer(text: &str) -> Result<Layer, String> {
    LAYER_NAMES
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, layer)| *layer)
        .ok_or_else(|| format!("no layer; allowed: {}", LAYER_NAMES.map(|(name, _)| name).join(", ")))
}

/// The layers as flags and columns call them: as the history names the memory.
pub const LAYER_NAMES: [(&str, Layer); 10] = [
    ("pool", Layer::Pool),
    ("device", Layer::Direct),
    ("async", Layer::Async),
    ("vmm", Layer::Vmm),
    ("managed", Layer::Managed),
    ("array", Layer::Array),
    ("pinned", Layer::Pinned),
    ("registered", Layer::Registered),
    ("imported", Layer::Imported),
    ("tensor", Layer::Tensor),
];

/// The name of a layer among [`LAYER_NAMES`].
pub fn layer_name(layer: Layer) -> &'static str {
    LAYER_NAMES.iter().find(|(_, l)| *l == layer).map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tally::LAYERS;

    #[test]
    fn every_layer_has_a_name() {
        for l in LAYERS {
            assert_eq!(layer(layer_name(l)), Ok(l));
        }
        assert!(layer("tensors").unwrap_err().contains("pool, device, async"));
    }
}
