//! What the arena asks of it: a driver that fails when told to.

use super::{Error, Event, PAGE, Sim, State, join};
use std::sync::atomic::Ordering::SeqCst;
use vramscope_core::arena::{Backing, StreamId};

impl Backing for &Sim {
    type Error = Error;
    type Chunk = u64;
    type Event = Event;

    fn reserve(&self, bytes: u64) -> Result<u64, Error> {
        assert!(bytes.is_multiple_of(PAGE));
        if self.fails(&self.fail_reserve) {
            return Err(Error::NoAddresses);
        }
        let mut s = self.state();
        let at = 0x7f00_0000_0000 + s.next_range;
        s.next_range += bytes + PAGE * 3;
        s.ranges.insert(at, bytes);
        Ok(at)
    }

    fn unreserve(&self, address: u64, bytes: u64) {
        self.fails(&self.fail_reserve);
        let mut s = self.state();
        assert_eq!(s.ranges.remove(&address), Some(bytes));
        let mapped = s.chunks.keys().chain(s.aliases.keys());
        assert!(mapped.clone().all(|a| !(address..address + bytes).contains(a)), "memory is left in the range");
    }

    fn map(&self, address: u64, bytes: u64) -> Result<u64, Error> {
        if let Some(f) = &self.on_map {
            f(self);
        }
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE) && address.is_multiple_of(PAGE));
        if self.fails(&self.fail_map) {
            return Err(Error::Broken);
        }
        let mut s = self.state();
        if s.chunks.values().sum::<u64>() + bytes > self.capacity.load(SeqCst) {
            return Err(Error::OutOfMemory);
        }
        s.assert_vacant(address, bytes);
        s.chunks.insert(address, bytes);
        Ok(address ^ 1)
    }

    fn alias(&self, address: u64, home: u64, bytes: u64, chunk: u64) -> Result<(), Error> {
        assert_eq!(chunk, home ^ 1);
        if self.fails(&self.fail_map) {
            return Err(Error::Broken);
        }
        let mut s = self.state();
        assert_eq!(s.chunks.get(&home), Some(&bytes), "not a whole chunk");
        s.assert_vacant(address, bytes);
        s.aliases.insert(address, (home, bytes));
        Ok(())
    }

    fn unalias(&self, address: u64, bytes: u64) -> Result<(), Error> {
        if let Some(f) = &self.on_unmap {
            f(self);
        }
        if self.fails(&self.fail_unmap) {
            return Err(Error::Broken);
        }
        let mut s = self.state();
        let by = s.uses.iter().find(|u| u.by < address + bytes && address < u.by + (u.to - u.from));
        let by = by.map(|u| (u.stream, u.at));
        assert!(
            by.is_none() || s.over || std::thread::panicking(),
            "{address:#x} is unmapped while work {by:?} may use it"
        );
        assert_eq!(s.aliases.remove(&address).map(|a| a.1), Some(bytes));
        s.open.remove(&address);
        Ok(())
    }

    fn open(&self, address: u64, bytes: u64) -> Result<(), Error> {
        if self.fails(&self.fail_open) {
            return Err(Error::Broken);
        }
        let mut s = self.state();
        let range = address..address + bytes;
        let mut chunks: Vec<(u64, u64)> = s.chunks.range(range.clone()).map(|(a, b)| (*a, *b)).collect();
        chunks.extend(s.aliases.range(range).map(|(a, (_, b))| (*a, *b)));
        let end = chunks.iter().try_fold(address, |at, (a, b)| (*a == at).then_some(a + b));
        assert_eq!(end, Some(address + bytes), "not whole chunks without a gap");
        s.open.extend(chunks.iter().map(|c| c.0));
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64, chunk: u64) -> Result<(), Error> {
        if let Some(f) = &self.on_unmap {
            f(self);
        }
        assert_eq!(chunk, address ^ 1);
        if self.fails(&self.fail_unmap) {
            return Err(Error::Broken);
        }
        let mut s = self.state();
        let by = s.uses.iter().find(|u| u.from < address + bytes && address < u.to).map(|u| (u.stream, u.at));
        assert!(
            by.is_none() || s.over || std::thread::panicking(),
            "{address:#x} is unmapped while work {by:?} may use it"
        );
        assert!(s.aliases.values().all(|a| a.0 != address), "{address:#x} is mapped elsewhere still");
        assert_eq!(s.chunks.remove(&address), Some(bytes));
        s.open.remove(&address);
        Ok(())
    }

    fn record(&self, stream: StreamId) -> Option<Event> {
        if let Some(f) = &self.on_record {
            f(self);
        }
        let fails = self.fails(&self.fail_record);
        let mut s = self.state();
        let st = s.streams.entry(stream.0).or_default();
        assert!(!st.dead, "asked about stream {}, which is gone", stream.0);
        let clock = st.clock.clone();
        if fails {
            return None;
        }
        s.next_event += 1;
        let n = s.next_event;
        s.events.insert(n, clock);
        Some(Event(n))
    }

    fn wait(&self, stream: StreamId, event: &Event) -> bool {
        let fails = self.fails(&self.fail_wait);
        let mut s = self.state();
        let clock = s.events.get(&event.0).expect("a live event").clone();
        let st = s.streams.entry(stream.0).or_default();
        assert!(!st.dead, "asked about stream {}, which is gone", stream.0);
        if !fails {
            join(&mut st.clock, &clock);
        }
        !fails
    }

    fn is_done(&self, event: &Event) -> bool {
        self.calls.fetch_add(1, SeqCst);
        let mut s = self.state();
        let clock = s.events.get(&event.0).expect("a live event").clone();
        let done = clock.iter().all(|(st, at)| s.done.get(st).is_some_and(|d| at <= d));
        if done {
            join(&mut s.host, &clock);
            let State { uses, host, .. } = &mut *s;
            uses.retain(|u| host.get(&u.stream).is_none_or(|h| *h < u.at));
        }
        done
    }

    fn release(&self, event: Event) {
        assert!(self.state().events.remove(&event.0).is_some(), "released twice");
    }
}
