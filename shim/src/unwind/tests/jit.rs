use super::super::jit;
use super::*;

/// `fn(leaf, argument)`: makes a frame of 24 bytes and calls.
const CODE: [u8; 17] = [
    0x48, 0x83, 0xec, 0x18, // sub rsp, 24
    0x48, 0x89, 0xf8, // mov rax, rdi
    0x48, 0x89, 0xf7, // mov rdi, rsi
    0xff, 0xd0, // call rax
    0x48, 0x83, 0xc4, 0x18, // add rsp, 24
    0xc3, // ret
];
/// Where the FDE begins: after the CIE.
const FDE: usize = 24;

type Made = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void);

/// A section for code at `start`: one CIE, one FDE, the end mark.
fn section(start: u64) -> Vec<u8> {
    let mut s = Vec::new();
    s.extend(20u32.to_ne_bytes());
    s.extend(0u32.to_ne_bytes());
    // Version, "zR", alignment 1 and -8, return address in 16, one byte: absolute pointers.
    s.extend([1, b'z', b'R', 0, 1, 0x78, 16, 1, 0]);
    // CFA = rsp + 8, return address at CFA - 8.
    s.extend([0x0c, 7, 8, 0x90, 1, 0, 0]);
    assert_eq!(s.len(), FDE);
    s.extend(28u32.to_ne_bytes());
    s.extend((FDE as u32 + 4).to_ne_bytes());
    s.extend(start.to_ne_bytes());
    s.extend((CODE.len() as u64).to_ne_bytes());
    // After 4 bytes of code CFA = rsp + 32.
    s.extend([0, 0x44, 0x0e, 32, 0, 0, 0, 0]);
    s.extend(0u32.to_ne_bytes());
    s
}

#[inline(never)]
fn run_made(made: Made) -> Both {
    let mut both = Both { ours: vec![], libgcc: vec![], guessed: 0 };
    // SAFETY: calls `compare` with the pointer.
    unsafe { made(compare, (&raw mut both).cast()) };
    both
}

#[test]
fn registered_code_is_known_as_long_as_it_is_registered() {
    set_up();
    let _no_close = no_close();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
    assert_ne!(map, libc::MAP_FAILED);
    // SAFETY: the mapping has room.
    unsafe { map.cast::<u8>().copy_from(CODE.as_ptr(), CODE.len()) };
    // SAFETY: the code above has this type.
    let made = unsafe { std::mem::transmute::<*mut c_void, Made>(map) };
    let section = section(map as u64);
    let begin = section.as_ptr() as u64;

    let unknown = run_made(made);
    assert!(unknown.guessed > 0);
    for begin in [begin, begin + FDE as u64] {
        // SAFETY: a whole section or one FDE.
        unsafe { jit::registered(begin) };
        // SAFETY: a whole section.
        unsafe { __register_frame(section.as_ptr().cast()) };
        for _ in 0..2 {
            assert_same(&run_made(made), 3);
        }
        jit::deregistered(begin);
        // SAFETY: registered above.
        unsafe { __deregister_frame(section.as_ptr().cast()) };
        assert!(run_made(made).guessed > 0);
    }
    // Code in the place of other code, which nobody deregistered.
    // SAFETY: a whole section.
    unsafe { jit::registered(begin) };
    let again = section.clone();
    // SAFETY: a whole section.
    unsafe { jit::registered(again.as_ptr() as u64) };
    jit::deregistered(begin);
    assert_eq!(run_made(made).guessed, 0);
    jit::deregistered(again.as_ptr() as u64);
    assert!(run_made(made).guessed > 0);
    jit::deregistered(0x1000);
}
