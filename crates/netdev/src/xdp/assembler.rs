//! An assembler for BPF (RFC 9669) with labels for jumps. Pure. It has only the instructions that the
//! XDP program needs.

/// A register. R0 is for the result, R1 to R5 for arguments, R6 to R9 survive calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
}

/// The size of a load from memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    /// One byte.
    Byte = 0x10,
    /// Two bytes.
    Half = 0x08,
    /// Four bytes.
    Word = 0x00,
    /// Eight bytes.
    Double = 0x18,
}

/// The target of a jump.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<u64>,
    /// For each placed label, the number of the instruction after it.
    labels: Vec<Option<usize>>,
    /// Jumps, and their labels.
    jumps: Vec<(usize, Label)>,
}

// Classes.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
// The flag of instructions with a register as second operand, instead of an immediate.
const X: u8 = 0x08;
// Modes and operations.
const MODE_MEMORY: u8 = 0x60;
const IMM64: u8 = 0x18;
const ADD: u8 = 0x00;
const OR: u8 = 0x40;
const AND: u8 = 0x50;
const LSH: u8 = 0x60;
const MOV: u8 = 0xb0;
const JA: u8 = 0x00;
const JEQ: u8 = 0x10;
const JGT: u8 = 0x20;
const JSET: u8 = 0x40;
const JNE: u8 = 0x50;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// The source field of a 64-bit load whose number is the descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;

use Register::R0;

impl Assembler {
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub(crate) fn place(&mut self, label: Label) {
        let before = self.labels[label.0].replace(self.instructions.len());
        assert!(before.is_none(), "a label has one place");
    }

    /// `to = number`
    pub(crate) fn set(&mut self, to: Register, number: i32) {
        self.push(ALU64 | MOV, to, R0, number);
    }

    /// `to = number`, which has 64 bits.
    pub(crate) fn set_wide(&mut self, to: Register, number: u64) {
        self.push_wide(to, R0 as u8, number);
    }

    /// `to =` the map behind a descriptor
    pub(crate) fn set_map(&mut self, to: Register, fd: u32) {
        self.push_wide(to, PSEUDO_MAP_FD, fd.into());
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.push(ALU64 | MOV | X, to, from, 0);
    }

    /// `to += number`
    pub(crate) fn add(&mut self, to: Register, number: i32) {
        self.push(ALU64 | ADD, to, R0, number);
    }

    /// `to &= number`
    pub(crate) fn and(&mut self, to: Register, number: i32) {
        self.push(ALU64 | AND, to, R0, number);
    }

    /// `to |= other`
    pub(crate) fn or_register(&mut self, to: Register, other: Register) {
        self.push(ALU64 | OR | X, to, other, 0);
    }

    /// `to <<= bits`
    pub(crate) fn shift_left(&mut self, to: Register, bits: i32) {
        self.push(ALU64 | LSH, to, R0, bits);
    }

    /// `to =` the bytes of memory `offset` after `base`, as a number in this machine's byte order
    pub(crate) fn load(&mut self, size: Size, to: Register, base: Register, offset: i16) {
        let word = encode(LDX | MODE_MEMORY | size as u8, to as u8, base as u8, offset, 0);
        self.instructions.push(word);
    }

    /// Jumps.
    pub(crate) fn jump(&mut self, to: Label) {
        self.push_jump(JMP | JA, R0, R0, 0, to);
    }

    /// Jumps if `a > b`.
    pub(crate) fn jump_if_greater(&mut self, a: Register, b: Register, to: Label) {
        self.push_jump(JMP | JGT | X, a, b, 0, to);
    }

    /// Jumps if the lower 32 bits of `a` are `number`.
    pub(crate) fn jump_if(&mut self, a: Register, number: u32, to: Label) {
        self.push_jump(JMP32 | JEQ, a, R0, number.cast_signed(), to);
    }

    /// Jumps if the lower 32 bits of `a` are not `number`.
    pub(crate) fn jump_if_not(&mut self, a: Register, number: u32, to: Label) {
        self.push_jump(JMP32 | JNE, a, R0, number.cast_signed(), to);
    }

