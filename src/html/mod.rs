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

use crate::report::{History, text::plural};
use crate::symbols::Names;
use page::Part;
use run::Limits;
use stacks::Stacks;

/// Writes one page about some histories. `symbols`: folders with the programs and libraries that ran. Gives what a person
/// should know about it.
pub fn write(out: &mut impl Write, histories: &[History], symbols: &[PathBuf]) -> Result<Vec<String>> {
    let limits = Limits::of(histories.len());
    let (mut parts, mut remarks) = (Vec::new(), Vec::new());
    for history in histories {
        let reader = Reader::open(&history.path).map_err(|e| anyhow!("{e}"))?;
        let run = run::play(history, reader, &limits);
        if run.events < history.events {
            let lacks = plural(history.events - run.events, "event");
            remarks.push(format!("{}: the page lacks the last {lacks}, which are not in the file yet; `vramscope recover` writes them into it", history.path.display()));
        }
        let stacks = Stacks::of(history, &mut Names::new(symbols), run.holders.all());
        parts.push(Part { history, run, stacks, answers: serde_json::Value::Null });
    }
    page::write(out, &parts)?;
    Ok(remarks)
}

#[cfg(test)]
mod tests;
