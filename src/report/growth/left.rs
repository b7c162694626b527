//! What was there when a program ended that does free its memory.

use vramscope_core::event::Memory;

use super::Look;
use super::shape::Shape;
use super::suspect::{Kind, Part, Suspect};

impl Look<'_> {
    /// What a program left behind that does free its memory and ended in good order.
    pub(super) fn unfreed(&mut self, suspected: &[u32]) -> Vec<Suspect> {
        let ended = self.history.exited || self.history.footer.as_ref().is_some_and(|f| f.end == "exit");
        if !ended || self.facts.ledger.has_tensors() || self.history.killed() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (i, s) in self.facts.sites.all.iter().enumerate() {
            let i = i as u32;
            let own = !suspected.contains(&i) && s.memory != Memory::Imported && !self.is_librarys(s.caller);
            if s.live.0 == 0 || !own || !self.lines.of(s.stack).is_empty() {
                continue;
            }
            let part = Part { site: i, bytes: 0.0, count: 0.0, live: s.live, exact: true, since: s.first.0 };
            found.push(Suspect::of(Kind::NeverFreed, Shape::Constant, vec![part], 0.0, false));
        }
        found.sort_by_key(|s| std::cmp::Reverse(s.live().1));
        found
    }

    /// Whether a module keeps memory of its own, as long as the process lives.
    fn is_librarys(&self, module: u32) -> bool {
        const NAMES: [&str; 7] = ["libcu", "libnccl", "libnv", "libc10", "libtorch", "libnpp", "xla"];
        let name = self.history.module_name(module);
        module != 0 && NAMES.iter().any(|n| name.starts_with(n))
    }
}
