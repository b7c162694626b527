//! Reads unwind information: the rule that an FDE gives for one code address. The cold path, and
//! the deepest one.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, Encoding, EndianSlice, Expression, FrameDescriptionEntry, LittleEndian, Operation,
    Register, UnwindExpression, UnwindSection, X86_64,
};

use super::memory::is_readable_through;
use super::row::{Column, Program, Row};
use super::rule::{Rule, SavedBp};

pub(super) type Bytes = EndianSlice<'static, LittleEndian>;

/// One FDE with the CIE that it refers to.
pub(super) struct Function {
    section: EhFrame<Bytes>,
    bases: BaseAddresses,
    fde: FrameDescriptionEntry<Bytes>,
}

impl Function {
    /// Reads the FDE at `fde`; `None` if it is none, or of a kind that does not occur.
    ///
    /// # Safety
    /// A linker or a JIT compiler said that unwind information is there, and it stays until the
    /// result is dropped.
    #[inline(never)]
    pub(super) unsafe fn read(fde: u64) -> Option<Function> {
        // SAFETY: every entry has a length and a second word.
        let [length, cie_distance] = unsafe { (fde as *const [u32; 2]).read_unaligned() };
        // 0 is the end mark, 0xffff_fff0 and up are lengths of 64 bits, 0 in the second word is a CIE.
        if length == 0 || length >= 0xffff_fff0 || cie_distance == 0 {
            return None;
        }
        // A CIE stands before the FDEs that refer to it: what gimli sees begins there.
        let cie = (fde + 4).checked_sub(u64::from(cie_distance))?;
        let size = (fde + 4 + u64::from(length)).checked_sub(cie)?;
        // SAFETY: both ends lie in one section, which is in memory as a whole (the caller says).
        let bytes = unsafe { std::slice::from_raw_parts(cie as *const u8, size as usize) };
        let section = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(cie);
        let offset = gimli::EhFrameOffset((fde - cie) as usize);
        let fde = section.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
        Some(Function { section, bases, fde })
    }

    /// Where its code begins and ends.
    pub(super) fn range(&self) -> (u64, u64) {
        let start = self.fde.initial_address();
        (start, start.saturating_add(self.fde.len()))
    }

    /// The rule for the code at `at`.
    #[inline(never)]
    pub(super) fn rule(&self, at: u64) -> Rule {
        if !self.fde.contains(at) {
            return Rule::UNKNOWN;
        }
        // The handler's return address is the trampoline's first byte, hence + 1.
        if self.fde.is_signal_trampoline() && is_sigreturn(at + 1) {
            return Rule::SIGNAL;
        }
        self.row_rule(at).unwrap_or(Rule::COMPLEX)
    }

    fn row_rule(&self, at: u64) -> Option<Rule> {
        let cie = self.fde.cie();
        let mut program = Program::new(cie);
        program.begin(cie.instructions(&self.section, &self.bases))?;
        let instructions = self.fde.instructions(&self.section, &self.bases);
        let row = program.run(instructions, self.fde.initial_address(), at)?;
        pack(row, &self.section, cie.encoding(), at)
    }
}

/// `mov $15, %rax; syscall`: other code may call itself a signal frame, but only the kernel's has
/// the layout that [`Rule::SIGNAL`] reads.
fn is_sigreturn(pc: u64) -> bool {
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    is_readable_through(pc, pc + CODE.len() as u64) && {
        // SAFETY: can be read (just asked).
        let code = unsafe { (pc as *const [u8; 9]).read() };
        code == CODE
    }
}

/// `None` if the row says more than a rule can.
fn pack(row: &Row, section: &EhFrame<Bytes>, encoding: Encoding, at: u64) -> Option<Rule> {
    match row.return_address {
        Column::Offset(-8) => {}
        Column::Unset | Column::Undefined => return Some(Rule::END),
        _ => return None,
    }
    let simple = |e: &UnwindExpression<usize>| Place::of(e.get(section).ok()?, encoding);
    let (place, deref) = match &row.cfa {
        CfaRule::RegisterAndOffset { register, offset } => (Place { register: *register, offset: *offset }, false),
        CfaRule::Expression(e) => match simple(e) {
            Some(place) => place,
            None => (plt(e.get(section).ok()?, at)?, false),
        },
    };
    let from_bp = match place.register {
        X86_64::RSP => false,
        X86_64::RBP => true,
        _ => return None,
    };
    let saved = match &row.bp {
        Column::Unset | Column::Undefined | Column::Same => SavedBp::Same,
        Column::Offset(offset) => SavedBp::Cfa(i32::try_from(*offset).ok()?),
        // At the `ret` of a realigned function GCC's rows still say that `bp` is where it points to, when it
        // was popped already: libgcc reads nonsense there.
        Column::Expression(_) if !from_bp && !deref => SavedBp::Same,
        Column::Expression(e) => match simple(e)? {
            (Place { register: X86_64::RBP, offset }, false) => SavedBp::Bp(i32::try_from(offset).ok()?),
            _ => return None,
        },
        Column::Other => return None,
    };
    Rule::new(from_bp, deref, place.offset, saved)
}

/// A register and an offset.
struct Place {
    register: Register,
    offset: i64,
}

impl Place {
    /// What an expression "register + offset", with or without a read there, says.
    fn of(expression: Expression<Bytes>, encoding: Encoding) -> Option<(Place, bool)> {
        let mut operations = expression.operations(encoding);
        let place = match operations.next().ok()?? {
            Operation::RegisterOffset { register, offset, .. } => Place { register, offset },
            _ => return None,
        };
        match operations.next().ok()? {
            None => Some((place, false)),
            Some(Operation::Deref { size: 8, space: false, .. }) => {
                operations.next().ok()?.is_none().then_some((place, true))
            }
            _ => None,
        }
    }
}

/// The linkers' one expression for a whole PLT, `rsp + 8 + (((rip & 15) >= n) << 3)`: an offset, once
/// the address is known.
fn plt(expression: Expression<Bytes>, at: u64) -> Option<Place> {
    // breg7 8, breg16 0, lit15, and, lit<n>, ge, lit3, shl, plus
    let [0x77, 8, 0x80, 0, 0x3f, 0x1a, literal, 0x2a, 0x33, 0x24, 0x22] = *expression.0.slice() else {
        return None;
    };
    let pushed = u64::from(literal.checked_sub(0x30)?);
    let offset = if at & 15 >= pushed { 16 } else { 8 };
    Some(Place { register: X86_64::RSP, offset })
}

/// The FDEs of a registered section, or the one FDE that `begin` points to: its address, and its
/// code's beginning and end.
///
/// # Safety
/// As for [`Function::read`]; a section ends with a word of 0.
pub(super) unsafe fn each_function(begin: u64, mut visit: impl FnMut(u64, u64, u64)) {
    // SAFETY: as the caller says.
    let [length, id] = unsafe { (begin as *const [u32; 2]).read_unaligned() };
    let is_section = length != 0 && id == 0;
    let mut entry = begin;
    loop {
        // SAFETY: as the caller says; the end mark is the last word that is read.
        let length = unsafe { (entry as *const u32).read_unaligned() };
        if length == 0 || length >= 0xffff_fff0 {
            return;
        }
        // SAFETY: as the caller says.
        if let Some(function) = unsafe { Function::read(entry) } {
            let (start, end) = function.range();
            if start < end {
                visit(entry, start, end);
            }
        }
        if !is_section {
            return;
        }
        entry += 4 + u64::from(length);
    }
}
