//! What is logged of single decisions when somebody asks for it: best nodes, refusals, diagnoses. Spec: scheduler-core
//! 9.14.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use koord_engine::engine::dump::{Dumps, Refusal, ScoreTable};
use koord_engine::pod::PodKey;
use tokio::sync::mpsc;

use crate::flags::Debug;

pub mod diagnosis;

use diagnosis::Diagnosis;

/// The switches, changed over HTTP while we run.
#[derive(Debug, Default)]
pub struct Switches {
    top_scores: AtomicI64,
    refusals: AtomicBool,
    diagnosis: AtomicBool,
    /// Whether the engine's thread itself writes diagnoses.
    is_blocking: AtomicBool,
    /// None where nobody reads them.
    diagnoses: Option<mpsc::Sender<Diagnosis>>,
}

impl Switches {
    /// As the flags have them, and what [`diagnosis::log_all`] reads.
    pub fn shared(flags: &Debug) -> (Arc<Switches>, mpsc::Receiver<Diagnosis>) {
        let (sender, diagnoses) = mpsc::channel(flags.diagnosis_queue_size.max(1));
        let switches = Switches {
            top_scores: AtomicI64::new(i64::try_from(flags.top_scores).unwrap_or(i64::MAX)),
            refusals: AtomicBool::new(flags.filters),
            diagnosis: AtomicBool::new(flags.diagnosis),
            is_blocking: AtomicBool::new(flags.diagnosis_blocking),
            diagnoses: Some(sender),
        };
        (Arc::new(switches), diagnoses)
    }

    /// Writes a diagnosis to the log, at once or soon; one too many is dropped.
    pub fn log_diagnosis(&self, diagnosis: Diagnosis) {
        match &self.diagnoses {
            Some(queue) if !self.is_blocking.load(Ordering::Relaxed) => {
                if let Err(mpsc::error::TrySendError::Full(diagnosis)) = queue.try_send(diagnosis) {
                    let pod = &diagnosis.pod.key;
                    tracing::warn!("Diagnosis queue is full, dropping diagnosis for {pod}");
                }
            }
            _ => tracing::info!("{}", diagnosis.line()),
        }
    }

    /// What attempts should keep. A negative number of nodes is none.
    pub fn dumps(&self) -> Dumps {
        Dumps {
            top_scores: usize::try_from(self.top_scores.load(Ordering::Relaxed)).unwrap_or(0),
            refusals: self.refusals.load(Ordering::Relaxed),
            diagnosis: self.diagnosis.load(Ordering::Relaxed),
        }
    }

    /// `PUT /debug/flags/s`: the answer's text, or the refusal's.
    pub fn set_top_scores(&self, text: &str) -> Result<String, String> {
        let number = i64::from_str(text)
            .map_err(|_| format!("failed set debugTopNScores {text}: {}", not_parsed("Atoi", text)))?;
        self.top_scores.store(number, Ordering::Relaxed);
        Ok(format!("successfully set debugTopNScores to {text}"))
    }

    /// `PUT /debug/flags/f`.
    pub fn set_refusals(&self, text: &str) -> Result<String, String> {
        set(&self.refusals, text)
    }

    /// `PUT /debug/flags/d`.
    pub fn set_diagnosis(&self, text: &str) -> Result<String, String> {
        set(&self.diagnosis, text)
    }

    /// `PUT /debug/flags/db`.
    pub fn set_blocking(&self, text: &str) -> Result<String, String> {
        set(&self.is_blocking, text)
    }
}

/// The same name in all answers, as in Koordinator's.
fn set(switch: &AtomicBool, text: &str) -> Result<String, String> {
    let on = match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
        "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
        _ => {
            let reason = not_parsed("ParseBool", text);
            return Err(format!("failed set debugFilterFailure {text}: {reason}"));
        }
    };
    switch.store(on, Ordering::Relaxed);
    Ok(format!("successfully set debugFilterFailure to {text}"))
}

