//! A history as tables, in Parquet or CSV, for pandas, Polars, DuckDB, Spark, Dask, Ray. [`schema`] says what is in them
//! (docs/tables.md is its text), [`fill`] makes the rows, [`parquet`] and [`csv`] write them; neither holds more than a few
//! row groups.
//!
//! A folder: `TABLE/run=RUN/rank=RANK/date=DATE/PROCESS.parquet`, the layout that all of these read as one table with the
//! columns `run`, `rank` and `date`. So what several ranks or hosts export into one folder, now or later, is one data set.

use anyhow::{Result, bail};

use super::{Format, Source, Target};

pub mod csv;
mod definitions;
pub mod fill;
pub mod parquet;
pub mod partition;
pub mod schema;

/// The kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Parquet, zstd inside.
    Parquet,
    /// CSV with a line of names.
    Csv,
}

/// A value in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing.
    None,
    /// A number, or nanoseconds since 1970 in a column of times.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// Yes or no.
    Bool(bool),
}

impl Cell<'_> {
    /// A number. One past 2^63 (a handle) keeps its bits.
    pub fn int(n: u64) -> Cell<'static> {
        Cell::Int(n as i64)
    }

    /// A number, of which 0 says nothing.
    pub fn some(n: u64) -> Cell<'static> {
        if n == 0 { Cell::None } else { Cell::int(n) }
    }
}

/// A text, of which the empty one says nothing.
pub fn text(text: &str) -> Cell<'_> {
    if text.is_empty() { Cell::None } else { Cell::Text(text) }
}

/// A table being written.
pub trait Sheet {
    /// Adds a row: a cell for each column.
    fn row(&mut self, cells: &[Cell]) -> Result<()>;
    /// The end; the file is there only now.
    fn finish(self: Box<Self>) -> Result<()>;
}

impl File {
    /// Begins a table.
    pub fn sheet(self, table: &'static schema::Table, target: &Target) -> Result<Box<dyn Sheet>> {
        Ok(match self {
            File::Parquet => Box::new(parquet::Sheet::new(table, target.create()?)?),
            File::Csv => Box::new(csv::Sheet::new(table, target.create()?)?),
        })
    }

    /// How its files' names end.
    pub fn ending(self) -> &'static str {
        match self {
            File::Parquet => "parquet",
            File::Csv => "csv",
        }
    }
}

/// The format.
pub struct Tables(
    /// Which files.
    pub File,
);

impl Format for Tables {
    fn binary(&self) -> bool {
        self.0 == File::Parquet
    }

    fn folder(&self) -> bool {
        true
    }

    fn several(&self) -> bool {
        true
    }

    fn flags(&self) -> &'static [&'static str] {
        &["run"]
    }

    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>> {
        self.write_all(std::slice::from_mut(source), target)
    }

    fn write_all(&self, sources: &mut [Source], target: &Target) -> Result<Vec<String>> {
        let Some(folder) = target.path() else { bail!("tables are a folder of files: give it with -o") };
        let run = partition::run(sources);
        // Before the first row: of several files all are written, or none.
        for source in &*sources {
            fill::paths(source, self.0, folder, &run).try_for_each(|(_, path)| source.options.force.check(&path))?;
        }
        let mut rows = 0;
        for source in &mut *sources {
            rows += fill::write(source, self.0, folder, &run)?;
        }
        let rows = crate::report::text::count(rows);
        Ok(vec![format!(
            "{rows} rows in the tables of {}, run {run} (docs/tables.md, docs/queries.md)",
            folder.display()
        )])
    }
}

#[cfg(test)]
mod tests;
