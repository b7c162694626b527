//! `vramscope report --html`: one page that explains histories, to be opened without a network.
//!
//! Everything that depends on how long a history is happens here, not in the browser: [`run`] plays it into curves with all
//! their zooms ([`pyramid`]), the allocations worth drawing ([`tiles`]), and moments that are kept whole ([`moments`]).
//! [`page`] puts that as compressed columns ([`columns`]) into the files of `page/`. Nothing here prints.

pub mod account;
pub mod books;
pub mod columns;
pub mod holders;
pub mod kept;
pub mod labels;
pub mod layers;
pub mod live;
pub mod moments;
pub mod page;
pub mod pyramid;
pub mod run;
pub mod stacks;
pub mod tiles;
pub mod zero;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Error, Result, anyhow};

use crate::reading::Batches;
use crate::report::answers::{Answers, Asked};
use crate::report::history::later;
use crate::report::text::Paint;
use crate::report::{History, Page};
use page::Part;
use run::Limits;
use stacks::Stacks;

/// Entries of the answers' lists.
const TOP: usize = 20;

/// Writes one page about some histories. `symbols`: folders with the programs and libraries that ran.
pub fn write(out: &mut impl Write, histories: &[History], symbols: &[PathBuf]) -> Result<()> {
    let limits = Limits::of(histories.len());
    let mut parts = Vec::new();
    for history in histories {
        let batches = Batches::open(&history.file).map_err(|e| anyhow!("{e}"))?;
        let lines = batches.flatten().map(|(_, item)| later(item.line(), history.shift));
        let run = run::play(history, lines, &limits);
        // Names are looked up once for both.
        let mut page = Page::new(Paint::default(), symbols, TOP);
        let answers = Answers::of(&mut page, history, &Asked::default()).map_err(Error::msg)?;
        let stacks = Stacks::of(history, &mut page.names, run.holders.all());
        parts.push(Part { history, run, stacks, answers: serde_json::to_value(&answers)? });
    }
    page::write(out, &parts)
}

#[cfg(test)]
mod tests;
