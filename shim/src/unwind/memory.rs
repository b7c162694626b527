//! Whether memory may be read, asked of the kernel.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What is asked about at once. Pages may be larger, never smaller.
pub(super) const PAGE: u64 = 4096;

pub(super) fn page_of(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// Whether the page that holds `address` can be read, about 0.1 us.
///
/// `rt_sigprocmask` copies the new mask from the caller's memory first and refuses the nonsense
/// request afterwards: EFAULT or EINVAL tells, and nothing has changed. (Abseil's
/// `AddressIsReadable` works like this.) Unlike `mincore` it sees pages that are mapped without
/// access, such as a stack's guard; unlike `process_vm_readv` no container forbids it. No libc
/// function is called, so that `errno` stays the program's.
///
/// An emulator (valgrind, qemu-user) may answer without having touched the memory. One that calls a page readable that
/// never is is not asked again: then nothing counts as readable, and stacks are cut short.
pub(crate) fn is_readable(address: u64) -> bool {
    static TRUTHFUL: AtomicU8 = AtomicU8::new(0);
    let page = page_of(address);
    match TRUTHFUL.load(Relaxed) {
        1 => page != 0 && asked(page),
        2 => false,
        _ => {
            let lies = asked(PAGE);
            TRUTHFUL.store(if lies { 2 } else { 1 }, Relaxed);
            !lies && page != 0 && asked(page)
        }
    }
}

fn asked(page: u64) -> bool {
    const NO_SUCH_HOW: u64 = !0;
    const EFAULT: i64 = -14;
    let result: i64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel reads 8 bytes at `page` or says that it cannot; it writes nowhere, since
    // the old mask's pointer is null, and changes no mask, since there is no such request.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_rt_sigprocmask => result,
            in("rdi") NO_SUCH_HOW,
            in("rsi") page,
            in("rdx") 0u64,
            in("r10") 8u64,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") libc::SYS_rt_sigprocmask,
            inlateout("x0") NO_SUCH_HOW => result,
            in("x1") page,
            in("x2") 0u64,
            in("x3") 8u64,
            options(nostack)
        );
    }
    result != EFAULT
}

/// Whether every page of a range can be read.
pub(crate) fn is_readable_through(start: u64, end: u64) -> bool {
    let mut page = page_of(start);
    while page < end {
        if !is_readable(page) {
            return false;
        }
        page += PAGE;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_access_is_not_readable() {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let map = unsafe {
            libc::mmap(std::ptr::null_mut(), 3 * 4096, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(map, libc::MAP_FAILED);
        let start = map as u64;
        // SAFETY: the middle page of the mapping above, which nobody else knows.
        let done = unsafe { libc::mprotect((start + 4096) as *mut _, 4096, libc::PROT_NONE) };
        assert_eq!(done, 0);
        assert!(is_readable(start + 4095));
        assert!(!is_readable(start + 4096));
        assert!(is_readable(start + 8192));
        assert!(!is_readable_through(start + 8, start + 4097));
        assert!(is_readable_through(start + 8, start + 4096));
        assert!(!is_readable(8));
        // SAFETY: the mapping above.
        unsafe { libc::munmap(map, 3 * 4096) };
    }
}
