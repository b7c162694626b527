//! The names of the call stacks that the page shows, each frame once.

use std::collections::HashMap;

use serde::Serialize;

use super::holders::Group;
use crate::report::frames::{self, Shown};
use crate::report::python::Whose;
use crate::report::{History, text::clean};
use crate::symbols::{Names, shorten};

/// Stacks that get names: those that held most.
const MOST: usize = 4_000;

/// Characters of a function's name: what is longer is C++ templates.
const WIDTH: usize = 120;

/// A frame: function, place, and whose it is (`n` native, `u` the user's, else the package).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Frame(pub String, pub String, pub String);

/// A stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stack {
    /// Places in [`Stacks::frames`], innermost first.
    pub frames: Vec<u32>,
    /// The frame that says most: the innermost line of the user's own, else of Python, else of all.
    pub line: Option<u32>,
    /// The library that the user's line called.
    pub library: String,
}

/// Stacks with names.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// All frames.
    pub frames: Vec<Frame>,
    /// All stacks; the first is that of which nothing is known.
    pub stacks: Vec<Stack>,
    /// Where a stack of the history is among them.
    places: HashMap<u32, u32>,
}

impl Stacks {
    /// The stacks of some groups.
    pub fn of(history: &History, names: &mut Names, groups: &[Group]) -> Stacks {
        let mut most: HashMap<u32, u64> = HashMap::new();
        for g in groups.iter().filter(|g| g.key.stack != 0) {
            let most = most.entry(g.key.stack).or_default();
            *most = (*most).max(g.most);
        }
        let mut wanted: Vec<(u32, u64)> = most.into_iter().collect();
        wanted.sort_by_key(|(stack, most)| (std::cmp::Reverse(*most), *stack));
        wanted.truncate(MOST);
        names.know(&history.symbols);
        let addresses = frames::addresses(history, wanted.iter().map(|(stack, _)| *stack));
        names.resolve(&history.modules, addresses);
        let mut s = Stacks { stacks: vec![Stack::default()], ..Stacks::default() };
        let (mut known, mut same): (HashMap<Frame, u32>, HashMap<Vec<u32>, u32>) = (HashMap::new(), HashMap::new());
        for (stack, _) in wanted {
            let lines = frames::shown(history, names, stack).lines(false);
            let places: Vec<u32> = lines.iter().map(|l| s.frame(&mut known, l)).collect();
            // What looks the same is the same to who reads it.
            let at = *same.entry(places.clone()).or_insert_with(|| {
                let line = line_of(&lines).map(|i| places[i]);
                s.stacks.push(Stack { frames: places, line, library: library_of(&lines) });
                s.stacks.len() as u32 - 1
            });
            s.places.insert(stack, at);
        }
        s
    }

    /// The place of a stack of the history.
    pub fn place(&self, stack: u32) -> u32 {
        self.places.get(&stack).copied().unwrap_or(0)
    }

    fn frame(&mut self, known: &mut HashMap<Frame, u32>, line: &Shown) -> u32 {
        let whose = match &line.whose {
            Whose::Native => "n".to_string(),
            Whose::User => "u".to_string(),
            Whose::Library(package) => clean(package),
        };
        let frame = Frame(shorten::shorten(&clean(&line.what), WIDTH), clean(&line.place), whose);
        *known.entry(frame.clone()).or_insert_with(|| {
            self.frames.push(frame);
            self.frames.len() as u32 - 1
        })
    }
}

fn line_of(lines: &[Shown]) -> Option<usize> {
    let first = |is: &dyn Fn(&Shown) -> bool| lines.iter().position(is);
    first(&|l| l.whose == Whose::User)
        .or_else(|| first(&|l| l.whose != Whose::Native))
        // Without Python: the innermost are the libraries that allocate; the first with a file and line is the program's.
        .or_else(|| first(&|l| l.place.contains(':') && !inner(&l.what)))
        // What autograd's threads are at.
        .or_else(|| first(&|l| l.what.contains("Backward") && !inner(&l.what)))
        .or_else(|| first(&|l| !inner(&l.what)))
        .or_else(|| (!lines.is_empty()).then_some(0))
}

/// The way from what asks for memory to the driver: PyTorch's allocator, CUDA's runtime (the static one has names of its own).
fn inner(function: &str) -> bool {
    const INNER: [&str; 8] = [
        "c10::",
        "at::detail::",
        "at::empty",
        "at::native::empty",
        "at::_ops::empty",
        "libcudart",
        "cudaMalloc",
        "cudaHostAlloc",
    ];
    INNER.iter().any(|f| function.starts_with(f))
}

fn library_of(lines: &[Shown]) -> String {
    let user = lines.iter().position(|l| l.whose == Whose::User).unwrap_or(lines.len());
    let package = lines[..user].iter().rev().find_map(|l| match &l.whose {
        Whose::Library(package) => Some(clean(package)),
        _ => None,
    });
    package.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::holders::Key;
    use crate::html::live::Kind;
    use crate::report::testing::{names, trained};

    #[test]
    fn the_users_line_and_the_library_it_called() {
        let (script, stack) = trained();
        let key = Key { device: 0, stack, caller: 0, kind: Kind::Tensor, thread: 1, region: 0 };
        let group = Group { key, bytes: 1, count: 1, most: 1, ever: 1, times: 1 };
        let stacks = Stacks::of(&script.history(), &mut names(), &[group]);
        let place = stacks.place(stack) as usize;
        let line = &stacks.frames[stacks.stacks[place].line.unwrap() as usize];
        assert_eq!(line, &Frame("Net.forward".into(), "train.py:20".into(), "u".into()));
        assert_eq!((stacks.stacks[place].library.as_str(), stacks.stacks[place].frames.len()), ("torch", 8));
        assert_eq!((stacks.place(99), &stacks.stacks[0]), (0, &Stack::default()));
    }
}
