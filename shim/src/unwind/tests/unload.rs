use super::super::close;
use super::*;

/// Loads two libraries in turn, which mostly come to the same place, and tells how often they did.
fn take_turns() -> u32 {
    let twins = [64, 4032].map(|size| compile(TWIN, &[&format!("-DSIZE={size}")]));
    let mut same_place = 0;
    let mut last = 0;
    for i in 0..40 {
        let library = Library::open(&twins[i % 2]);
        let place = library.chain as *const () as u64;
        same_place += u32::from(place == last);
        last = place;
        assert_same(&run(library.chain, 10), 10);
        close::closing();
        // While a close is under way all is worked out anew.
        assert_same(&run(library.chain, 10), 10);
        library.close();
        close::closed();
    }
    for path in twins {
        std::fs::remove_file(path).unwrap();
    }
    same_place
}

/// Another library at the same addresses has other rules.
#[test]
fn a_library_in_the_place_of_another() {
    set_up();
    let _closing = exclusive();
    // Two threads: closes overlap, and one thread's library comes to the other one's place, too.
    let threads = [(); 2].map(|()| std::thread::spawn(take_turns));
    let same_place: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(same_place > 0, "the test shows nothing");
}