    /// Jumps if one of the bits of `number` is in `a`.
    pub(crate) fn jump_if_any_bit(&mut self, a: Register, number: u32, to: Label) {
        self.push_jump(JMP32 | JSET, a, R0, number.cast_signed(), to);
    }

    /// Jumps if `a` and `b` differ.
    pub(crate) fn jump_if_differ(&mut self, a: Register, b: Register, to: Label) {
        self.push_jump(JMP | JNE | X, a, b, 0, to);
    }

    /// `R0 =` a helper function of the kernel with R1 to R5, which do not survive
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(JMP | CALL, R0, R0, helper);
    }

    /// Ends the program with R0.
    pub(crate) fn exit(&mut self) {
        self.push(JMP | EXIT, R0, R0, 0);
    }

    /// Returns the instructions with the jumps' distances filled in.
    ///
    /// # Panics
    ///
    /// If the label of a jump was not placed, or is too far away.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (from, label) in self.jumps {
            let to = self.labels[label.0].expect("a label that is jumped to has a place");
            // A distance counts from the next instruction.
            let distance = isize::try_from(to).ok().zip(isize::try_from(from + 1).ok());
            let distance = distance.and_then(|(to, from)| i16::try_from(to - from).ok());
            let bits = distance.expect("the program is short").cast_unsigned();
            self.instructions[from] |= u64::from(bits) << 16;
        }
        self.instructions
    }

    fn push(&mut self, code: u8, to: Register, from: Register, number: i32) {
        self.instructions.push(encode(code, to as u8, from as u8, 0, number));
    }

    fn push_jump(&mut self, code: u8, a: Register, b: Register, number: i32, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(code, a, b, number);
    }

    /// A number of 64 bits takes two instructions; the second one is only its upper half.
    fn push_wide(&mut self, to: Register, source: u8, number: u64) {
        let [low, high] = [number & 0xffff_ffff, number >> 32];
        self.instructions.push(encode(LD | IMM64, to as u8, source, 0, 0) | low << 32);
        self.instructions.push(high << 32);
    }
}

/// Packs an instruction (`struct bpf_insn`) into a number whose bytes in memory are the instruction's.
///
/// The two registers share a byte, whose halves are the other way round on a big-endian machine.
const fn encode(code: u8, to: u8, from: u8, offset: i16, number: i32) -> u64 {
    code as u64
        | (to as u64) << 8
        | (from as u64) << 12
        | (offset.cast_unsigned() as u64) << 16
        | (number.cast_unsigned() as u64) << 32
}

const _: () = assert!(cfg!(target_endian = "little"), "`encode` is for little-endian machines");

#[cfg(test)]
mod tests {
    use super::*;
    use Register::{R1, R2, R3};

    /// The words are those that `bpftool prog dump xlated` and RFC 9669 give.
    #[test]
    fn instructions_have_their_codes() {
        let mut code = Assembler::default();
        let end = code.label();
        code.set(R0, 2);
        code.load(Size::Word, R2, R1, 4);
        code.load(Size::Half, R3, R2, -2);
        code.set_wide(R3, 0x1122_3344_5566_7788);
        code.set_map(R1, 5);
        code.jump_if_greater(R3, R2, end);
        code.jump_if(R3, 0xfffe, end);
        code.shift_left(R3, 16);
        code.call(51);
        code.place(end);
        code.exit();
        let wanted = [
            0x0000_0002_0000_00b7,
            0x0000_0000_0004_1261,
            0x0000_0000_fffe_2369,
            0x5566_7788_0000_0318,
            0x1122_3344_0000_0000,
            0x0000_0005_0000_1118,
            0x0000_0000_0000_0000,
            0x0000_0000_0003_232d,
            0x0000_fffe_0002_0316,
            0x0000_0010_0000_0367,
            0x0000_0033_0000_0085,
            0x0000_0000_0000_0095,
        ];
        assert_eq!(code.finish(), wanted);
    }

    #[test]
    fn jumps_go_back_and_forth() {
        let mut code = Assembler::default();
        let (back, on) = (code.label(), code.label());
        code.place(back);
        code.jump(on);
        code.jump(back);
        code.place(on);
        code.exit();
        assert_eq!(code.finish(), [0x0001_0005, 0xfffe_0005, 0x95]);
    }
}
