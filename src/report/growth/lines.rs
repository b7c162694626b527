//! The Python lines of a stack as numbers of places, the outermost first: the user's own, or where there are none,
//! anybody's. Enough to tell which line of a loop something was made for.

use std::collections::HashMap;

use crate::report::history::{At, History};
use crate::report::python::{self, Whose};

/// The lines of stacks, found once. Places in one line of a file are one.
pub struct Lines<'a> {
    history: &'a History,
    /// By number of the place: the first place of the same line, and whether it is the user's.
    places: HashMap<u32, (u32, bool)>,
    first: HashMap<(&'a str, &'a str, u32), u32>,
    known: HashMap<u32, Vec<u32>>,
}

impl<'a> Lines<'a> {
    /// Lines of a history's stacks.
    pub fn new(history: &'a History) -> Lines<'a> {
        Lines { history, places: HashMap::new(), first: HashMap::new(), known: HashMap::new() }
    }

    /// The places of a stack.
    pub fn of(&mut self, stack: u32) -> &[u32] {
        if !self.known.contains_key(&stack) {
            let places = self.find(stack);
            self.known.insert(stack, places);
        }
        &self.known[&stack]
    }

    /// All Python lines of a stack, the outermost first, and whether each is the user's.
    pub fn path(&mut self, stack: u32) -> Vec<(u32, bool)> {
        let frames = self.history.stacks.get(&stack).into_iter().flatten().rev();
        let places = frames.filter_map(|f| if let At::Python(place) = f { Some(*place) } else { None });
        places.map(|place| self.line(place)).collect()
    }

    /// How many calls of PyTorch's modules a path goes through.
    pub fn modules(&self, path: &[(u32, bool)]) -> usize {
        let called =
            |line: &(u32, bool)| self.history.python.get(&line.0).is_some_and(|p| p.function.ends_with("_call_impl"));
        path.iter().filter(|line| called(line)).count()
    }

    fn find(&mut self, stack: u32) -> Vec<u32> {
        let all = self.path(stack);
        let users: Vec<u32> = all.iter().filter(|(_, user)| *user).map(|(line, _)| *line).collect();
        if users.is_empty() { all.into_iter().map(|(line, _)| line).collect() } else { users }
    }

    fn line(&mut self, place: u32) -> (u32, bool) {
        if let Some(known) = self.places.get(&place) {
            return *known;
        }
        let known = match self.history.python.get(&place) {
            Some(p) => {
                let line = *self.first.entry((&p.file, &p.function, p.line)).or_insert(place);
                (line, python::whose(&p.file) == Whose::User)
            }
            None => (place, false),
        };
        self.places.insert(place, known);
        known
    }

    /// How many lines, from the outermost on, all of these have in common.
    pub fn common(&mut self, stacks: impl IntoIterator<Item = u32>) -> usize {
        let mut common: Option<Vec<u32>> = None;
        for stack in stacks {
            let lines = self.of(stack);
            if lines.is_empty() {
                continue;
            }
            common = Some(match common {
                None => lines.to_vec(),
                Some(c) => c.iter().zip(lines).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect(),
            });
        }
        common.map_or(0, |c| c.len())
    }
}

/// The line at a depth, or the innermost if it is not so deep.
pub fn at(lines: &[u32], depth: usize) -> Option<u32> {
    lines.get(depth).or(lines.last()).copied()
}
