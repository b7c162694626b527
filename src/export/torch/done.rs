//! What an export to PyTorch's snapshot wrote, and what a person should know of it.

use crate::report::text::count;

/// What was written, in numbers.
#[derive(Debug, Default)]
pub struct Done {
    /// Entries of the traces.
    pub entries: u64,
    /// What gave way.
    pub replaced: u64,
    /// Blocks without a place in the address space.
    pub homeless: u64,
}

impl Done {
    /// What a person should know.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.entries > 600_000 {
            notes.push(format!(
                "{} entries: the viewer's Allocator State History shows about 600,000; --from and --to choose a part",
                count(self.entries)
            ));
        }
        if self.replaced > 0 {
            let n = count(self.replaced);
            notes.push(format!("{n} blocks or segments overlapped later ones and end where those begin"));
        }
        if self.homeless > 0 {
            let n = count(self.homeless);
            notes.push(format!(
                "{n} allocations have no address (physical memory that is not mapped, arrays): left out"
            ));
        }
        notes
    }
}
