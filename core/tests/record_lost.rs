//! What is lost is told in the history itself: nobody may be there to write the footer.

mod record_common;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use record_common::*;
use vramscope_core::record::{Options, Output, Producer, Pushed, TraceFile, Writer, recover, recover_trace};
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{Line, Lost};

const SECOND: u64 = 1_000_000_000;

fn told(lines: &[Line]) -> Vec<Lost> {
    let lost = lines.iter().filter_map(|l| if let Line::Lost(lost) = l { Some(lost.clone()) } else { None });
    lost.collect()
}

#[test]
fn losses_are_told_at_once_and_then_once_a_second() {
    let words = words(2, 8);
    let spool = spool(&words, 2, 8);
    let memo = Memo::default();
    let mut writer = Writer::new(spool, memo.clone(), &Options::default()).unwrap();
    let mut producer = spool.claim_ring(1, b"").unwrap();
    assert_eq!(producer.push(&event(1, 1)), Pushed::Yes);
    writer.round(1, 1).unwrap();
    producer.lost();
    writer.round(2, 2).unwrap();
    for i in 3..1000 {
        spool.count_lost(1);
        writer.round(i, i).unwrap();
    }
    spool.count_stack_refused();
    writer.round(SECOND + 2, SECOND + 2).unwrap();
    writer.round(SECOND + 3, SECOND + 3).unwrap();
    spool.count_lost(1);
    writer.flush(SECOND + 4, SECOND + 4).unwrap();
    writer.flush(SECOND + 5, SECOND + 5).unwrap();
    let folder = Folder::new();
    let path = folder.file("run.jsonl");
    memo.save(&path);
    let lost = |time, lost, stacks_refused| Lost { time, lost, stacks_refused };
    assert_eq!(told(&lines(&path)), [lost(2, 1, 0), lost(SECOND + 2, 998, 1), lost(SECOND + 4, 999, 1)]);
    // Without its spool as well.
    let done = recover_trace(&path, None, "test").unwrap();
    assert_eq!((done.footer.lost, done.footer.stacks_refused, done.damage), (999, 1, None));
}

#[test]
fn a_snapshot_and_the_last_part_tell_what_was_lost_before() {
    let folder = Folder::new();
    let path = folder.file("run.jsonl");
    let words = words(1, 64);
    let spool = spool(&words, 1, 64);
    let options = Options { compress: false, max_bytes: Some(8_000) };
    let mut writer = Writer::new(spool, TraceFile::create(&path).unwrap(), &options).unwrap();
    let mut producer = spool.claim_ring(1, b"").unwrap();
    spool.count_lost(3);
    for id in 1..=300 {
        assert_eq!(producer.push(&event(id, id)), Pushed::Yes);
        writer.round(id, id).unwrap();
    }
    let part: Vec<Line> = Reader::open(&path).unwrap().collect();
    assert!(matches!(&part[0], Line::Header(h) if h.part > 0));
    assert_eq!(told(&part).last().map(|l| l.lost), Some(3));
    let snapshot = writer.snapshot(301, 301).unwrap().save(&folder.file("now.jsonl")).unwrap();
    let all = lines(&snapshot);
    assert!(matches!(all.last(), Some(Line::Footer(f)) if f.lost == 3), "{:?}", all.last());
}

/// After a fault of ours nothing follows: the process itself writes the last line.
#[test]
fn a_history_whose_recording_was_stopped() {
    let words = words(1, 64);
    let spool = spool(&words, 1, 64);
    let memo = Memo::default();
    let mut writer = Writer::new(spool, memo.clone(), &Options::default()).unwrap();
    let mut producer = spool.claim_ring(1, b"").unwrap();
    assert!((1..=5).all(|id| producer.push(&event(id, id)) == Pushed::Yes));
    writer.flush(5, 5).unwrap();
    spool.mark_stopped();
    spool.count_lost(70);
    writer.end_stopped().unwrap();
    let folder = Folder::new();
    let path = folder.file("run.jsonl");
    memo.save(&path);
    let Some(Line::Footer(footer)) = lines(&path).pop() else { panic!("no footer") };
    assert_eq!((&*footer.end, &*footer.by, footer.events, footer.lost, footer.time), ("stopped", "library", 5, 70, 5));
    let before = memo.bytes();
    assert!(recover(&words, &path, None, "test").unwrap().was_whole);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// A program whose threads go on as fast as the writer writes.
struct Busy<'a> {
    memo: Memo,
    producer: Rc<RefCell<Producer<'a>>>,
    id: u64,
}

impl Output for Busy<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.id += 1;
        assert_eq!(self.producer.borrow_mut().push(&event(self.id, self.id)), Pushed::Yes);
        self.memo.write(bytes)
    }

    fn next_part(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A flush takes what was there when it began, and ends: the process may be waiting for it to end itself.
#[test]
fn a_flush_ends_however_fast_threads_go_on() {
    for compress in [false, true] {
        let words = words(2, 4096);
        let spool = spool(&words, 2, 4096);
        let memo = Memo { at_once: Some(40), ..Memo::default() };
        let producer = Rc::new(RefCell::new(spool.claim_ring(1, b"busy").unwrap()));
        let output = Busy { memo: memo.clone(), producer: producer.clone(), id: 1_000 };
        let mut writer = Writer::new(spool, output, &Options { compress, max_bytes: None }).unwrap();
        assert!((1..=7).all(|id| producer.borrow_mut().push(&event(id, id)) == Pushed::Yes));
        let done = writer.flush(999, 999).unwrap();
        assert_eq!(done.events, 7);
        let meanwhile = writer.output().id - 1_000;
        assert_eq!(writer.flush(9_999, 9_999).unwrap().events, meanwhile);
    }
}
