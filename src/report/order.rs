//! Events in the order of time. A history is in order within a thread only; the writer takes the threads in turn, so an
//! event is never further from its place than what all threads' rings hold.

use vramscope_core::event::Event;

/// Events kept back, to let earlier ones of other threads pass.
const WINDOW: usize = 1 << 18;

/// Puts events in order as they stream through.
#[derive(Debug, Default)]
pub struct Order {
    held: Vec<(u32, Event)>,
    window: usize,
}

impl Order {
    /// An order that looks far enough ahead for any history that we write.
    pub fn new() -> Order {
        Order::with_window(WINDOW)
    }

    /// An order that looks this many events ahead.
    pub fn with_window(window: usize) -> Order {
        Order { held: Vec::new(), window }
    }

    /// Takes an event of a thread, and hands out those whose time has come.
    pub fn push(&mut self, thread: u32, event: Event, out: &mut impl FnMut(u32, &Event)) {
        self.held.push((thread, event));
        if self.held.len() >= 2 * self.window.max(1) {
            self.sort();
            for (thread, event) in self.held.drain(..self.window.max(1)) {
                out(thread, &event);
            }
        }
    }

    /// Hands out the rest.
    pub fn finish(&mut self, out: &mut impl FnMut(u32, &Event)) {
        self.sort();
        for (thread, event) in self.held.drain(..) {
            out(thread, &event);
        }
    }

    fn sort(&mut self) {
        // Stable: events of one thread with the same time stay as they were. Quick on runs that are in order.
        self.held.sort_by_key(|(_, e)| e.time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_were_written_in_turn_come_out_by_time() {
        let mut order = Order::with_window(8);
        let mut seen = Vec::new();
        let mut out = |thread: u32, e: &Event| seen.push((e.time, thread));
        for round in 0..10u64 {
            for thread in 0..3u32 {
                for i in 0..2 {
                    let time = round * 10 + i * 3 + u64::from(thread);
                    order.push(thread, Event { time, ..Event::default() }, &mut out);
                }
            }
        }
        order.finish(&mut out);
        assert_eq!(seen.len(), 60);
        assert!(seen.is_sorted());
    }
}
