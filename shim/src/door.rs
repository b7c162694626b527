//! The doors through which a program finds the driver: exported names (`hooks`), `dlsym` here, `cuGetProcAddress`
//! (`hook::lookup`). Each asks the real resolver first and then maps the pointer it gave.

use std::ffi::{CStr, c_char, c_void};

use crate::doctor::{self, Door};
use crate::{hooks, real, state};

/// `dlsym`, exported. All but a CUDA driver name asked of an object is a tail jump, so that glibc sees the caller's own
/// return address: RTLD_NEXT, RTLD_DEFAULT and `$ORIGIN` depend on it.
///
/// # Safety
/// As the C function.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "test rsi, rsi",
        "jz 2f",
        // handle: RTLD_DEFAULT (0) and RTLD_NEXT (-1) depend on the caller
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "jbe 2f",
        // a name that begins with cu[A-Z]
        "cmp byte ptr [rsi], 0x63",
        "jne 2f",
        "cmp byte ptr [rsi + 1], 0x75",
        "jne 2f",
        "movzx eax, byte ptr [rsi + 2]",
        "sub eax, 65",
        "cmp eax, 25",
        "ja 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {lookup}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        // A library's constructor may ask before any constructor of ours could have run.
        "3:",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        lookup = sym lookup,
        real = sym real::DLSYM,
        find = sym real::find_dlsym,
    )
}

/// Untested. Every look-up that we do not answer leaves by a branch, so x30 stays the caller's.
///
/// # Safety
/// As the C function.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {ask}",
        "mov x9, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x9, 2f",
        "mov x0, x9",
        "ret",
        "2:",
        "adrp x9, {real}",
        "ldr x9, [x9, :lo12:{real}]",
        "br x9",
        ask = sym ask_aarch64,
        real = sym real::DLSYM,
    )
}

#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn ask_aarch64(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    real::find_dlsym();
    if name.is_null() || handle.is_null() || handle as isize == -1 {
        return std::ptr::null_mut();
    }
    // SAFETY: a C string of the caller.
    let n = unsafe { CStr::from_ptr(name) }.to_bytes();
    if n.len() > 2 && n.starts_with(b"cu") && n[2].is_ascii_uppercase() {
        lookup(handle, name)
    } else {
        std::ptr::null_mut()
    }
}

/// Answers a driver name asked of an object; null: let the real `dlsym` answer, on behalf of its caller.
extern "C" fn lookup(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's C string; null was ruled out by the assembly.
    let name = unsafe { CStr::from_ptr(name) };
    let given = real::symbol(handle, name);
    if given.is_null() {
        return given;
    }
    let answer = substitute(given, name, Door::Dlsym);
    // Unknown pointers go the real way once more: that keeps what glibc ties to the caller.
    if answer == given { std::ptr::null_mut() } else { answer }
}

/// Our entry for a function pointer that a real resolver gave; the pointer itself if it is none of ours.
pub fn substitute(given: *mut c_void, name: &CStr, door: Door) -> *mut c_void {
    if state::switched_off() || !real::resolve() {
        return given;
    }
    doctor::watch();
    match real::index_of(given.cast()) {
        Some(i) => {
            doctor::asked(i, door);
            hooks::entry_of(i).cast()
        }
        None => {
            doctor::passed(name, given, door);
            given
        }
    }
}
