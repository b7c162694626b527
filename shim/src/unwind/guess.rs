//! Frames without usable unwind information: first the frame pointer, then a search of the stack
//! for a word that can be a return address. What is found is marked as guessed.

use super::close::Scan;
use super::memory::is_readable_through;
use super::module;
use super::rule::{Kind, Rule};
use super::stack::Bounds;
use super::walk::{self, Frame};
use super::{GUESSED, jit};

/// How many words are looked at.
const SEARCH: u64 = 512;

/// The probable caller of a frame that no rule can be had for.
///
/// # Safety
/// The stack from `sp` to `bounds` is the calling thread's.
#[cold]
#[inline(never)]
pub(super) unsafe fn caller(sp: u64, bp: u64, bounds: &mut Bounds) -> Option<Frame> {
    // A word on the stack may point into a library that another thread unloads right now.
    let _scan = Scan::begin()?;
    let found = |pc: u64, sp: u64, bp: u64| Some(Frame { pc: pc | GUESSED, at: pc - 1, sp, bp });
    if bp.is_multiple_of(8) && bp >= sp && bounds.reach(bp.saturating_add(16)) {
        // SAFETY: `reach` says that both words can be read.
        let (saved, pc) = unsafe { (walk::read(bp), walk::read(bp + 8)) };
        if leads_on(pc, bp + 16, saved, bounds) {
            return found(pc, bp + 16, saved);
        }
    }
    let first = sp.checked_next_multiple_of(8)?;
    for slot in (0..SEARCH).map(|i| first.saturating_add(i * 8)) {
        if !bounds.reach(slot.saturating_add(8)) {
            return None;
        }
        // SAFETY: `reach` says that the word can be read.
        let pc = unsafe { walk::read(slot) };
        if leads_on(pc, slot + 8, bp, bounds) {
            return found(pc, slot + 8, bp);
        }
    }
    None
}

/// Whether `pc` can be a return address, and its frame's, too, as far as that frame's rule is plain.
/// Stacks are full of return addresses of calls that are over, which mostly lead nowhere.
fn leads_on(pc: u64, sp: u64, bp: u64, bounds: &mut Bounds) -> bool {
    let Some(rule) = rule_of_return_address(pc) else { return false };
    if !rule.is_plain() {
        return true;
    }
    let base = if rule.bp_mask() != 0 { bp } else { sp };
    let cfa = base.wrapping_add(rule.cfa_offset());
    if cfa <= sp || !cfa.is_multiple_of(8) || !bounds.reach(cfa) {
        return false;
    }
    // SAFETY: `reach`; it lies above `sp`, which is on the stack.
    rule_of_return_address(unsafe { walk::read(cfa - 8) }).is_some()
}

/// The rule at `pc` if that follows a call instruction in known code.
fn rule_of_return_address(pc: u64) -> Option<Rule> {
    if !walk::is_code_address(pc) {
        return None;
    }
    let (rule, start) = match module::find(pc) {
        Some(module) => {
            let rule = walk::look_up(pc - 1, Some(&module)).0;
            // Being covered by unwind information proves that it is code.
            if module.eh_frame_hdr != 0 && matches!(rule.kind(), Kind::Unknown | Kind::Complex) {
                return None;
            }
            (rule, module.start)
        }
        None => (jit::rule(pc - 1)?, jit::start_of(pc - 1)?),
    };
    if pc < start.saturating_add(8) || !is_readable_through(pc - 8, pc) {
        return None;
    }
    // SAFETY: can be read (just asked).
    let before = unsafe { (pc as *const [u8; 8]).sub(1).read() };
    ends_in_call(before).then_some(rule)
}

/// Whether the last of 8 bytes of code can be a call: `e8` with 4 bytes, or `ff /2` with an operand.
fn ends_in_call(code: [u8; 8]) -> bool {
    code[3] == 0xe8 || (1..=6).any(|i| code[i] == 0xff && indirect_length(code[i + 1], code.get(i + 2)) == Some(8 - i))
}

/// The length of `ff` with this operand, if it is a near call.
fn indirect_length(operand: u8, scale: Option<&u8>) -> Option<usize> {
    let (mode, code, base) = (operand >> 6, operand >> 3 & 7, operand & 7);
    if code != 2 {
        return None;
    }
    if mode == 3 {
        return Some(2);
    }
    let scaled = base == 4;
    let offset = match (mode, base) {
        (0, 5) | (2, _) => 4,
        (0, 4) if *scale? & 7 == 5 => 4,
        (0, _) => 0,
        _ => 1,
    };
    Some(2 + usize::from(scaled) + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_other_code() {
        let code = |bytes: &[u8]| {
            let mut code = [0x90; 8];
            code[8 - bytes.len()..].copy_from_slice(bytes);
            ends_in_call(code)
        };
        assert!(code(&[0xe8, 1, 2, 3, 4])); // call rel32
        assert!(code(&[0xff, 0xd0])); // call rax
        assert!(code(&[0x41, 0xff, 0xd3])); // call r11
        assert!(code(&[0xff, 0x10])); // call [rax]
        assert!(code(&[0xff, 0x50, 8])); // call [rax + 8]
        assert!(code(&[0xff, 0x54, 0x24, 8])); // call [rsp + 8]
        assert!(code(&[0xff, 0x14, 0xc7])); // call [rdi + rax * 8]
        assert!(code(&[0xff, 0x14, 0xc5, 1, 2, 3, 4])); // call [rax * 8 + disp32]
        assert!(code(&[0xff, 0x90, 1, 2, 3, 4])); // call [rax + disp32]
        assert!(code(&[0xff, 0x15, 1, 2, 3, 4])); // call [rip + disp32]
        assert!(!code(&[]));
        assert!(!code(&[0xff, 0xe0])); // jmp rax
        assert!(!code(&[0xff, 0x50])); // its offset is missing
        assert!(!code(&[0xe8, 1, 2, 3])); // too short
        assert!(!code(&[0xff, 0xd0, 0x90])); // not the last one
    }
}
