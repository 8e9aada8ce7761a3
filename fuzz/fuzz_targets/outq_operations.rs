//! The send queue against its naive model: any operations in any order. The numbers are brought
//! into what the protocol allows by `outq::model`, so no input is wasted on calls that are meant to
//! panic.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// `outq::model::Operation`; the crate itself has no dependencies and so cannot derive `Arbitrary`.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Operation {
    Promise(u16),
    Push(u16),
    Fill(u16, u16),
    Fail(u16),
    Retract(u16),
    Send(u16),
    Release(u16),
    Take(u16),
    Abort,
    Shrink,
    Restart,
}

impl From<Operation> for outq::model::Operation {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Promise(n) => Self::Promise(n),
            Operation::Push(n) => Self::Push(n),
            Operation::Fill(at, n) => Self::Fill(at, n),
            Operation::Fail(at) => Self::Fail(at),
            Operation::Retract(at) => Self::Retract(at),
            Operation::Send(n) => Self::Send(n),
            Operation::Release(n) => Self::Release(n),
            Operation::Take(max) => Self::Take(max),
            Operation::Abort => Self::Abort,
            Operation::Shrink => Self::Shrink,
            Operation::Restart => Self::Restart,
        }
    }
}

fuzz_target!(|operations: Vec<Operation>| {
    let mut pair = outq::model::Pair::default();
    for operation in operations {
        pair.apply(operation.into());
    }
});
