//! What a number means stands before its first use: modules, texts, places in Python, stacks, contexts. All but the last
//! stand once.

use std::collections::HashSet;

use vramscope_core::event::{Event, EventKind};
use vramscope_core::trace::{Frame, Line};

use super::findings::{At, Findings, Kind};
use super::numbers::Numbers;

/// Numbers of one kind.
#[derive(Debug, Default)]
struct Known {
    all: Numbers,
    /// In this part: a later one says everything again.
    here: Numbers,
}

impl Known {
    fn define(&mut self, what: &str, number: u32, at: At, findings: &mut Findings) {
        self.all.insert(number.into());
        if !self.here.insert(number.into()) {
            findings.add(Kind::DefinedTwice, at, || format!("{what} {number}"));
        }
    }

    fn use_of(&self, what: &str, number: u64, at: At, findings: &mut Findings) {
        if number != 0 && !self.all.contains(number) {
            findings.add(Kind::Undefined, at, || format!("{what} {number}"));
        }
    }
}

/// What numbers mean something.
#[derive(Debug, Default)]
pub struct Definitions {
    part: usize,
    modules: Known,
    texts: Known,
    places: Known,
    stacks: Known,
    contexts: HashSet<u16>,
    /// Stacks, for the end.
    pub count: u64,
}

impl Definitions {
    /// Looks at a line that is no event.
    pub fn line(&mut self, line: &Line, at: At, findings: &mut Findings) {
        if self.part != at.part {
            self.part = at.part;
            for known in [&mut self.modules, &mut self.texts, &mut self.places, &mut self.stacks] {
                known.here.clear();
            }
        }
        match line {
            Line::Module(m) => self.modules.define("module", m.module, at, findings),
            Line::Text(t) => self.texts.define("text", t.text, at, findings),
            Line::Python(p) => self.places.define("python", p.python, at, findings),
            Line::Symbol(s) => self.modules.use_of("module", s.module.into(), at, findings),
            Line::Stack(stack) => {
                self.count += 1;
                self.stacks.define("stack", stack.stack, at, findings);
                for frame in &stack.frames {
                    match frame {
                        Frame::Native(module, _) | Frame::Guessed(module, _, _) => {
                            self.modules.use_of("module", (*module).into(), at, findings);
                        }
                        Frame::Python(place) => self.places.use_of("python", (*place).into(), at, findings),
                        Frame::Other(_) => {}
                    }
                }
            }
            Line::Oom(oom) => {
                self.stacks.use_of("stack", oom.stack.into(), at, findings);
                for holder in &oom.holders {
                    self.stacks.use_of("stack", holder.stack.into(), at, findings);
                    self.modules.use_of("module", holder.caller.into(), at, findings);
                }
                oom.libraries.iter().for_each(|l| self.modules.use_of("module", l.module.into(), at, findings));
            }
            Line::Live(_, event) => self.event(event, at, findings),
            _ => {}
        }
    }

    /// Looks at an event.
    pub fn event(&mut self, e: &Event, at: At, findings: &mut Findings) {
        self.stacks.use_of("stack", e.stack.into(), at, findings);
        self.modules.use_of("module", e.caller.into(), at, findings);
        match e.kind {
            EventKind::Context => drop(self.contexts.insert(e.context)),
            EventKind::Mark | EventKind::RegionBegin => self.texts.use_of("text", e.extra[0], at, findings),
            // Said once of each.
            _ if e.context != 0 && self.contexts.insert(e.context) => {
                findings.add(Kind::Undefined, at, || format!("context {}", e.context));
            }
            _ => {}
        }
    }
}
