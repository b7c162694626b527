//! Events in the order of time. A history is in order within a thread only; the writer takes the threads in turn, so an
//! event is never further from its place than what all threads' rings hold.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use vramscope_core::event::Event;
use vramscope_core::spread::Spread;

/// Events kept back, to let earlier ones of other threads pass.
const WINDOW: usize = 1 << 18;

/// Puts events in order as they stream through.
///
/// The events of a thread come in order, so they need no sorting, only merging: a queue a thread, and the threads in a
/// heap by the event that each has first.
#[derive(Debug, Default)]
pub struct Order {
    queues: Vec<Queue>,
    /// Where the queue of a thread is.
    by_thread: HashMap<u32, usize, Spread>,
    held: usize,
    taken: u64,
    window: usize,
}

#[derive(Debug)]
struct Queue {
    thread: u32,
    events: VecDeque<Held>,
    /// Not as it should be: the thread's time went back.
    unsorted: bool,
}

/// An event, and how many were taken before it: events with the same time stay as they were.
#[derive(Debug)]
struct Held {
    number: u64,
    event: Event,
}

impl Held {
    fn key(&self) -> (u64, u64) {
        (self.event.time, self.number)
    }
}

impl Order {
    /// An order that looks far enough ahead for any history that we write.
    pub fn new() -> Order {
        Order::with_window(WINDOW)
    }

    /// An order that looks this many events ahead.
    pub fn with_window(window: usize) -> Order {
        Order { window: window.max(1), ..Order::default() }
    }

    /// Takes an event of a thread, and hands out those whose time has come.
    pub fn push(&mut self, thread: u32, event: Event, out: &mut impl FnMut(u32, &Event)) {
        let queues = &mut self.queues;
        let queue = *self.by_thread.entry(thread).or_insert_with(|| {
            queues.push(Queue { thread, events: VecDeque::new(), unsorted: false });
            queues.len() - 1
        });
        let held = Held { number: self.taken, event };
        let queue = &mut self.queues[queue];
        queue.unsorted |= queue.events.back().is_some_and(|last| last.event.time > event.time);
        queue.events.push_back(held);
        self.taken += 1;
        self.held += 1;
        if self.held >= 2 * self.window {
            self.hand_out(self.window, out);
        }
    }

    /// Hands out the rest.
    pub fn finish(&mut self, out: &mut impl FnMut(u32, &Event)) {
        self.hand_out(self.held, out);
    }

    fn hand_out(&mut self, mut count: usize, out: &mut impl FnMut(u32, &Event)) {
        self.held -= count;
        for queue in self.queues.iter_mut().filter(|queue| queue.unsorted) {
            // Stable, and what is sorted already is left in peace.
            queue.events.make_contiguous().sort_by_key(|held| held.event.time);
            queue.unsorted = false;
        }
        let first = |(i, queue): (usize, &Queue)| Some(Reverse((queue.events.front()?.key(), i)));
        let mut heads: BinaryHeap<_> = self.queues.iter().enumerate().filter_map(first).collect();
        while let Some(Reverse((_, i))) = heads.pop() {
            let limit = heads.peek().map_or((u64::MAX, u64::MAX), |Reverse((key, _))| *key);
            let Queue { thread, events, .. } = &mut self.queues[i];
            // All that this thread has before another's next.
            while count > 0
                && events.front().is_some_and(|held| held.key() <= limit)
                && let Some(held) = events.pop_front()
            {
                out(*thread, &held.event);
                count -= 1;
            }
            if count == 0 {
                return;
            }
            if let Some(held) = events.front() {
                heads.push(Reverse((held.key(), i)));
            }
        }
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

    #[test]
    fn it_is_a_stable_sort_of_what_is_held() {
        let mut seed = 1u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for (window, threads, back) in [(1, 1, 3), (8, 3, 20), (50, 9, 9), (50, 2, 400)] {
            let events: Vec<(u32, u64)> =
                (0..1000).map(|i| (random(threads) as u32, (i + 500u64).saturating_sub(random(back)) / 2)).collect();
            // Events in the order in which they came, told apart by their address.
            let (mut held, mut expected) = (Vec::new(), Vec::new());
            for (address, (thread, time)) in events.iter().enumerate() {
                held.push((*time, address as u64, *thread));
                if held.len() >= 2 * window {
                    held.sort_by_key(|h: &(u64, u64, u32)| h.0);
                    expected.extend(held.drain(..window));
                }
            }
            held.sort_by_key(|h| h.0);
            expected.extend(held);
            let (mut order, mut seen) = (Order::with_window(window), Vec::new());
            let mut out = |thread: u32, e: &Event| seen.push((e.time, e.address, thread));
            for (address, (thread, time)) in events.iter().enumerate() {
                let event = Event { time: *time, address: address as u64, ..Event::default() };
                order.push(*thread, event, &mut out);
            }
            order.finish(&mut out);
            assert_eq!(seen, expected, "window {window}, {threads} threads");
        }
    }
}
