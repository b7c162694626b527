//! Numbers, small: columns of variable-length integers. What comes after has them deflated.

use serde::Serialize;

/// Where a column is, for who reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// How many numbers.
    pub n: usize,
    /// Where its bytes begin.
    pub at: usize,
    /// What each number is to be multiplied by.
    pub scale: u64,
}

/// Columns, one behind the other.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    bytes: Vec<u8>,
    index: Vec<Column>,
}

impl Columns {
    /// Appends a column: each number as its distance from the one before. (What is the same all along deflates to nothing.)
    pub fn add(&mut self, name: String, values: impl Iterator<Item = u64> + Clone) {
        let steps = || {
            values.clone().scan(0u64, |before, value| {
                let step = value.wrapping_sub(*before) as i64;
                *before = value;
                Some(step)
            })
        };
        let scale = steps().fold(0, |gcd, step| common(gcd, step.unsigned_abs())).max(1);
        let (at, mut n) = (self.bytes.len(), 0);
        for step in steps() {
            let step = step / scale as i64;
            self.number((step << 1 ^ step >> 63) as u64);
            n += 1;
        }
        self.index.push(Column { name, n, at, scale });
    }

    fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }

    /// Where each column is.
    pub fn index(&self) -> &[Column] {
        &self.index
    }

    /// All columns' bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The greatest common divisor.
fn common(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
impl Columns {
    /// The numbers of a column, as the page reads them.
    pub fn read(&self, name: &str) -> Vec<u64> {
        let column = self.index.iter().find(|c| c.name == name).unwrap();
        let mut bytes = self.bytes[column.at..].iter();
        let mut before = 0i64;
        let step = |_| {
            let (mut n, mut shift) = (0u64, 0);
            for byte in bytes.by_ref() {
                n |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            before += ((n >> 1) as i64 ^ -((n & 1) as i64)) * column.scale as i64;
            before as u64
        };
        (0..column.n).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let mut c = Columns::default();
        let values = [0u64, 512, 1024, 0, 1 << 52, 3 << 20, 3 << 20];
        c.add("a".into(), values.iter().copied());
        c.add("none".into(), std::iter::empty());
        c.add("b".into(), [7u64, 7, 7].into_iter());
        assert_eq!((c.read("a"), c.read("none"), c.read("b")), (values.to_vec(), vec![], vec![7, 7, 7]));
        assert_eq!((c.index()[0].scale, c.index()[2].scale), (512, 7));
        assert_eq!(c.index()[2].at + 3, c.bytes().len());
    }
}
