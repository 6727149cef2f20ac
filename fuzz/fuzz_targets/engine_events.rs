//! Events in any order and shape: the engine never panics, and its ledger stays equal to a recount.
//!
//! One event per line, as JSON (`Input`); a line that is none steps, or answers the oldest command by its first byte.

#![no_main]

use koord_engine::Engine;
use koord_engine::engine::{Command, Input, Options, Outcome};
use koord_engine::profile::Profile;
use koord_engine::time::Time;
use libfuzzer_sys::fuzz_target;

/// What became of a command, as a byte decides.
fn outcome(command: &Command, byte: u8) -> Option<(String, Outcome)> {
    let message = || "no".to_owned();
    Some(match command {
        Command::Bind(binding) => {
            let failed = Outcome::BindFailed { message: message() };
            (binding.pod.uid.to_string(), if byte % 2 == 0 { Outcome::Bound } else { failed })
        }
        Command::Prepare(plan) => {
            let failed = Outcome::PrepareFailed { message: message() };
            (plan.pod.as_ref()?.uid.to_string(), if byte % 2 == 0 { Outcome::Prepared } else { failed })
        }
        Command::Preempt(order) => {
            let failed = Outcome::PreemptFailed { message: message() };
            (order.preemptor.uid.to_string(), if byte % 2 == 0 { Outcome::Preempted } else { failed })
        }
        Command::PatchStatus(_) | Command::Tell(_) | Command::Warn(_) => return None,
    })
}

fuzz_target!(|data: &[u8]| {
    let options = Options::new(vec![Profile::standard("default-scheduler")]);
    let mut engine = Engine::new(&options).expect("the standard profile is right");
    let mut commands: Vec<Command> = Vec::new();
    let mut now = Time::from_seconds(1_000_000);
    for line in data.split(|byte| *byte == b'\n').take(200) {
        match serde_json::from_slice::<Input>(line) {
            Ok(input) => engine.take(now, input),
            Err(_) => match line.first().copied().unwrap_or(b's') {
                b's' => drop(engine.step(now)),
                b't' => {
                    // Clocks jump, also back.
                    let by = i64::from(line.get(1).copied().unwrap_or(0)) - 64;
                    now = Time::from_seconds(now.nanos() / 1_000_000_000 + by * 10);
                    engine.take(now, Input::Tick);
                }
                byte => {
                    if let Some((uid, outcome)) = commands.pop().and_then(|command| outcome(&command, byte)) {
                        engine.take(now, Input::Outcome { uid, outcome });
                    }
                }
            },
        }
        commands.extend(engine.take_commands());
        let cluster = engine.cluster();
        assert_eq!(cluster.recount(), cluster.ledger());
    }
});
