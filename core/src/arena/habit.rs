//! Where a stream's requests went the last time round. A training loop, or a server, asks for the same sizes in the same order
//! again and again. If each request then goes where it went before, every round finds memory laid out as the last one left it:
//! blocks that had to be stitched together fit again, and nothing is mapped any more. Best fit alone never gets there: what
//! lives from one round into the next lies elsewhere each time, and moves all that comes after it. (GPT-2's training on an
//! H200: 180 to 400 chunks were mapped again in every step, at 23 µs each; with this none from the sixth step on.)
//!
//! A round is found by the sizes of the last [`CONTEXT`] requests. From there on request and record are compared one by one.
//! It is a guess: what is not free there, or not for this stream, is looked for as ever.
//!
//! Sizes may repeat while frees do not. Then much is never free again where it was, and to put the rest there only keeps best fit
//! from its work: up to 17 times as many chunks are mapped. So where guesses stay wrong, the stream does without for a while.

use super::stream::Numbers;
use std::collections::VecDeque;

/// So many sizes in a row tell where in a round a stream is. With fewer, layers that look alike are taken for each other more
/// often; with more, a round is recognised later.
const CONTEXT: usize = 32;
/// The first and the most requests that are remembered: 24 bytes each.
const LEAST: usize = 256;
const MOST: usize = 1 << 16;
/// Streams that are remembered; of more, those that asked last.
const STREAMS: usize = 64;
/// Guesses are judged by so many rounds, and at least by so many guesses. A loop that settles has three of four right by then.
const ROUNDS: u64 = 2;
const TRIAL: u64 = 1024;
/// So many bad trials in a row end it, for so many times as long as one; and for twice as long each further time, so often.
const TRIALS: u32 = 4;
const REST: u64 = 16;
const LONGER: u32 = 2;

/// Of one stream.
#[derive(Default)]
struct Habit {
    /// Bytes and addresses, by number modulo its length, a power of two.
    requests: Vec<(u64, u64)>,
    /// The requests that followed a context, by its hash; a later one takes an earlier one's place.
    after: Vec<u32>,
    /// The number of the next request.
    next: u64,
    /// The request of an earlier round that the next one is likely to be like.
    like: Option<u64>,
    /// Of the last [`CONTEXT`] sizes.
    hash: u64,
    /// The longest round that was found.
    longest: u64,
    trial: Trial,
}

/// Whether guesses are worth it.
#[derive(Default)]
struct Trial {
    /// Guesses; those that were right.
    tried: u64,
    right: u64,
    /// Bad trials in a row.
    bad: u32,
    /// How much longer the next rest is, as a shift; the request that ends the last one.
    rests: u32,
    until: u64,
}

impl Trial {
    /// After a guess for a request, in rounds of so many.
    fn judge(&mut self, request: u64, round: u64, right: bool) {
        self.tried += 1;
        self.right += u64::from(right);
        let trial = (ROUNDS * round).clamp(TRIAL, MOST as u64);
        if self.tried < trial {
            return;
        }
        let good = self.right * 4 >= self.tried * 3;
        (self.tried, self.right) = (0, 0);
        self.bad = if good { 0 } else { self.bad + 1 };
        if good {
            self.rests = 0;
        } else if self.bad == TRIALS {
            self.until = request + ((trial * REST) << self.rests);
            (self.bad, self.rests) = (0, LONGER.min(self.rests + 1));
        }
    }
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a size counts for when it leaves the context.
const LEAVING: u64 = {
    let (mut product, mut i) = (1u64, 0);
    while i < CONTEXT {
        product = product.wrapping_mul(FACTOR);
        i += 1;
    }
    product
};

impl Habit {
    /// A request that is remembered still.
    fn request(&self, n: u64) -> Option<(u64, u64)> {
        let known = n < self.next && self.next - n <= self.requests.len() as u64;
        if known { self.requests.get(n as usize & (self.requests.len() - 1)).copied() } else { None }
    }

    /// Where the request that this one is like went.
    fn before(&self, bytes: u64) -> Option<u64> {
        self.request(self.like?).filter(|r| r.0 == bytes).map(|r| r.1)
    }

    fn guess(&self, bytes: u64) -> Option<u64> {
        if self.next < self.trial.until { None } else { self.before(bytes) }
    }

