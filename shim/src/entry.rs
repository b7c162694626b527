//! The assembly of a hooked function's entry: two instructions that tell the body who called, or a jump to the real function.

/// A hook's entry: the return address into an argument register, then on to the body.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    (0, $to:path) => { std::arch::naked_asm!("mov rdi, [rsp]", "jmp {to}", to = sym $to) };
    (1, $to:path) => { std::arch::naked_asm!("mov rsi, [rsp]", "jmp {to}", to = sym $to) };
    (2, $to:path) => { std::arch::naked_asm!("mov rdx, [rsp]", "jmp {to}", to = sym $to) };
    (3, $to:path) => { std::arch::naked_asm!("mov rcx, [rsp]", "jmp {to}", to = sym $to) };
    (4, $to:path) => { std::arch::naked_asm!("mov r8, [rsp]", "jmp {to}", to = sym $to) };
    (5, $to:path) => { std::arch::naked_asm!("mov r9, [rsp]", "jmp {to}", to = sym $to) };
    (none, $to:path) => { std::arch::naked_asm!("jmp {to}", to = sym $to) };
}
// Untested: written for the day a machine is to be had.
#[cfg(target_arch = "aarch64")]
macro_rules! entry {
    (0, $to:path) => { std::arch::naked_asm!("mov x0, x30", "b {to}", to = sym $to) };
    (1, $to:path) => { std::arch::naked_asm!("mov x1, x30", "b {to}", to = sym $to) };
    (2, $to:path) => { std::arch::naked_asm!("mov x2, x30", "b {to}", to = sym $to) };
    (3, $to:path) => { std::arch::naked_asm!("mov x3, x30", "b {to}", to = sym $to) };
    (4, $to:path) => { std::arch::naked_asm!("mov x4, x30", "b {to}", to = sym $to) };
    (5, $to:path) => { std::arch::naked_asm!("mov x5, x30", "b {to}", to = sym $to) };
    (none, $to:path) => { std::arch::naked_asm!("b {to}", to = sym $to) };
}
/// A jump to the real function of an index, resolving all of them first if the program came in through an exported name
/// before any look-up. All argument registers survive.
#[cfg(target_arch = "x86_64")]
macro_rules! jump_to_real {
    ($index:expr; $($first:tt)*) => {
        std::arch::naked_asm!(
            $($first)*
            "cmp dword ptr [rip + {deferred}], 0",
            "jne 5f",
            "6:",
            "mov rax, [rip + {reals} + {offset}]",
            "test rax, rax",
            "jz 2f",
            "jmp rax",
            "2:",
            "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
            "mov edi, {index}",
            "call {resolve}",
            "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            "jmp rax",
            "5:",
            "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
            "call {record}",
            "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            "jmp 6b",
            deferred = sym crate::sync::DEFERRED, record = sym crate::sync::record_deferred,
            reals = sym REAL, offset = const ($index as usize) * 8, index = const $index as usize,
            resolve = sym real::resolve_for_jump,
            flag = sym PER_THREAD_STREAMS)
    };
}

// Untested. Every watched call counts as one on a per-thread stream: barriers are then always issued, which is right and
// only slower.
#[cfg(target_arch = "aarch64")]
macro_rules! jump_to_real {
    ($index:expr; $($first:tt)*) => {
        std::arch::naked_asm!(
            "adrp x16, {flag}",
            "add x16, x16, :lo12:{flag}",
            "mov w17, #1",
            "str w17, [x16]",
            "adrp x16, {reals}",
            "add x16, x16, :lo12:{reals}",
            "ldr x16, [x16, #{offset}]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "stp x29, x30, [sp, #-96]!",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "str x8, [sp, #80]",
            "mov w0, #{index}",
            "bl {resolve}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldr x8, [sp, #80]",
            "ldp x29, x30, [sp], #96",
            "br x16",
            reals = sym REAL, offset = const ($index as usize) * 8, index = const $index as usize,
            resolve = sym real::resolve_for_jump,
            flag = sym PER_THREAD_STREAMS)
    };
}

/// Whether an entry's register number fits its arguments: one too low would overwrite an argument. A structure passed by
/// value takes no register.
pub(crate) const fn fits(n: &str, types: &[&str]) -> bool {
    let (mut i, mut registers) = (0, 0);
    while i < types.len() {
        let t = types[i].as_bytes();
        if t[0] != b'I' && t[0] != b'E' {
            registers += 1;
        }
        i += 1;
    }
    matches!(n.as_bytes(), b"none") || n.as_bytes()[0] - b'0' == registers
}

pub(crate) use {entry, jump_to_real};