fn not_parsed(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: invalid syntax")
}

/// The heading of a score dump.
pub fn scores_heading(pod: &PodKey, top: usize, table: &ScoreTable) -> String {
    format!(
        "Top{top} scores for Pod: {pod}, feasibleNodes: {}, plugins:[{}]",
        table.feasible,
        table.plugins.join(" ")
    )
}

/// The scores as a Markdown table.
pub fn scores_table(pod: &PodKey, table: &ScoreTable) -> String {
    let mut text = String::from("| # | Pod | Node | Score |");
    for plugin in &table.plugins {
        let _ = write!(text, " {plugin} |");
    }
    text.push_str("\n| ---: | --- | --- | ---: |");
    text.push_str(&" ---: |".repeat(table.plugins.len()));
    for (number, row) in table.rows.iter().enumerate() {
        let _ = write!(text, "\n| {number} | {pod} | {} | {} |", row.node, row.total);
        for part in &row.parts {
            let _ = write!(text, " {part} |");
        }
    }
    text
}

/// Why a node was refused, in one line.
pub fn refusal_line(pod: &PodKey, refusal: &Refusal) -> String {
    let Refusal { node, plugin, reason } = refusal;
    format!(
        "Failed to filter for Pod \"{pod}\" on Node \"{node}\" (pass 1), failedPlugin: {plugin}, reason: {reason}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use koord_engine::engine::dump::ScoreRow;

    fn pod() -> PodKey {
        PodKey { namespace: "ns".into(), name: "p".into() }
    }

    #[test]
    fn switches_answer_as_koordinator_does() {
        let switches = Switches::default();
        for (key, text, want, top) in [
            ("scheduler-core#9.12.X5", "3", Ok("successfully set debugTopNScores to 3"), 3),
            ("negative is off", "-1", Ok("successfully set debugTopNScores to -1"), 0),
            (
                "refused",
                "x",
                Err("failed set debugTopNScores x: strconv.Atoi: parsing \"x\": invalid syntax"),
                0,
            ),
        ] {
            let got = switches.set_top_scores(text);
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{key}");
            assert_eq!(switches.dumps().top_scores, top, "{key}");
        }
        for (key, text, want, on) in [
            ("scheduler-core#9.12.X6", "1", Ok("successfully set debugFilterFailure to 1"), true),
            ("off", "F", Ok("successfully set debugFilterFailure to F"), false),
            ("on", "True", Ok("successfully set debugFilterFailure to True"), true),
            (
                "refused",
                "yes",
                Err("failed set debugFilterFailure yes: strconv.ParseBool: parsing \"yes\": invalid syntax"),
                true,
            ),
        ] {
            let got = switches.set_refusals(text);
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{key}");
            assert_eq!(switches.dumps().refusals, on, "{key}");
        }
    }

    /// scheduler-core#9.12.X7
    #[test]
    fn the_best_nodes_stand_in_a_table() {
        let rows = vec![ScoreRow { node: "b".into(), total: 9, parts: vec![9] }];
        let table = ScoreTable { plugins: vec!["P"], rows, feasible: 2 };
        assert_eq!(
            scores_table(&pod(), &table),
            "| # | Pod | Node | Score | P |\n| ---: | --- | --- | ---: | ---: |\n| 0 | ns/p | b | 9 | 9 |"
        );
        assert_eq!(
            scores_heading(&pod(), 1, &table),
            "Top1 scores for Pod: ns/p, feasibleNodes: 2, plugins:[P]"
        );
    }

    #[test]
    fn refusals_are_one_line_each() {
        let refusal = Refusal { node: "n".into(), plugin: "NodeName", reason: "no".into() };
        assert_eq!(
            refusal_line(&pod(), &refusal),
            "Failed to filter for Pod \"ns/p\" on Node \"n\" (pass 1), failedPlugin: NodeName, reason: no"
        );
    }
}