    /// How long a round is.
    fn length(&self) -> u64 {
        self.like.map_or(0, |like| self.next - like)
    }

    fn learn(&mut self, bytes: u64, address: u64) {
        if let Some(guess) = self.guess(bytes) {
            self.trial.judge(self.next, self.length(), guess == address);
        }
        let follows = self.before(bytes).is_some();
        if self.next == self.requests.len() as u64 && self.requests.len() < MOST {
            self.grow();
        }
        let leaving = self.next.checked_sub(CONTEXT as u64).and_then(|n| self.request(n)).map_or(0, |r| r.0);
        self.roll(bytes, leaving);
        let at = self.next as usize & (self.requests.len() - 1);
        self.requests[at] = (bytes, address);
        self.next += 1;
        if follows {
            self.like = self.like.map(|n| n + 1);
        } else {
            self.like = self.recognised();
            self.look_at_length();
        }
        let place = self.place();
        self.after[place] = self.next as u32;
    }

    /// A round may be longer than thought: its layers were taken for each other. Then what was wrong so far counts no more.
    fn look_at_length(&mut self) {
        let length = self.length();
        if length > self.longest + self.longest / 2 {
            self.longest = length;
            self.trial = Trial::default();
        }
    }

    /// A size comes into the context, and one leaves it.
    fn roll(&mut self, bytes: u64, leaving: u64) {
        self.hash = self.hash.wrapping_mul(FACTOR).wrapping_add(bytes).wrapping_sub(leaving.wrapping_mul(LEAVING));
    }

    /// Where a context is noted.
    fn place(&self) -> usize {
        (self.hash.wrapping_mul(FACTOR) >> 40) as usize & (self.after.len() - 1)
    }

    /// The request that came after the last sizes when they came before.
    fn recognised(&self) -> Option<u64> {
        // The low half of its number.
        let back = (self.next as u32).wrapping_sub(self.after[self.place()]);
        let then = self.next.checked_sub(u64::from(back)).filter(|_| back > 0)?;
        let size = |n: u64| self.request(n).map(|r| r.0);
        let same = |i| then >= i && self.next >= i && size(then - i).is_some() && size(then - i) == size(self.next - i);
        (1..=CONTEXT as u64).all(same).then_some(then)
    }

    /// Room for twice as many.
    fn grow(&mut self) {
        let room = (self.requests.len() * 2).max(LEAST);
        self.requests.resize(room, (0, 0));
        self.after = vec![0; room];
        // Numbered from 0, as long as it grows.
        self.hash = 0;
        for n in 0..self.next as usize {
            let leaving = n.checked_sub(CONTEXT).map_or(0, |n| self.requests[n].0);
            self.roll(self.requests[n].0, leaving);
            let place = self.place();
            self.after[place] = n as u32 + 1;
        }
    }
}

/// Of all streams.
#[derive(Default)]
pub struct Habits {
    of: Numbers<u64, Habit>,
    /// Those that asked last come last.
    order: VecDeque<u64>,
}

impl Habits {
    /// Where a request of the stream should go.
    pub fn guess(&self, stream: u64, bytes: u64) -> Option<u64> {
        self.of.get(&stream)?.guess(bytes)
    }

    /// Where it went.
    pub fn learn(&mut self, stream: u64, bytes: u64, address: u64) {
        if self.order.back() != Some(&stream) {
            self.order.retain(|s| *s != stream);
            self.order.push_back(stream);
            if self.order.len() > STREAMS
                && let Some(old) = self.order.pop_front()
            {
                self.of.remove(&old);
            }
        }
        self.of.entry(stream).or_default().learn(bytes, address);
    }

