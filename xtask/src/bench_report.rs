//! Figures of a benchmark and the bars they must reach.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::step::say;

/// Figures and the bars they must reach.
#[derive(Default)]
pub(crate) struct Report {
    short: Vec<String>,
}

impl Report {
    pub(crate) fn figure(&mut self, text: &str, bar: &str, is_met: bool) {
        say(&format!("{} {text:<72} bar: {bar}", if is_met { "ok   " } else { "SHORT" }));
        if !is_met {
            self.short.push(text.to_owned());
        }
    }

    pub(crate) fn finish(self) -> Result<()> {
        ensure!(self.short.is_empty(), "{} figures are short of their bars", self.short.len());
        Ok(())
    }
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
