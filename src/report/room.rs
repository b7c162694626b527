//! Which lines of a stack are written where there is no room for all: the Python line that asked for memory must be
//! seen, even from below thirty native frames and a framework.
//!
//! Of the room, a third at most goes to the innermost native frames (the library that allocated) and a third to the
//! innermost Python frames of installed packages; then come the user's own lines from the innermost outwards, and only
//! if these leave room, more of the others.

use super::frames::Shown;
use super::python::Whose;

/// A line of a stack, as written.
#[derive(Debug, PartialEq, Eq)]
pub enum Row<'a> {
    /// A frame.
    Frame(&'a Shown),
    /// What is left out here.
    Gap(String),
}

/// The lines to write, with room for this many frames.
pub fn rows(lines: &[Shown], room: usize) -> Vec<Row<'_>> {
    let kept = choose(lines, room);
    let mut rows = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let left_out = kept[at..].iter().take_while(|k| !**k).count();
        match left_out {
            // One frame takes no more room than saying that there is one.
            0 | 1 => {
                rows.push(Row::Frame(&lines[at]));
                at += 1;
            }
            _ => {
                rows.push(Row::Gap(gap(&lines[at..at + left_out], at + left_out == lines.len())));
                at += left_out;
            }
        }
    }
    rows
}

/// For each line whether it is written.
fn choose(lines: &[Shown], room: usize) -> Vec<bool> {
    let all = 0..lines.len();
    let native = |i: &usize| lines[*i].whose == Whose::Native;
    let user = |i: &usize| lines[*i].whose == Whose::User;
    let mut kept = vec![false; lines.len()];
    let few = room / 3;
    let asked = all.clone().find(user).unwrap_or(lines.len());
    let Some(python) = all.clone().find(|i| !native(i)) else {
        kept.iter_mut().take(room).for_each(|k| *k = true);
        return kept;
    };
    let order = (0..python.min(few))
        .chain((python..asked).filter(|i| !native(i)).take(few))
        .chain(all.clone().filter(user))
        .chain(all.clone().filter(|i| !native(i)))
        .chain(all);
    let mut left = room;
    for i in order {
        if left > 0 && !kept[i] {
            kept[i] = true;
            left -= 1;
        }
    }
    kept
}

/// What is said in place of some lines.
fn gap(lines: &[Shown], last: bool) -> String {
    let frames: usize = lines.iter().map(|l| l.count).sum();
    if last {
        return format!("... {frames} more frames");
    }
    if lines.iter().all(|l| l.whose == Whose::Native) {
        return format!("... {frames} native frames");
    }
    let mut packages: Vec<&str> = Vec::new();
    for line in lines {
        match &line.whose {
            Whose::Library(package) if packages.contains(&package.as_str()) => {}
            Whose::Library(package) => packages.push(package),
            Whose::Native | Whose::User => return format!("... {frames} frames"),
        }
    }
    match packages[..] {
        [one] => format!("... {frames} frames in {one}"),
        [one, other] => format!("... {frames} frames in {one} and {other}"),
        _ => format!("... {frames} frames in installed packages"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines by letter: `n` native, `u` the user's, `t` torch, `s` the standard library, `x` another package.
    fn lines(letters: &str) -> Vec<Shown> {
        let line = |(i, letter): (usize, char)| {
            let whose = match letter {
                'n' => Whose::Native,
                'u' => Whose::User,
                't' => Whose::Library("torch".into()),
                'x' => Whose::Library("lightning".into()),
                _ => Whose::Library("the standard library".into()),
            };
            Shown { what: format!("{letter}{i}"), place: String::new(), whose, count: 1 }
        };
        letters.chars().enumerate().map(line).collect()
    }

    fn written(letters: &str, room: usize) -> String {
        let lines = lines(letters);
        let text = |row: &Row| match row {
            Row::Frame(frame) => frame.what.clone(),
            Row::Gap(text) => text.clone(),
        };
        rows(&lines, room).iter().map(text).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn what_fits_is_written() {
        assert_eq!(written("nntu", 6), "n0 | n1 | t2 | u3");
        assert_eq!(written("nnnnnn", 5), "n0 | n1 | n2 | n3 | n4 | n5");
        assert_eq!(written("", 6), "");
        assert_eq!(written("nnuu", usize::MAX), "n0 | n1 | u2 | u3");
    }

    #[test]
    fn native_stacks_are_cut_at_their_end() {
        assert_eq!(written("nnnnnnnn", 5), "n0 | n1 | n2 | n3 | n4 | ... 3 more frames");
    }

    #[test]
    fn the_users_line_is_seen_below_native_frames_and_a_framework() {
        let far = "nnnnnnnnnn".to_string() + "tttttttt" + "uuuu";
        let seen = "n0 | n1 | ... 8 native frames | t10 | t11 | ... 6 frames in torch | u18 | u19 | ... 2 more frames";
        assert_eq!(written(&far, 6), seen);
        assert_eq!(written(&far, 1), "... 18 frames | u18 | ... 3 more frames");
    }

    #[test]
    fn frames_between_the_users_give_way_to_them() {
        assert_eq!(
            written("nnnnttuttuttuss", 6),
            "n0 | n1 | ... 2 native frames | t4 | t5 | u6 | ... 2 frames in torch | u9 | ... 5 more frames"
        );
        assert_eq!(
            written("uttxxuttxsunnuntu", 6),
            "u0 | t1 | ... 3 frames in torch and lightning | u5 | ... 4 frames in installed packages | u10 | \
             ... 2 native frames | u13 | ... 2 frames | u16"
        );
    }

    #[test]
    fn without_a_line_of_the_users_the_rest_is_python() {
        assert_eq!(
            written("nnnnntttttttt", 6),
            "n0 | n1 | ... 3 native frames | t5 | t6 | t7 | t8 | ... 4 more frames"
        );
    }

    #[test]
    fn joined_lines_count_as_what_they_are() {
        let mut lines = lines("nnnnu");
        lines[2].count = 7;
        let seen = rows(&lines, 1);
        assert_eq!(seen[0], Row::Gap("... 10 native frames".into()));
        assert_eq!(seen[1], Row::Frame(&lines[4]));
    }
}
