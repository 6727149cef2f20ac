//! The whole scheduler as a state machine: events in, commands out. No I/O, no clock; one owner.
//!
//! `Engine::take` is told what happened, `Engine::step` tries one pod, and what the outside has to do is collected as
//! commands whose outcomes come back as events. The same inputs at the same times give the same commands.

pub mod command;
pub mod input;

pub use command::Command;
pub use input::Input;
