//! Stacks whose pairs are known.

use super::*;
use crate::report::frames::Shown;
use crate::report::python::Whose;

/// `f:10 g:20`: functions and lines, innermost first.
fn chain(text: &str) -> Chain {
    let frame = |word: &str| {
        let (function, line) = word.split_once(':').unwrap();
        Shown { what: function.into(), place: format!("train.py:{line}"), whose: Whose::User, count: 1 }
    };
    Chain::of(text.split(' ').map(frame).collect())
}

/// The pairs by their texts, and how they match.
fn pairs(before: &[&str], after: &[&str]) -> Vec<(String, String, Match)> {
    let chains = |all: &[&str]| all.iter().map(|t| chain(t)).collect::<Vec<_>>();
    let (one, other) = (chains(before), chains(after));
    fn sides(chains: &[Chain]) -> Vec<Side<'_>> {
        chains.iter().map(|chain| Side { chain, kind: "device" }).collect()
    }
    let mut pairs = align(&sides(&one), &sides(&other));
    pairs.sort_by_key(|p| p.before);
    pairs.iter().map(|p| (before[p.before].to_string(), after[p.after].to_string(), p.how)).collect()
}

fn pair(before: &str, after: &str, how: Match) -> (String, String, Match) {
    (before.to_string(), after.to_string(), how)
}

#[test]
fn the_same_is_the_same() {
    let stacks = ["f:1 main:10", "g:2 main:11"];
    assert_eq!(
        pairs(&stacks, &["g:2 main:11", "f:1 main:10"]),
        [pair(stacks[0], stacks[0], Match::Exact), pair(stacks[1], stacks[1], Match::Exact)]
    );
}

#[test]
fn a_shift_that_lands_on_another_calls_line_confuses_nobody() {
    // Two calls, ten lines apart, moved by ten lines.
    assert_eq!(
        pairs(&["f:1 main:10", "f:1 main:20"], &["f:1 main:20", "f:1 main:30"]),
        [pair("f:1 main:10", "f:1 main:20", Match::Lines), pair("f:1 main:20", "f:1 main:30", Match::Lines)]
    );
}

#[test]
fn a_new_call_between_old_ones_is_the_new_one() {
    assert_eq!(
        pairs(&["f:1 main:10", "f:1 main:20"], &["f:1 main:10", "f:1 main:15", "f:1 main:20"]),
        [pair("f:1 main:10", "f:1 main:10", Match::Exact), pair("f:1 main:20", "f:1 main:20", Match::Exact)]
    );
    // And the other way round.
    assert_eq!(
        pairs(&["f:1 main:10", "f:1 main:15", "f:1 main:20"], &["f:1 main:11", "f:1 main:21"]),
        [pair("f:1 main:10", "f:1 main:11", Match::Lines), pair("f:1 main:20", "f:1 main:21", Match::Lines)]
    );
}

#[test]
fn a_renamed_function_is_nearly_the_same() {
    let before = ["alloc:1 forward:5 step:9 main:10", "alloc:1 backward:6 step:9 main:10"];
    let after = ["alloc:1 run_forward:5 step:9 main:10", "alloc:1 backward:6 step:9 main:10"];
    assert_eq!(
        pairs(&before, &after),
        [pair(before[0], after[0], Match::Nearly), pair(before[1], after[1], Match::Exact)]
    );
}

#[test]
fn a_function_that_came_between_is_nearly_the_same() {
    let (before, after) = ("a:1 b:2 c:3 main:4", "a:1 b:2 wrapper:1 c:3 main:4");
    assert_eq!(pairs(&[before], &[after]), [pair(before, after, Match::Nearly)]);
}

#[test]
fn what_is_different_is_not_matched() {
    assert_eq!(pairs(&["a:1 b:2 c:3 main:4"], &["x:1 y:2 c:3 main:4"]), []);
    // Too short for a likeness.
    assert_eq!(pairs(&["a:1 main:4"], &["b:1 main:4"]), []);
    // One frame differs, but both runs have both functions: it is another stack.
    let (b, c) = ("a:1 b:2 step:3 loop:4 main:5", "a:1 c:2 step:3 loop:4 main:5");
    let (other_b, other_c) = ("x:1 b:2 main:3", "x:1 c:2 main:3");
    let exact = |text| pair(text, text, Match::Exact);
    assert_eq!(pairs(&[b, other_b, other_c], &[c, other_b, other_c]), [exact(other_b), exact(other_c)]);
    let (one, other) = (chain("a:1 b:2"), chain("a:1 b:2"));
    let side = |chain, kind| [Side { chain, kind }];
    assert_eq!(align(&side(&one, "device"), &side(&other, "host")), []);
}

#[test]
fn a_class_too_large_for_a_table_still_matches_equal_lines() {
    let before: Vec<String> = (0..1500).map(|i| format!("f:1 main:{i}")).collect();
    let after: Vec<String> = (1..1502).map(|i| format!("f:1 main:{i}")).collect();
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let after: Vec<&str> = after.iter().map(String::as_str).collect();
    let found = pairs(&before, &after);
    assert_eq!(found.len(), 1500);
    assert_eq!(found.iter().filter(|p| p.2 == Match::Exact).count(), 1499);
}

proptest::proptest! {
    /// Whatever the stacks: each is in one pair at most, and as many are matched as can be by function.
    #[test]
    fn no_stack_twice(before in proptest::collection::vec((0..3u8, 0..40u8), 0..30), after in proptest::collection::vec((0..3u8, 0..40u8), 0..30)) {
        let text = |all: &[(u8, u8)]| all.iter().map(|(f, l)| format!("f{f}:1 main:{l}")).collect::<Vec<_>>();
        let (before, after) = (text(&before), text(&after));
        let of = |all: &[String]| all.iter().map(|t| chain(t)).collect::<Vec<_>>();
        let (one, other) = (of(&before), of(&after));
        fn sides(all: &[Chain]) -> Vec<Side<'_>> {
            all.iter().map(|chain| Side { chain, kind: "" }).collect()
        }
        let pairs = align(&sides(&one), &sides(&other));
        let ones: HashSet<usize> = pairs.iter().map(|p| p.before).collect();
        let others: HashSet<usize> = pairs.iter().map(|p| p.after).collect();
        proptest::prop_assert!(ones.len() == pairs.len() && others.len() == pairs.len());
        let count = |all: &[String], f: u8| all.iter().filter(|t| t.starts_with(&format!("f{f}:"))).count();
        let expected: usize = (0..3).map(|f| count(&before, f).min(count(&after, f))).sum();
        proptest::prop_assert_eq!(pairs.len(), expected);
    }
}
