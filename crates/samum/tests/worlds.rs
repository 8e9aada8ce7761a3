//! The tests of the server in simulated worlds, in one program.

mod cases;
#[path = "common/options.rs"]
mod options;
mod seams;
mod simulation;
