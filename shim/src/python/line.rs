//! From an instruction to its line: the three forms of CPython's line table.

/// The line of the instruction at an offset in bytes.
pub fn of(minor: u32, table: &[u8], first: i32, offset: u64) -> u32 {
    let offset = offset as i64;
    // Before the first instruction: so says CPython.
    if offset < 0 {
        return u32::try_from(first).unwrap_or(0);
    }
    let line = match minor {
        ..=9 => pairs(table, first, offset),
        10 => ranges(table, first, offset),
        _ => locations(table, first, offset),
    };
    u32::try_from(line).unwrap_or(0)
}

/// 3.9 (`co_lnotab`): steps of address and line.
fn pairs(table: &[u8], first: i32, offset: i64) -> i32 {
    let (mut address, mut line) = (0, first);
    for step in table.chunks_exact(2) {
        address += i64::from(step[0]);
        if address > offset {
            break;
        }
        line = line.wrapping_add(i32::from(step[1] as i8));
    }
    line
}

/// 3.10 (PEP 626): ranges with a step of the line; -128 is "no line".
fn ranges(table: &[u8], first: i32, offset: i64) -> i32 {
    let (mut end, mut line) = (0i64, first);
    for range in table.chunks_exact(2) {
        let step = range[1] as i8;
        if step != -128 {
            line = line.wrapping_add(i32::from(step));
        }
        let start = end;
        end += i64::from(range[0]);
        if (start..end).contains(&offset) {
            break;
        }
    }
    line
}

/// 3.11 and later: entries of a length and a line in one of several codings.
fn locations(table: &[u8], first: i32, offset: i64) -> i32 {
    let (mut line, mut last, mut address) = (first, first, 0i64);
    let mut bytes = table.iter().copied();
    while let Some(head) = bytes.next() {
        let code = head >> 3 & 15;
        let units = i64::from(head & 7) + 1;
        let mut has_line = true;
        match code {
            15 => has_line = false,
            14 => {
                line = line.wrapping_add(signed(&mut bytes));
                for _ in 0..3 {
                    number(&mut bytes);
                }
            }
            13 => line = line.wrapping_add(signed(&mut bytes)),
            10..=12 => {
                line = line.wrapping_add(i32::from(code) - 10);
                bytes.next();
                bytes.next();
            }
            _ => {
                bytes.next();
            }
        }
        if has_line {
            last = line;
        }
        let start = address;
        address += units * 2;
        if (start..address).contains(&offset) {
            break;
        }
    }
    last
}

/// Six bits a byte, lowest first; bit 6 says that more follow.
fn number(bytes: &mut impl Iterator<Item = u8>) -> u32 {
    let (mut value, mut shift) = (0u32, 0);
    for byte in bytes {
        value |= u32::from(byte & 63).wrapping_shl(shift);
        shift += 6;
        if byte & 64 == 0 || shift > 30 {
            break;
        }
    }
    value
}

/// The sign is the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> i32 {
    let n = number(bytes);
    let magnitude = (n >> 1) as i32;
    if n & 1 == 1 { -magnitude } else { magnitude }
}
