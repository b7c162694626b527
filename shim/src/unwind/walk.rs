//! The walk by rules, x86-64.
//!
//! Frames go from hand to hand as values, and what the rare cases need goes in registers: a frame
//! whose address is known elsewhere lives in memory, and the walk takes twice as long.

use std::ops::Range;

use super::close::Epoch;
use super::fde::{self, Fde};
use super::memory::is_readable_through;
use super::module::{self, Module};
use super::rule::{Kind, Rule};
use super::stack::{Bounds, ThreadStack};
use super::{Captured, EXACT, GUESSED, cfi, guess, hash, jit, table};

/// Where a walk takes the rules from.
pub(super) trait Rules {
    /// The rule for the code at `at`.
    fn rule(&mut self, at: u64) -> Rule;
}

/// One frame of the walk.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    /// What is recorded: a return address, perhaps with marks.
    pub(super) pc: u64,
    /// The code address that the rule is looked up by: in the call, before the return address.
    pub(super) at: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

/// Memory below `sp` that a function may use without moving it.
const RED_ZONE: u64 = 128;

/// Reads a word of the stack. Volatile: other frames own that memory, and the compiler must not
/// reason about it.
///
/// # Safety
/// `Bounds` say that 8 bytes at `address` can be read.
#[inline(always)]
pub(super) unsafe fn read(address: u64) -> u64 {
    // SAFETY: as the caller says; x86-64 reads words at any alignment.
    unsafe { (address as *const u64).read_volatile() }
}

/// Whether code can be there: not in the first page, in the program's half of the address space.
#[inline(always)]
pub(super) fn is_code_address(pc: u64) -> bool {
    pc.wrapping_sub(4096) < (1 << 47) - 4096
}

/// Walks from the place that calls it, which is not told itself, nor are the frames in `own` that
/// come first. Calls `each` with a frame's recorded address and its stack pointer: the frame's own
/// memory lies between that and the next frame's.
///
/// # Safety
/// As for [`capture`](super::capture).
#[inline(always)]
pub(super) unsafe fn walk(
    stack: &ThreadStack,
    rules: &mut impl Rules,
    depth: usize,
    own: Range<u64>,
    mut each: impl FnMut(u64, u64),
) -> Captured {
    let (at, sp, bp): (u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        std::arch::asm!(
            "lea {at}, [rip]",
            "mov {sp}, rsp",
            "mov {bp}, rbp",
            at = out(reg) at,
            sp = out(reg) sp,
            bp = out(reg) bp,
            options(nomem, nostack, preserves_flags)
        );
    }
    let mut bounds = stack.bounds(sp);
    let mut captured = Captured { len: 0, hash: hash::SEED, guessed: 0, interrupted: 0 };
    let mut frame = Frame { pc: at, at, sp, bp };
    loop {
        // SAFETY: the frame is this thread's, and so is the stack.
        let caller = unsafe { step(frame, stack, &mut bounds, rules.rule(frame.at)) };
        match caller {
            Some(caller) => frame = caller,
            None => return captured,
        }
        if !own.contains(&frame.at) {
            break;
        }
    }
    while captured.len < depth {
        each(frame.pc, frame.sp);
        captured.len += 1;
        captured.guessed += (frame.pc >> GUESSED.trailing_zeros()) as u32;
        captured.interrupted += (frame.pc >> EXACT.trailing_zeros()) as u32 & 1;
        captured.hash = hash::fold(captured.hash, frame.pc);
        // SAFETY: as above.
        let caller = unsafe { step(frame, stack, &mut bounds, rules.rule(frame.at)) };
        match caller {
            Some(caller) => frame = caller,
            None => break,
        }
    }
    captured
}

/// From a frame to its caller.
///
/// # Safety
/// The frame is one of the calling thread's.
#[inline(always)]
unsafe fn step(frame: Frame, stack: &ThreadStack, bounds: &mut Bounds, rule: Rule) -> Option<Frame> {
    let (sp, bp, high) = (frame.sp, frame.bp, bounds.high);
    // Nearly all frames go through here. Without branches that depend on the rule: a processor
    // that comes from the program's own work would guess most of them wrongly.
    let mask = rule.bp_mask();
    let cfa = ((sp & !mask) | (bp & mask)).wrapping_add(rule.cfa_offset());
    let slot = cfa.wrapping_add(rule.bp_offset());
    let fits = (cfa > sp) & (cfa <= high) & (cfa & 7 == 0) & (slot >= sp) & (slot <= high.wrapping_sub(8));
    if !(rule.is_plain() & fits) {
        // SAFETY: as the caller says.
        return unsafe { rare_step(sp, bp, stack, bounds, rule) };
    }
    // SAFETY: `fits`, and frames lie 8 bytes apart at least.
    let pc = unsafe { read(cfa - 8) };
    // SAFETY: `fits`.
    let saved = unsafe { read(slot) };
    let mask = rule.saved_mask();
    is_code_address(pc).then(|| Frame { pc, at: pc - 1, sp: cfa, bp: (saved & mask) | (bp & !mask) })
}

