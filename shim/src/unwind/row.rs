//! The row of a function's unwind table that covers one address, or as much of it as the walk
//! needs: how to find the CFA, the caller's `bp` and the return address.
//!
//! gimli reads the instructions; they are not run by its own `UnwindContext`, which keeps all
//! registers and copies its rows about: 7 KiB of stack even with little room in it. This takes
//! under 2.

use gimli::{
    CallFrameInstruction as Instruction, CallFrameInstructionIter, CfaRule, CommonInformationEntry, Register,
    UnwindExpression, X86_64,
};

use super::cfi::Bytes;

/// Where the caller's value of one register is.
#[derive(Clone, Copy)]
pub(super) enum Column {
    /// Nothing was said.
    Unset,
    /// There is none: the outermost frame.
    Undefined,
    /// Still in the register.
    Same,
    /// In memory at CFA + offset.
    Offset(i64),
    /// In memory where the expression says.
    Expression(UnwindExpression<usize>),
    /// Something that a rule can't hold.
    Other,
}

/// One row.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) cfa: CfaRule<usize>,
    pub(super) bp: Column,
    pub(super) return_address: Column,
}

/// How many states a function may remember, one in another. Compilers need one.
const REMEMBERED: usize = 4;

/// A function's instructions, run up to one address.
pub(super) struct Program {
    code_factor: u64,
    data_factor: i64,
    row: Row,
    initial: Option<Row>,
    remembered: [Option<Row>; REMEMBERED],
    depth: usize,
}

impl Program {
    pub(super) fn new(cie: &CommonInformationEntry<Bytes>) -> Program {
        let cfa = CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 0 };
        Program {
            code_factor: cie.code_alignment_factor(),
            data_factor: cie.data_alignment_factor(),
            row: Row { cfa, bp: Column::Unset, return_address: Column::Unset },
            initial: None,
            remembered: [const { None }; REMEMBERED],
            depth: 0,
        }
    }

    /// Runs the CIE's instructions. `None` if they can't be read.
    pub(super) fn begin(&mut self, instructions: CallFrameInstructionIter<Bytes>) -> Option<()> {
        self.run(instructions, 0, u64::MAX)?;
        self.initial = Some(self.row.clone());
        Some(())
    }

    /// Runs a function's instructions, from its `start` on, as far as they hold for `at`.
    #[inline(never)]
    pub(super) fn run(
        &mut self,
        mut instructions: CallFrameInstructionIter<Bytes>,
        start: u64,
        at: u64,
    ) -> Option<&Row> {
        let mut location = start;
        while let Some(instruction) = instructions.next().ok()? {
            match instruction {
                Instruction::SetLoc { address } => location = address,
                Instruction::AdvanceLoc { delta } => {
                    location = location.wrapping_add(u64::from(delta).wrapping_mul(self.code_factor));
                }
                other => self.apply(other)?,
            }
            if location > at {
                break;
            }
        }
        Some(&self.row)
    }

    /// `None` if the instruction makes no sense here.
    fn apply(&mut self, instruction: Instruction<usize>) -> Option<()> {
        let factor = self.data_factor;
        let factored = |offset: i64| Column::Offset(offset.wrapping_mul(factor));
        match instruction {
            Instruction::DefCfa { register, offset } => {
                self.row.cfa = CfaRule::RegisterAndOffset { register, offset: offset as i64 };
            }
            Instruction::DefCfaSf { register, factored_offset } => {
                self.row.cfa = CfaRule::RegisterAndOffset { register, offset: factored_offset.wrapping_mul(factor) };
            }
            Instruction::DefCfaRegister { register } => *self.cfa()?.0 = register,
            Instruction::DefCfaOffset { offset } => *self.cfa()?.1 = offset as i64,
            Instruction::DefCfaOffsetSf { factored_offset } => {
                *self.cfa()?.1 = factored_offset.wrapping_mul(factor);
            }
            Instruction::DefCfaExpression { expression } => self.row.cfa = CfaRule::Expression(expression),
            Instruction::Undefined { register } => self.set(register, Column::Undefined),
            Instruction::SameValue { register } => self.set(register, Column::Same),
            Instruction::Offset { register, factored_offset } => self.set(register, factored(factored_offset as i64)),
            Instruction::OffsetExtendedSf { register, factored_offset } => {
                self.set(register, factored(factored_offset));
            }
            Instruction::Expression { register, expression } => self.set(register, Column::Expression(expression)),
            Instruction::ValOffset { register, .. }
            | Instruction::ValOffsetSf { register, .. }
            | Instruction::ValExpression { register, .. }
            | Instruction::Register { dest_register: register, .. } => self.set(register, Column::Other),
            Instruction::Restore { register } => {
                let initial = self.initial.as_ref()?;
                let (bp, return_address) = (initial.bp, initial.return_address);
                self.set(register, if register == X86_64::RBP { bp } else { return_address });
            }
            Instruction::RememberState => {
                *self.remembered.get_mut(self.depth)? = Some(self.row.clone());
                self.depth += 1;
            }
            Instruction::RestoreState => {
                self.depth = self.depth.checked_sub(1)?;
                self.row = self.remembered.get_mut(self.depth)?.take()?;
            }
            Instruction::ArgsSize { .. } | Instruction::Nop => {}
            // Whatever it is, the rows after it can't be relied on.
            _ => return None,
        }
        Some(())
    }

    /// The CFA's register and offset, unless an expression says it.
    fn cfa(&mut self) -> Option<(&mut Register, &mut i64)> {
        match &mut self.row.cfa {
            CfaRule::RegisterAndOffset { register, offset } => Some((register, offset)),
            CfaRule::Expression(_) => None,
        }
    }

    fn set(&mut self, register: Register, column: Column) {
        match register {
            X86_64::RBP => self.row.bp = column,
            X86_64::RA => self.row.return_address = column,
            _ => {}
        }
    }
}
