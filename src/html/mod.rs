//! `vramscope report --html`: one page that explains histories, to be opened without a network.
//!
//! Everything that depends on how long a history is happens here, not in the browser: [`run`] plays it into curves with all
//! their zooms ([`pyramid`]), the allocations worth drawing ([`tiles`]), and moments that are kept whole ([`moments`]).
//! [`page`] puts that as compressed columns ([`columns`]) into the files of `page/`. Nothing here prints.

pub mod books;
pub mod columns;
pub mod holders;
pub mod kept;
pub mod labels;
pub mod layers;
pub mod moments;
pub mod page;
pub mod pyramid;
pub mod run;
pub mod stacks;
pub mod tiles;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use vramscope_core::trace::read::Reader;

use crate::report::History;
use crate::symbols::Names;
use page::Part;
use run::Limits;
use stacks::Stacks;

/// Writes one page about some histories. `symbols`: folders with the programs and libraries that ran.
pub fn write(out: &mut impl Write, histories: &[History], symbols: &[PathBuf]) -> Result<()> {
    let limits = Limits::of(histories.len());
    let mut parts = Vec::new();
    for history in histories {
        let reader = Reader::open(&history.path).map_err(|e| anyhow!("{e}"))?;
        let run = run::play(history, reader, &limits);
        let stacks = Stacks::of(history, &mut Names::new(symbols), run.holders.all());
        parts.push(Part { history, run, stacks, answers: serde_json::Value::Null });
    }
    page::write(out, &parts)
}

#[cfg(test)]
mod tests;