/// The rules as all threads share them.
impl Rules for Epoch {
    #[inline(always)]
    fn rule(&mut self, at: u64) -> Rule {
        shared_rule(at, *self).0
    }
}

/// The rule for the code at `at`, and whether it may be remembered for this epoch.
#[inline(always)]
pub(super) fn shared_rule(at: u64, epoch: Epoch) -> (Rule, bool) {
    if !epoch.closing()
        && let Some(rule) = table::get(at, epoch.generation())
    {
        return (rule, true);
    }
    miss(at, epoch)
}

#[cold]
#[inline(never)]
fn miss(at: u64, epoch: Epoch) -> (Rule, bool) {
    let (rule, lasts) = look_up(at, module::find(at).as_ref());
    let lasts = lasts && !epoch.closing() && epoch.is_current();
    if lasts {
        table::put(at, epoch.generation(), rule);
    }
    (rule, lasts)
}

/// Works out the rule for the code at `at`, and whether it is so until the code's owner says that
/// it goes away. What nobody owns may be anything tomorrow.
pub(super) fn look_up(at: u64, module: Option<&Module>) -> (Rule, bool) {
    let Some(module) = module else {
        let rule = jit::rule(at);
        return (rule.unwrap_or(Rule::UNKNOWN), rule.is_some());
    };
    let rule = match fde::find(module, at) {
        // SAFETY: the module's index says that it is there, and the module is loaded.
        Fde::At(fde) => match unsafe { cfi::Function::read(fde) } {
            Some(function) => function.rule(at),
            None => Rule::COMPLEX,
        },
        Fde::Missing => Rule::UNKNOWN,
        Fde::Foreign => Rule::COMPLEX,
    };
    (rule, true)
}

/// Everything that the short path can't do, which includes moving the bounds.
///
/// # Safety
/// As for [`step`].
#[cold]
#[inline(never)]
unsafe fn rare_step(sp: u64, bp: u64, stack: &ThreadStack, bounds: &mut Bounds, rule: Rule) -> Option<Frame> {
    let mut word = |address: u64| {
        let end = address.checked_add(8)?;
        let readable = if address >= sp {
            bounds.reach(end)
        } else {
            address >= sp.saturating_sub(RED_ZONE) && is_readable_through(address, end)
        };
        // SAFETY: can be read (just asked).
        readable.then(|| unsafe { read(address) })
    };
    let base = if rule.bp_mask() != 0 { bp } else { sp }.wrapping_add(rule.cfa_offset());
    let cfa = match rule.kind() {
        Kind::Plain => base,
        Kind::Deref => word(base)?,
        Kind::End => return None,
        Kind::Signal => {
            // The kernel's `ucontext` is at `sp`; its saved registers begin 40 bytes in.
            let (bp, sp, pc) = (word(sp + 120)?, word(sp + 160)?, word(sp + 168)?);
            bounds.remember(stack);
            *bounds = stack.bounds(sp);
            // Interrupted there, so not a return address.
            return is_code_address(pc).then_some(Frame { pc: pc | EXACT, at: pc, sp, bp });
        }
        Kind::Unknown | Kind::Complex => {
            // SAFETY: as the caller says.
            return unsafe { guess::caller(sp, bp, bounds) };
        }
    };
    if cfa <= sp || cfa & 7 != 0 {
        return None;
    }
    let pc = word(cfa - 8)?;
    let bp = if rule.saved_at_bp() {
        word(bp.wrapping_add(rule.bp_offset()))?
    } else if rule.saved_mask() != 0 {
        word(cfa.wrapping_add(rule.bp_offset()))?
    } else {
        bp
    };
    bounds.remember(stack);
    is_code_address(pc).then(|| Frame { pc, at: pc - 1, sp: cfa, bp })
}
