//! The rows of what a history defines before its events: the process, its devices, its stacks.

use anyhow::Result;
use serde_json::json;

use super::fill::Filler;
use super::{Cell, text};

impl Filler<'_> {
    /// The rows of processes, devices and stacks.
    pub(super) fn definitions(&mut self) -> Result<()> {
        let source = self.source;
        let h = &source.history;
        let (header, footer) = (&h.header, h.footer.as_ref());
        let [arguments, rank, settings] =
            [json!(header.arguments), json!(header.rank), json!(header.settings)].map(|j| j.to_string());
        self.row(
            "processes",
            &[
                text(&header.host),
                Cell::int(header.pid.into()),
                Cell::int(header.parent.into()),
                text(&header.program),
                text(&arguments),
                text(&header.directory),
                self.wall(0),
                self.wall(source.end),
                Cell::int(h.events),
                match footer.is_some() || h.exited {
                    true => Cell::int(h.lost()),
                    false => Cell::None,
                },
                footer.map_or(Cell::None, |f| text(&f.end)),
                footer.and_then(|f| f.status).map_or(Cell::None, |s| Cell::Int(s.into())),
                text(&header.vramscope),
                Cell::some(header.driver.into()),
                Cell::some(header.granularity),
                text(&rank),
                text(&settings),
            ],
        )?;
        for d in h.devices.values() {
            self.row("devices", &[Cell::int(d.device.into()), text(&d.name), text(&d.uuid), Cell::int(d.bytes)])?;
        }
        let mut stacks: Vec<u32> = h.stacks.keys().copied().collect();
        stacks.sort_unstable();
        stacks.into_iter().try_for_each(|stack| self.stack(stack))
    }

    fn stack(&mut self, stack: u32) -> Result<()> {
        let source = self.source;
        let mut shown = source.frames(stack).into_iter().peekable();
        for (i, f) in source.every_frame(stack).iter().enumerate() {
            let is_shown = shown.next_if_eq(f).is_some();
            self.row(
                "stacks",
                &[
                    Cell::int(stack.into()),
                    Cell::int(i as u64),
                    text(&f.function),
                    text(&f.file),
                    Cell::some(f.line.into()),
                    text(&f.module),
                    if f.python { Cell::None } else { Cell::int(f.offset) },
                    Cell::Bool(f.python),
                    Cell::Bool(f.inlined),
                    Cell::Bool(f.guessed),
                    Cell::Bool(is_shown),
                ],
            )?;
        }
        Ok(())
    }
}
