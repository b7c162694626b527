//! What the library makes of an interpreter's memory, as far as it is arithmetic: line tables and layouts that may be
//! anything. Frames of real interpreters are compared in the top-level tests.

#[path = "../src/python/layout.rs"]
#[allow(dead_code, reason = "the library uses all of it")]
mod layout;
#[path = "../src/python/line.rs"]
mod line;

use layout::{Chain, Refused, WORDS, of_table, of_version};

/// A generator of numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn the_lines_of_a_3_11_table() {
    // Two units on line 10; one on line 12 (long form, +2); one without a line; one on line 11 (-1, no columns).
    let table = [1 << 7 | 10 << 3 | 1, 0, 4, 1 << 7 | 14 << 3, 4, 0, 1, 2, 1 << 7 | 15 << 3, 1 << 7 | 13 << 3, 3];
    let lines: Vec<u32> = (0..5).map(|unit| line::of(12, &table, 10, unit * 2)).collect();
    assert_eq!(lines, [10, 10, 12, 12, 11]);
}

#[test]
fn the_lines_of_a_3_10_table() {
    // Six bytes on line 3, four without a line, two on line 2.
    let table = [6, 2, 4, 128, 2, 255];
    let lines: Vec<u32> = (0..6).map(|unit| line::of(10, &table, 1, unit * 2)).collect();
    assert_eq!(lines, [3, 3, 3, 3, 3, 2]);
}

#[test]
fn the_lines_of_a_3_9_table() {
    // Line 1 for four bytes, then 3, then 2 from byte 10 on.
    let table = [4, 2, 6, 255];
    let lines: Vec<u32> = (0..6).map(|unit| line::of(9, &table, 1, unit * 2)).collect();
    assert_eq!(lines, [1, 1, 3, 3, 3, 2]);
    assert_eq!(line::of(9, &table, 1, (-1i64) as u64), 1);
}

#[test]
fn any_bytes_are_some_line() {
    let mut random = Random(1);
    for _ in 0..20_000 {
        let table: Vec<u8> = (0..random.next() % 40).map(|_| random.next() as u8).collect();
        for minor in [9, 10, 11, 14] {
            line::of(minor, &table, random.next() as i32, random.next() >> (random.next() % 64));
        }
    }
}

/// A table of offsets as 3.13 and 3.14 have it, with other numbers than theirs.
fn table(minor: u64) -> [u64; WORDS] {
    let mut table = [0; WORDS];
    table[0] = u64::from_le_bytes(*b"xdebugpy");
    table[1] = 3 << 24 | minor << 16 | 0xf0;
    let groups = if minor == 13 { [184, 224, 272] } else { [208, 248, 312] };
    for (group, base) in groups.into_iter().zip([1000, 2000, 3000]) {
        for word in 0..10 {
            // The beginning of the next group overwrites the end of this one.
            table[group / 8 + word] = base + word as u64 * 8;
        }
    }
    table
}

#[test]
fn an_interpreters_own_table_is_believed_if_it_can_be() {
    for minor in [13, 14] {
        let layout = of_table(minor as u32, &table(minor)).unwrap();
        assert_eq!(layout.chain, Chain::Shims);
        assert_eq!((layout.frame, layout.back, layout.code, layout.instruction), (1000, 2008, 2016, 2024));
        assert_eq!((layout.file, layout.function, layout.lines), (3008, 3024, 3032));
    }
    let refused = |change: fn(&mut [u64; WORDS])| {
        let mut table = table(13);
        change(&mut table);
        of_table(13, &table).unwrap_err()
    };
    assert_eq!(refused(|t| t[2] = 1), Refused::FreeThreaded);
    assert_eq!(refused(|t| t[0] += 1), Refused::Unknown);
    assert_eq!(refused(|t| t[1] += 1 << 16), Refused::Unknown);
    assert_eq!(refused(|t| t[184 / 8] = 1 << 40), Refused::Unknown);
    assert_eq!(refused(|t| (t[29], t[30]) = (0, 0)), Refused::Unknown);
    assert_eq!(of_table(12, &table(12)).unwrap_err(), Refused::Unknown);
    assert_eq!(of_table(16, &table(16)).unwrap_err(), Refused::Unknown);
}

#[test]
fn versions_without_a_table() {
    assert!([8, 13, 14, 15].into_iter().all(|minor| of_version(minor).is_none()));
    let chains = [9, 10, 11, 12].map(|minor| of_version(minor).unwrap().chain);
    assert_eq!(chains, [Chain::Objects, Chain::Objects, Chain::Rows, Chain::Shims]);
}
