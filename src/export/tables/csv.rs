//! A table as CSV: a line of names, then a line a row. Nothing is an empty field.

use anyhow::Result;

use super::Cell;
use super::partition::iso;
use super::schema::{Table, Type};
use crate::export::target::Sink;

/// See the module.
pub struct Sheet {
    table: &'static Table,
    out: csv::Writer<Sink>,
}

impl Sheet {
    /// Begins it.
    pub fn new(table: &'static Table, out: Sink) -> Result<Sheet> {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(table.columns.iter().map(|c| c.name))?;
        Ok(Sheet { table, out })
    }
}

impl super::Sheet for Sheet {
    fn row(&mut self, cells: &[Cell]) -> Result<()> {
        for (column, cell) in self.table.columns.iter().zip(cells) {
            match cell {
                Cell::None => self.out.write_field("")?,
                Cell::Int(n) if column.kind == Type::Time => self.out.write_field(iso(*n as u64))?,
                Cell::Int(n) => self.out.write_field(n.to_string())?,
                Cell::Text(text) => self.out.write_field(text)?,
                Cell::Bool(b) => self.out.write_field(if *b { "true" } else { "false" })?,
            }
        }
        self.out.write_record(None::<&[u8]>)?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let out = self.out.into_inner().map_err(|e| e.into_error())?;
        Ok(out.finish()?)
    }
}
