//! A table as Parquet: columns by Apache's own writers, compressed by zstd, a row group at a time.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type as Node;

use super::Cell;
use super::schema::{Column, Table, Type};
use crate::export::target::Sink;

/// Rows of a group: what DuckDB writes itself, so that readers share them out well.
const GROUP: usize = 122_880;

/// See the module.
pub struct Sheet {
    out: SerializedFileWriter<Sink>,
    columns: Vec<Held>,
    rows: usize,
}

/// The cells of a column that are not written yet.
struct Held {
    kind: Type,
    ints: Vec<i64>,
    texts: Vec<ByteArray>,
    bools: Vec<bool>,
    /// 1: there is a value, 0: nothing.
    there: Vec<i16>,
    /// Texts of this group: most come again.
    known: HashMap<Box<str>, ByteArray>,
}

impl Sheet {
    /// Begins it.
    pub fn new(table: &'static Table, out: Sink) -> Result<Sheet> {
        let fields = table.columns.iter().map(node).collect::<Result<Vec<_>>>()?;
        let schema = Node::group_type_builder(table.name).with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_created_by(format!("vramscope version {}", env!("CARGO_PKG_VERSION")))
            .build();
        let out = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        Ok(Sheet { out, columns: table.columns.iter().map(|c| Held::new(c.kind)).collect(), rows: 0 })
    }

    fn group(&mut self) -> Result<()> {
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let mut group = self.out.next_row_group()?;
        for held in &mut self.columns {
            let Some(mut column) = group.next_column()? else { bail!("a column has no writer") };
            held.write(column.untyped())?;
            column.close()?;
        }
        group.close()?;
        Ok(())
    }
}

/// A column's place in the schema. Any may hold nothing.
fn node(column: &Column) -> Result<Arc<Node>> {
    let (physical, logical) = match column.kind {
        Type::Int => (Physical::INT64, None),
        Type::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
        Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Type::Bool => (Physical::BOOLEAN, None),
    };
    let node = Node::primitive_type_builder(column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(node))
}

impl Held {
    fn new(kind: Type) -> Held {
        let (ints, texts, bools, there, known) = Default::default();
        Held { kind, ints, texts, bools, there, known }
    }

    fn push(&mut self, cell: Cell) -> Result<()> {
        match (self.kind, cell) {
            (_, Cell::None) => {}
            (Type::Int, Cell::Int(n)) => self.ints.push(n),
            // Spark knows no nanoseconds, DuckDB hardly.
            (Type::Time, Cell::Int(ns)) => self.ints.push(ns / 1_000),
            (Type::Bool, Cell::Bool(b)) => self.bools.push(b),
            (Type::Text, Cell::Text(text)) => match self.known.get(text) {
                Some(known) => self.texts.push(known.clone()),
                None => {
                    let bytes = ByteArray::from(text);
                    self.known.insert(text.into(), bytes.clone());
                    self.texts.push(bytes);
                }
            },
            (kind, cell) => bail!("{cell:?} in a column of {kind:?}"),
        }
        self.there.push(i16::from(cell != Cell::None));
        Ok(())
    }

    fn write(&mut self, column: &mut ColumnWriter<'_>) -> Result<()> {
        let there = Some(&self.there[..]);
        match column {
            ColumnWriter::Int64ColumnWriter(c) => drop(c.write_batch(&self.ints, there, None)?),
            ColumnWriter::ByteArrayColumnWriter(c) => drop(c.write_batch(&self.texts, there, None)?),
            ColumnWriter::BoolColumnWriter(c) => drop(c.write_batch(&self.bools, there, None)?),
            _ => bail!("a column of a kind that no table has"),
        }
        self.ints.clear();
        self.texts.clear();
        self.bools.clear();
        self.there.clear();
        self.known.clear();
        Ok(())
    }
}

impl super::Sheet for Sheet {
    fn row(&mut self, cells: &[Cell]) -> Result<()> {
        if cells.len() != self.columns.len() {
            bail!("a row of {} cells in a table of {} columns", cells.len(), self.columns.len());
        }
        for (held, cell) in self.columns.iter_mut().zip(cells) {
            held.push(*cell)?;
        }
        self.rows += 1;
        if self.rows == GROUP { self.group() } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.group()?;
        Ok(self.out.into_inner()?.finish()?)
    }
}