    /// The stream has ended.
    pub fn forget(&mut self, stream: u64) {
        self.of.remove(&stream);
        self.order.retain(|s| *s != stream);
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::fold;
    use super::*;

    /// How many of a round's requests are guessed.
    fn guessed(habits: &mut Habits, stream: u64, round: &[(u64, u64)]) -> usize {
        let mut right = 0;
        for (bytes, address) in round {
            right += usize::from(habits.guess(stream, *bytes) == Some(*address));
            habits.learn(stream, *bytes, *address);
        }
        right
    }

    fn round(n: u64, seed: u64) -> Vec<(u64, u64)> {
        let size = |i: u64| 1 + (fold(i + 1_000_000 * seed) >> 58);
        (0..n).map(|i| (size(i) << 16, (seed << 40) + (i << 24))).collect()
    }

    #[test]
    fn a_round_is_recognised() {
        for n in [40, 500, 5_000, 20_000] {
            let mut habits = Habits::default();
            let round = round(n, 1);
            guessed(&mut habits, 7, &round);
            let second = guessed(&mut habits, 7, &round);
            assert!(second + 2 * CONTEXT >= round.len() * 9 / 10, "{second} of {n}");
            for _ in 0..5 {
                assert_eq!(guessed(&mut habits, 7, &round), round.len());
            }
        }
    }

    /// Layers that look alike are taken for each other at first, but their end tells.
    #[test]
    fn layers_alike() {
        let mut habits = Habits::default();
        let layer = round(50, 1);
        let mut all = round(60, 2);
        all.extend((0..24).flat_map(|l| layer.iter().map(move |(bytes, a)| (*bytes, a + (l << 32)))));
        all.extend(round(60, 3));
        guessed(&mut habits, 7, &all);
        guessed(&mut habits, 7, &all);
        assert_eq!(guessed(&mut habits, 7, &all), all.len());
    }

    /// Rounds of several kinds, and something between them.
    #[test]
    fn rounds_that_alternate() {
        let mut habits = Habits::default();
        let (a, b, other) = (round(300, 1), round(400, 2), round(50, 3));
        for _ in 0..3 {
            for r in [&a, &other, &b, &other] {
                guessed(&mut habits, 7, r);
            }
        }
        assert_eq!(guessed(&mut habits, 7, &a), a.len());
        // Cut short: found again behind the cut.
        guessed(&mut habits, 7, &other);
        guessed(&mut habits, 7, &b[..200]);
        let after = guessed(&mut habits, 7, &a);
        assert!(after + 2 * CONTEXT >= a.len(), "{after}");
    }

    /// Sizes that repeat at other addresses are not guessed for long, and tried again now and then; once they settle they are.
    #[test]
    fn what_stays_wrong_rests() {
        let mut habits = Habits::default();
        let same = round(500, 1);
        let mut asked = |rounds: u64, moves: bool| -> Vec<usize> {
            let one = |n: u64| {
                let mut guesses = 0;
                for (bytes, address) in &same {
                    guesses += usize::from(habits.guess(7, *bytes).is_some());
                    habits.learn(7, *bytes, if moves { address + (n << 10) } else { *address });
                }
                guesses
            };
            (0..rounds).map(one).collect()
        };
        let wrong = asked(1_000, true);
        assert!(wrong[2] == 500 && wrong.iter().sum::<usize>() < 500_000 / 8, "{wrong:?}");
        // Tried to the last, and often enough.
        assert!(wrong[800..].iter().any(|g| *g > 0));
        let right = asked(400, false);
        assert!(right[200..].iter().all(|g| *g == 500), "{right:?}");
    }

    /// A round longer than what is remembered is never recognised, and nothing breaks.
    #[test]
    fn rounds_too_long() {
        let mut habits = Habits::default();
        let long = |from: u64| (0..2 * MOST as u64).map(move |i| ((from + i % 65_521) << 9, i));
        for _ in 0..3 {
            long(1).for_each(|(bytes, address)| habits.learn(1, bytes, address));
        }
        assert_eq!(habits.of[&1].requests.len(), MOST);
    }

    #[test]
    fn streams_apart_and_not_too_many() {
        let mut habits = Habits::default();
        let rounds: Vec<_> = (0..STREAMS as u64).map(|s| round(100, s)).collect();
        for _ in 0..3 {
            for (i, _) in rounds[0].iter().enumerate() {
                for (s, r) in rounds.iter().enumerate() {
                    habits.learn(s as u64, r[i].0, r[i].1);
                }
            }
        }
        assert_eq!(guessed(&mut habits, 5, &rounds[5]), 100);
        for s in 0..1000 {
            habits.learn(1000 + s, 1 << 20, s);
        }
        assert!(habits.of.len() == STREAMS && habits.order.len() == STREAMS);
        habits.forget(1999);
        assert!(habits.of.len() == STREAMS - 1 && habits.guess(1999, 1 << 20).is_none());
    }
}
