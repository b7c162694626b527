//! A moment that somebody asked about: what every holder held then.

use super::ledger::{Ledger, Use};
use crate::moment::Moment;
use crate::report::state::State;
use crate::report::tally::Tally;

/// See the module.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Which.
    pub moment: Moment,
    /// Its time.
    pub time: u64,
    /// Each holder's sum, by number; holders that came later had nothing.
    pub held: Vec<Tally>,
    /// All of it.
    pub usage: Use,
}

impl Taken {
    pub(super) fn of(moment: Moment, time: u64, ledger: &Ledger, state: &State) -> Taken {
        let held = ledger.holders.iter().map(|h| h.now).collect();
        Taken { moment, time, held, usage: ledger.usage(state) }
    }
}
