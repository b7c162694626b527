//! What of two histories is compared: what they held at a moment, or what needs none.

use std::fmt;
use std::str::FromStr;

use crate::moment::Moment;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// What was held at this moment.
    At(Moment),
    /// Each stack when it held most.
    Most,
    /// Everything that was ever allocated.
    Total,
}

impl Default for Basis {
    fn default() -> Basis {
        Basis::At(Moment::Peak)
    }
}

impl FromStr for Basis {
    type Err = String;

    fn from_str(text: &str) -> Result<Basis, String> {
        match text {
            "most" => Ok(Basis::Most),
            "total" => Ok(Basis::Total),
            _ => text.parse().map(Basis::At),
        }
    }
}

impl Basis {
    /// As the flag takes it.
    pub fn word(&self) -> String {
        match self {
            Basis::At(moment) => moment.word(),
            Basis::Most => "most".to_string(),
            Basis::Total => "total".to_string(),
        }
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Basis::At(moment) => moment.fmt(f),
            Basis::Most => f.write_str("when each stack held most"),
            Basis::Total => f.write_str("allocated in all"),
        }
    }
}
