//! Pauses of recording that the program asked for: what the history does not have, although nothing was lost.

use vramscope_core::event::{Event, EventKind};

use super::text::{plural, time};

/// When recording was paused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses {
    count: u64,
    first: u64,
    last: u64,
    since: u64,
    /// All of them together.
    took: u64,
    on: bool,
}

impl Pauses {
    /// Looks at an event, also of those that a part opens with.
    pub fn play(&mut self, e: &Event) {
        match e.kind {
            EventKind::Pause if !self.on => {
                self.first = if self.count == 0 { e.time } else { self.first };
                (self.count, self.since, self.on) = (self.count + 1, e.time, true);
            }
            EventKind::Resume => {
                // It may have begun in a part that was dropped.
                self.took += e.time.saturating_sub(if self.on || self.count == 0 { self.since } else { e.time });
                (self.count, self.last, self.on) = (self.count.max(1), e.time, false);
            }
            _ => {}
        }
    }

    /// Whether there was any.
    pub fn any(&self) -> bool {
        self.count > 0
    }

    /// What is not known because of them.
    pub fn why(&self) -> Option<String> {
        let times = if self.count > 1 { format!("{}, ", plural(self.count, "time")) } else { String::new() };
        let to = if self.on { "on".to_string() } else { format!("to {} ({})", time(self.last), time(self.took)) };
        self.any().then(|| {
            let first = time(self.first);
            format!("recording was paused {times}from {first} {to}: what happened then is unknown (tensors, call stacks, marks, regions)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_and_how_often() {
        let mut p = Pauses::default();
        let mut play = |kind, ms: u64| {
            p.play(&Event { kind, time: ms * 1_000_000, ..Event::default() });
            p.why().unwrap_or_default().split(':').next().map(str::to_owned).unwrap_or_default()
        };
        assert_eq!(play(EventKind::Alloc, 1), "");
        assert_eq!(play(EventKind::Pause, 2), "recording was paused from 2.00 ms on");
        // One more says nothing new.
        assert_eq!(play(EventKind::Pause, 3), "recording was paused from 2.00 ms on");
        assert_eq!(play(EventKind::Resume, 4), "recording was paused from 2.00 ms to 4.00 ms (2.00 ms)");
        assert_eq!(play(EventKind::Pause, 5), "recording was paused 2 times, from 2.00 ms on");
        assert_eq!(play(EventKind::Resume, 6), "recording was paused 2 times, from 2.00 ms to 6.00 ms (3.00 ms)");
        let mut p = Pauses::default();
        p.play(&Event { kind: EventKind::Resume, time: 7_000_000, ..Event::default() });
        assert!(
            p.why().is_some_and(|w| w.starts_with("recording was paused from 0 s to 7.00 ms (7.00 ms)")),
            "{:?}",
            p.why()
        );
    }
}
