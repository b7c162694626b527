use super::*;

#[test]
fn frames_of_many_shapes() {
    set_up();
    let library = library(CHAIN, &[]);
    for depth in 0..60 {
        for _ in 0..2 {
            assert_same(&run(library.chain, depth), depth as usize + 2);
        }
    }
}

#[test]
fn frames_with_frame_pointers() {
    set_up();
    assert_same(&run(library(CHAIN, &["-fno-omit-frame-pointer"]).chain, 50), 50);
}

#[test]
fn frames_of_unoptimized_code() {
    set_up();
    assert_same(&run(library(CHAIN, &["-O0"]).chain, 50), 50);
}

#[test]
fn more_frames_than_there_is_room_for() {
    set_up();
    let library = library(CHAIN, &[]);
    let both = run(library.chain, 1000);
    assert!(both.ours.len() > 250);
    assert_eq!(both.ours, both.libgcc);
    // The thread's stack is known to be larger now.
    assert_same(&run(library.chain, 5), 5);
}

#[test]
fn every_method_of_finding_a_module_gives_the_same() {
    set_up();
    let library = library(CHAIN, &[]);
    // SAFETY: null is allowed. Other tests find modules by the list for a moment, too.
    unsafe { module::set_find_object(std::ptr::null_mut()) };
    let both = run(library.chain, 40);
    set_up();
    assert_same(&both, 40);
}

unsafe extern "C" fn without_own(first: *mut c_void) {
    let mut pcs = [0; DEEPEST];
    let captured = walked(&mut pcs, program());
    // SAFETY: given below.
    unsafe { *first.cast::<(u64, usize)>() = (pcs[0], captured.len) };
}

#[test]
fn own_frames_are_left_out_at_the_inner_end_only() {
    set_up();
    let library = library(CHAIN, &[]);
    let mut first = (0u64, 0usize);
    // SAFETY: the C function calls with the pointer.
    unsafe { (library.chain)(3, without_own, (&raw mut first).cast()) };
    let module = module::find(library.chain as *const () as u64).unwrap();
    assert!((module.start..module.end).contains(&first.0));
    // The four frames of the chain, its entry and this test's caller.
    assert!(first.1 > 6);
}

#[test]
fn nothing_fits_into_nothing() {
    set_up();
    let captured = walked(&mut [], 0..0);
    assert_eq!(captured, Captured { len: 0, hash: hash(&[]), guessed: 0, interrupted: 0 });
}

#[test]
fn frames_without_information_are_guessed_and_marked() {
    set_up();
    let _no_close = no_close();
    // Along frame pointers nothing is missed; else what is found in between is luck, but the outer
    // frames, which have information, must come.
    for (pointer, missed) in [("-fno-omit-frame-pointer", 1), ("-fomit-frame-pointer", 6)] {
        let library = library(CHAIN, &[pointer, "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
        let both = run(library.chain, 3);
        assert!(both.guessed > 0);
        let outer = ours();
        let same = outer.pcs().iter().rev().zip(both.ours.iter().rev()).take_while(|(a, b)| a == b).count();
        assert!(same + missed >= outer.pcs().len(), "{same} of {}", outer.pcs().len());
    }
}
