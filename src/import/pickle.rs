//! A pickle, read as data. What would name a Python object, call it or build one is refused where it stands: a pickle from
//! somebody else is a program otherwise.
//!
//! All protocols up to 5, as far as numbers, text, bytes, lists, tuples, sets and dicts go; that is all that a snapshot of
//! PyTorch is made of.

use std::collections::HashMap;
use std::io::{BufRead, Read};

use anyhow::{Result, anyhow, bail};

use super::tree::{Tree, Value};

/// Reads a pickle; gives back its value and the tree it is in. The error says at which byte.
pub fn read(from: impl BufRead) -> Result<(Tree, Value)> {
    let mut r =
        Reader { from, at: 0, tree: Tree::default(), stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
    loop {
        let at = r.at;
        match r.step() {
            Ok(Some(value)) => return Ok((r.tree, value)),
            Ok(None) => {}
            Err(e) => return Err(anyhow!("byte {at}: {e:#}")),
        }
    }
}

struct Reader<R> {
    from: R,
    at: u64,
    tree: Tree,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
}

/// Values on the stack at most, which are in no list yet.
const DEEPEST: usize = 20_000_000;

/// A line of the text protocols at most.
const LONGEST: u64 = 1 << 20;

impl<R: BufRead> Reader<R> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => anyhow!("the pickle ends early: it is cut, or not one"),
            _ => anyhow!("cannot be read: {e}"),
        })?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.bytes::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    /// So many bytes; memory is taken only for those that are there.
    fn take(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.from).take(length).read_to_end(&mut bytes)?;
        self.at += bytes.len() as u64;
        if (bytes.len() as u64) < length {
            bail!("the pickle ends early: it is cut, or not one");
        }
        Ok(bytes)
    }

    /// A line of the text protocols, without its end.
    fn line(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        (&mut self.from).take(LONGEST).read_until(b'\n', &mut bytes)?;
        self.at += bytes.len() as u64;
        if bytes.pop() != Some(b'\n') {
            bail!("a line of the pickle has no end");
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn text(&mut self, length: u64) -> Result<()> {
        let bytes = self.take(length)?;
        let text = self.tree.add_text(&String::from_utf8_lossy(&bytes))?;
        self.push(text)
    }

    fn push(&mut self, value: Value) -> Result<()> {
        if self.stack.len() >= DEEPEST {
            bail!("more than {DEEPEST} values on the stack");
        }
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value> {
        if self.marks.last().is_some_and(|m| *m >= self.stack.len()) {
            bail!("a value is taken from below its mark");
        }
        self.stack.pop().ok_or_else(|| anyhow!("a value is taken where there is none"))
    }

    fn top(&self) -> Result<Value> {
        self.stack.last().copied().ok_or_else(|| anyhow!("a value is used where there is none"))
    }

    /// What is above the last mark.
    fn marked(&mut self) -> Result<Vec<Value>> {
        let mark = self.marks.pop().ok_or_else(|| anyhow!("a mark is used where there is none"))?;
        if mark > self.stack.len() {
            bail!("a value is taken from below its mark");
        }
        Ok(self.stack.split_off(mark))
    }

    fn list(&mut self, values: Vec<Value>) -> Result<()> {
        let list = self.tree.add_list(values)?;
        self.push(list)
    }

    fn last(&mut self, n: usize) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(n);
        for _ in 0..n {
            values.push(self.pop()?);
        }
        values.reverse();
        Ok(values)
    }

    fn remember(&mut self, number: u32) -> Result<()> {
        let value = self.top()?;
        self.memo.insert(number, value);
        Ok(())
    }

    fn again(&mut self, number: u32) -> Result<()> {
        let value = self.memo.get(&number).copied();
        self.push(value.ok_or_else(|| anyhow!("refers to value {number}, which is not there"))?)
    }

    /// A number of so many bytes, the lowest first, in two's complement.
    fn long(&mut self, length: u64) -> Result<()> {
        let bytes = self.take(length)?;
        let negative = bytes.last().is_some_and(|b| *b >= 0x80);
        let fill = if negative { 0xff } else { 0 };
        let mut low = [fill; 8];
        let n = bytes.len().min(8);
        low[..n].copy_from_slice(&bytes[..n]);
        let value = i64::from_le_bytes(low);
        let fits = bytes.iter().skip(8).all(|b| *b == fill) && (value < 0) == negative;
        let nearest = if negative { i64::MIN } else { i64::MAX };
        self.push(Value::Number(if fits { value } else { nearest }))
    }

    /// The next opcode; the value of the pickle at its end.
    fn step(&mut self) -> Result<Option<Value>> {
        let op = self.byte()?;
        match op {
            b'.' => return self.pop().map(Some),
            0x80 => {
                let version = self.byte()?;
                if version > 5 {
                    bail!("a pickle of protocol {version}; up to 5 is read");
                }
            }
            0x95 => drop(self.bytes::<8>()?),
            b'(' => {
                if self.marks.len() >= DEEPEST {
                    bail!("more than {DEEPEST} marks");
                }
                self.marks.push(self.stack.len());
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.marked()?),
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Flag(true))?,
            0x89 => self.push(Value::Flag(false))?,
            b'K' | b'M' | b'J' | 0x8a | 0x8b | b'I' | b'L' | b'G' | b'F' => self.number(op)?,
            0x8c | b'X' | 0x8d | b'V' | b'U' | b'T' | b'S' | b'C' | b'B' | 0x8e | 0x96 => self.string(op)?,
            b']' | b')' | 0x8f => self.list(Vec::new())?,
            b'l' | b't' | 0x91 => {
                let values = self.marked()?;
                self.list(values)?;
            }
            0x85..=0x87 => {
                let values = self.last(usize::from(op - 0x84))?;
                self.list(values)?;
            }
            b'a' => {
                let value = self.pop()?;
                self.tree.extend(self.top()?, &[value])?;
            }
            b'e' | 0x90 => {
                let values = self.marked()?;
                self.tree.extend(self.top()?, &values)?;
            }
            b'}' => {
                let dict = self.tree.add_dict()?;
                self.push(dict)?;
            }
            b'd' => {
                let pairs = self.marked()?;
                let dict = self.tree.add_dict()?;
                self.tree.set(dict, &pairs)?;
                self.push(dict)?;
            }
            b's' => {
                let pair = self.last(2)?;
                self.tree.set(self.top()?, &pair)?;
            }
            b'u' => {
                let pairs = self.marked()?;
                self.tree.set(self.top()?, &pairs)?;
            }
            0x94 => self.remember(self.memo.len() as u32)?,
            b'q' => {
                let n = self.byte()?;
                self.remember(n.into())?;
            }
            b'r' => {
                let n = self.u32()?;
                self.remember(n)?;
            }
            b'p' | b'g' => {
                let n = self.line()?.parse().map_err(|_| anyhow!("a number of the pickle is none"))?;
                if op == b'p' { self.remember(n)? } else { self.again(n)? }
            }
            b'h' => {
                let n = self.byte()?;
                self.again(n.into())?;
            }
            b'j' => {
                let n = self.u32()?;
                self.again(n)?;
            }
            _ => bail!("{}", self.refusal(op)),
        }
        Ok(None)
    }

    fn number(&mut self, op: u8) -> Result<()> {
        let text = |line: String| line.trim_end_matches('L').trim().to_string();
        let value = match op {
            b'K' => Value::Number(self.byte()?.into()),
            b'M' => Value::Number(u16::from_le_bytes(self.bytes()?).into()),
            b'J' => Value::Number(i32::from_le_bytes(self.bytes()?).into()),
            b'G' => Value::Fraction(f64::from_be_bytes(self.bytes()?)),
            0x8a => {
                let length = self.byte()?;
                return self.long(length.into());
            }
            0x8b => {
                let length = self.u32()?;
                return self.long(length.into());
            }
            b'F' => Value::Fraction(text(self.line()?).parse().map_err(|_| anyhow!("a number of the pickle is none"))?),
            _ => match text(self.line()?).as_str() {
                "00" => Value::Flag(false),
                "01" => Value::Flag(true),
                n => Value::Number(n.parse().map_err(|_| anyhow!("a number of the pickle is none, or too large"))?),
            },
        };
        self.push(value)
    }

    fn string(&mut self, op: u8) -> Result<()> {
        let length = match op {
            b'V' | b'S' => {
                let line = self.line()?;
                let text = self.tree.add_text(line.trim_matches(['\'', '"']))?;
                return self.push(text);
            }
            0x8c | b'U' | b'C' => self.byte()?.into(),
            b'X' | b'T' | b'B' => self.u32()?.into(),
            _ => u64::from_le_bytes(self.bytes()?),
        };
        self.text(length)
    }

    /// Why an opcode is not followed.
    fn refusal(&mut self, op: u8) -> String {
        let object = match op {
            b'c' | b'i' => {
                let (module, name) = (self.line().unwrap_or_default(), self.line().unwrap_or_default());
                format!("{module}.{name}")
            }
            0x93 => {
                let part = |back: usize| {
                    let at = self.stack.len().checked_sub(back);
                    at.map_or("?", |at| self.tree.text(self.stack[at]))
                };
                format!("{}.{}", part(2), part(1))
            }
            b'R' | b'b' | b'o' | 0x81 | 0x92 | 0x82..=0x84 | b'P' | b'Q' | 0x97 | 0x98 => String::new(),
            _ => return format!("opcode {op:#04x} is none: the pickle is damaged, or not one"),
        };
        let object: String = object.chars().take(100).collect();
        let object = if object.is_empty() { "an object of Python".to_string() } else { object };
        format!(
            "the pickle would call or load {object}; it is not read, because a pickle with objects can run any program (a snapshot of torch.cuda.memory._dump_snapshot has none)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> String {
        read(bytes).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn what_python_writes() {
        // pickle.dumps({"a": [1, 300, 70000, 2**40, -5, 1.5, None, True, (1, 2)], "b": "é"}, protocol)
        let two: &[u8] = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01M,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01J\xfb\xff\xff\xffG?\xf8\x00\x00\x00\x00\x00\x00N\x88K\x01K\x02\x86q\x03eX\x01\x00\x00\x00bq\x04X\x02\x00\x00\x00\xc3\xa9q\x05u.";
        let four: &[u8] = b"\x80\x04\x95<\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01M,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01J\xfb\xff\xff\xffG?\xf8\x00\x00\x00\x00\x00\x00N\x88K\x01K\x02\x86\x94e\x8c\x01b\x94\x8c\x02\xc3\xa9\x94u.";
        let zero: &[u8] = b"(dp0\nVa\np1\n(lp2\nI1\naI300\naI70000\naL1099511627776L\naI-5\naF1.5\naNaI01\na(I1\nI2\ntp3\nasVb\np4\nV\xc3\xa9\np5\ns.";
        for bytes in [two, four, zero] {
            let (tree, root) = read(bytes).unwrap();
            let list = tree.list(tree.get(root, "a").unwrap()).unwrap();
            use Value::{Flag, Fraction, None, Number};
            let plain =
                [Number(1), Number(300), Number(70_000), Number(1 << 40), Number(-5), Fraction(1.5), None, Flag(true)];
            assert_eq!(list[..8], plain);
            assert_eq!(tree.list(list[8]).unwrap(), [Number(1), Number(2)]);
            assert_eq!(tree.text(tree.get(root, "b").unwrap()), "é");
        }
    }

    #[test]
    fn a_pickle_is_never_run() {
        // What pickle.dumps makes of an object whose __reduce__ is (os.system, ("true",)).
        let e = refused(
            b"\x80\x04\x95\x1d\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.",
        );
        assert!(e.starts_with("byte 28: the pickle would call or load posix.system;"), "{e}");
        assert!(refused(b"cposix\nsystem\n(S'true'\ntR.").contains("load posix.system"));
        for op in [b"]R", b"]b", b"(o", b"]\x81", b"]\x92", b"]P", b"]Q", b"\x82\x01", b"\x97\x98", b"(i"] {
            assert!(refused(op).contains("would call or load"), "{op:?}");
        }
    }

    #[test]
    fn damage_is_said() {
        for (bytes, what) in [
            (&b"\x80\x04"[..], "byte 2: the pickle ends early"),
            (b"\x80\x09", "byte 0: a pickle of protocol 9"),
            (b"\x80\x04\xff", "byte 2: opcode 0xff is none"),
            (b"X\xff\xff\xff\xffabc", "ends early"),
            (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc", "ends early"),
            (b"h\x05", "refers to value 5"),
            (b"a", "taken where there is none"),
            (b"e", "a mark is used"),
            (b"]K\x01a(K\x010K\x02K\x03000", "from below its mark"),
            (b"}(K\x01u", "a key without a value"),
            (b"]K\x01K\x02s", "is no dict"),
            (b"}K\x01a", "is no list"),
            (b"Ix\n", "is none"),
        ] {
            assert!(refused(bytes).contains(what), "{bytes:?}: {}", refused(bytes));
        }
    }

    #[test]
    fn nesting_and_rings_are_no_trouble() {
        let mut deep = vec![b']'; 300_000];
        deep.extend(vec![b'a'; 299_999]);
        deep.push(b'.');
        read(&deep[..]).unwrap();
        let (tree, ring) = read(&b"]\x94h\x00a."[..]).unwrap();
        assert_eq!(tree.list(ring).unwrap(), [ring]);
        // A number of 300 bytes is the nearest that fits.
        let mut long = vec![0x8b, 0x2c, 1, 0, 0];
        long.extend([0x7f; 300]);
        long.push(b'.');
        assert_eq!(read(&long[..]).unwrap().1, Value::Number(i64::MAX));
    }
}
