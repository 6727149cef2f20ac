//! How a demonstration speaks: paragraphs, steps, progress while it waits, a table at the end.
//!
//! Plain text. On a terminal the line of progress is written over; elsewhere it is told now and then.

use std::io::Write;
use std::time::{Duration, Instant};

use super::stage::{StepOutcome, StepReport};

/// Columns that running text takes.
const WIDTH: usize = 100;

/// How often a reader who is not at a terminal hears that we still wait.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Where commentary goes. Nothing is said twice, and a reader who went away is no error.
pub(crate) struct Voice {
    out: Box<dyn Write + Send>,
    is_terminal: bool,
    /// What the line of progress says now, and since when.
    progress: Option<(String, Instant)>,
}

impl Voice {
    pub(crate) fn new(out: Box<dyn Write + Send>, is_terminal: bool) -> Voice {
        Voice { out, is_terminal, progress: None }
    }

    /// Standard output.
    pub(crate) fn stdout() -> Voice {
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        Voice::new(Box::new(std::io::stdout()), is_terminal)
    }

    /// Lines as they are.
    pub(crate) fn say(&mut self, text: &str) {
        self.end_progress();
        let _ = writeln!(self.out, "{}", text.trim_end());
        let _ = self.out.flush();
    }

    /// A heading, with a line below it.
    pub(super) fn heading(&mut self, text: &str) {
        let line = "=".repeat(text.chars().count());
        self.say(&format!("\n{text}\n{line}"));
    }

    /// Running text, broken into lines.
    pub(super) fn paragraphs(&mut self, text: &str, indent: usize) {
        if !text.trim().is_empty() {
            let wrapped = wrap(text, indent, WIDTH);
            self.say(&wrapped);
        }
    }

    /// What is being waited for; told again only when it changes.
    pub(super) fn progress(&mut self, text: &str) {
        if self.is_terminal {
            let line: String = text.chars().take(WIDTH).collect();
            let _ = write!(self.out, "\r\x1b[K   … {line}");
            let _ = self.out.flush();
            self.progress = Some((String::new(), Instant::now()));
            return;
        }
        match &self.progress {
            None => self.progress = Some((String::new(), Instant::now())),
            Some((said, since)) if said != text && since.elapsed() >= PROGRESS_INTERVAL => {
                let _ = writeln!(self.out, "   … {text}");
                let _ = self.out.flush();
                self.progress = Some((text.to_owned(), Instant::now()));
            }
            Some(_) => {}
        }
    }

    fn end_progress(&mut self) {
        if self.progress.take().is_some() && self.is_terminal {
            let _ = write!(self.out, "\r\x1b[K");
        }
    }
}

/// Breaks running text into lines of at most `width` columns. Empty lines part paragraphs; lines that begin with
/// a blank are kept as they are.
pub(super) fn wrap(text: &str, indent: usize, width: usize) -> String {
    let margin = " ".repeat(indent);
    let mut lines: Vec<String> = Vec::new();
    // Whether the next word may join the last line.
    let mut is_open = false;
    for line in text.trim_end().lines() {
        if line.trim().is_empty() || line.starts_with(' ') {
            lines.push(if line.trim().is_empty() { String::new() } else { format!("{margin}{line}") });
            is_open = false;
            continue;
        }
        for word in line.split_whitespace() {
            match lines
                .last_mut()
                .filter(|last| is_open && last.chars().count() + 1 + word.chars().count() <= width)
            {
                Some(last) => last.extend([" ", word]),
                None => lines.push(format!("{margin}{word}")),
            }
            is_open = true;
        }
    }
    lines.join("\n")
}

/// The table at the end.
pub(super) fn summary(reports: &[StepReport]) -> String {
    let width = |cell: fn(&StepReport) -> &str, least: usize| {
        reports.iter().map(|report| cell(report).chars().count()).max().unwrap_or(0).max(least)
    };
    let part_width = width(|report| &report.part, 4);
    let step_width = width(|report| &report.step, 4);
    let mut text =
        format!("{:<part_width$}  {:<step_width$}  {:<8}  {:>8}\n", "PART", "STEP", "RESULT", "TIME");
    for report in reports {
        let result = match report.outcome {
            StepOutcome::Reached => "ok",
            StepOutcome::Missed => "MISSED",
            StepOutcome::NotRun => "not run",
        };
        let time = match report.outcome {
            StepOutcome::NotRun => "-".to_owned(),
            _ => format!("{:.1} s", report.took.as_secs_f64()),
        };
        let row =
            format!("{:<part_width$}  {:<step_width$}  {result:<8}  {time:>8}", report.part, report.step);
        text.push_str(&row);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_text_is_broken_and_examples_are_kept() {
        let text = "one two three four\nfive\n\n  kubectl get pods   -A\nsix seven eight\n";
        assert_eq!(
            wrap(text, 2, 14),
            "  one two\n  three four\n  five\n\n    kubectl get pods   -A\n  six seven\n  eight"
        );
        assert_eq!(wrap("averyveryverylongword b", 0, 5), "averyveryverylongword\nb");
    }

    #[test]
    fn the_table_lines_up() {
        let report = |part: &str, step: &str, outcome, millis| StepReport {
            part: part.to_owned(),
            step: step.to_owned(),
            outcome,
            took: Duration::from_millis(millis),
        };
        let reports = [
            report("rollout", "The shop opens", StepOutcome::Reached, 1234),
            report("rollout", "It grows", StepOutcome::Missed, 60_040),
            report("fit", "Too large", StepOutcome::NotRun, 0),
        ];
        assert_eq!(
            summary(&reports),
            "PART     STEP            RESULT        TIME\n\
             rollout  The shop opens  ok           1.2 s\n\
             rollout  It grows        MISSED      60.0 s\n\
             fit      Too large       not run          -\n"
        );
    }

    #[test]
    fn progress_is_no_noise_in_a_file() {
        let shared = Shared::default();
        let mut voice = Voice::new(Box::new(shared.clone()), false);
        voice.progress("1 of 3");
        voice.progress("2 of 3");
        voice.say("done");
        assert_eq!(shared.text(), "done\n");
        let shared = Shared::default();
        let mut voice = Voice::new(Box::new(shared.clone()), true);
        voice.progress("1 of 3");
        voice.say("done");
        assert_eq!(shared.text(), "\r\x1b[K   … 1 of 3\r\x1b[Kdone\n");
    }

    #[derive(Clone, Default)]
    struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
