//! Values that were read from a pickle. They lie in flat tables and refer to one another by number: a value
//! that holds itself, or is nested a million deep, is no trouble.

use std::collections::HashMap;

use anyhow::{Result, bail};

/// Values that are read at most: 3 GiB of memory. A snapshot of a million events has 20 million.
const MOST: usize = 150_000_000;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Python's None.
    None,
    /// True or false.
    Flag(bool),
    /// A whole number; one that does not fit is the nearest that does.
    Number(i64),
    /// A fraction.
    Fraction(f64),
    /// Text, or bytes.
    Text(u32),
    /// A list, tuple or set.
    List(u32),
    /// A dict.
    Dict(u32),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Tree {
    texts: Vec<Box<str>>,
    by_text: HashMap<Box<str>, u32>,
    lists: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
    /// Values in lists and dicts, and these.
    size: usize,
}

impl Tree {
    fn grow(&mut self, by: usize) -> Result<()> {
        self.size += by;
        if self.size > MOST {
            bail!("more than {MOST} values");
        }
        Ok(())
    }

    /// The number of a text; the same text has the same.
    pub fn add_text(&mut self, text: &str) -> Result<Value> {
        if let Some(n) = self.by_text.get(text) {
            return Ok(Value::Text(*n));
        }
        self.grow(2)?;
        let n = self.texts.len() as u32;
        self.texts.push(text.into());
        self.by_text.insert(text.into(), n);
        Ok(Value::Text(n))
    }

    /// A new list.
    pub fn add_list(&mut self, values: Vec<Value>) -> Result<Value> {
        self.grow(2 + values.len())?;
        self.lists.push(values);
        Ok(Value::List(self.lists.len() as u32 - 1))
    }

    /// A new dict.
    pub fn add_dict(&mut self) -> Result<Value> {
        self.grow(2)?;
        self.dicts.push(Vec::new());
        Ok(Value::Dict(self.dicts.len() as u32 - 1))
    }

    /// Adds values to a list.
    pub fn extend(&mut self, list: Value, values: &[Value]) -> Result<()> {
        let Value::List(n) = list else { bail!("values are added to what is no list") };
        self.grow(values.len())?;
        self.lists[n as usize].extend_from_slice(values);
        Ok(())
    }

    /// Sets keys of a dict, key and value in turn.
    pub fn set(&mut self, dict: Value, pairs: &[Value]) -> Result<()> {
        let Value::Dict(n) = dict else { bail!("keys are set in what is no dict") };
        if !pairs.len().is_multiple_of(2) {
            bail!("a key without a value");
        }
        self.grow(pairs.len())?;
        self.dicts[n as usize].extend(pairs.chunks_exact(2).map(|p| (p[0], p[1])));
        Ok(())
    }

    /// The text of a value; empty if it is none.
    pub fn text(&self, value: Value) -> &str {
        match value {
            Value::Text(n) => &self.texts[n as usize],
            _ => "",
        }
    }

    /// The values of a list.
    pub fn list(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(n) => Some(&self.lists[n as usize]),
            _ => None,
        }
    }

    /// The keys and values of a dict.
    pub fn dict(&self, value: Value) -> Option<&[(Value, Value)]> {
        match value {
            Value::Dict(n) => Some(&self.dicts[n as usize]),
            _ => None,
        }
    }

    /// What a dict has under this key. A key that was set twice has what came last.
    pub fn get(&self, dict: Value, key: &str) -> Option<Value> {
        let key = Value::Text(*self.by_text.get(key)?);
        self.dict(dict)?.iter().rev().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    /// A whole number, not negative, that a dict has under this key.
    pub fn number(&self, dict: Value, key: &str) -> Option<u64> {
        match self.get(dict, key)? {
            Value::Number(n) => u64::try_from(n).ok(),
            Value::Fraction(f) if (0.0..9e15).contains(&f) => Some(f as u64),
            _ => None,
        }
    }
}
