//! Saved models on disk, one file each, named by the key of the model. Spec: koordlet-observe 9.5.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use koord_api::priority::PriorityClass;

use super::{NODE, Predictor, SYSTEM, class_key};

const UNFINISHED: &str = ".tmp";

/// How deep below the folder files are looked for; nobody writes deeper.
const DEPTH_MAX: usize = 8;

/// The folder of saved models. It is never made here: without it nothing is kept.
#[derive(Clone, Debug)]
pub struct Files {
    dir: PathBuf,
    /// A fault that repeats is told once.
    is_failing: bool,
}

impl Files {
    pub fn new(dir: impl Into<PathBuf>) -> Files {
        Files { dir: dir.into(), is_failing: false }
    }

    /// Reads back what the last run left. Files of pods that are gone, and files that cannot be read, are deleted.
    pub fn restore<'p>(&self, predictor: &mut Predictor, pods: impl IntoIterator<Item = &'p str>) {
        let known: BTreeSet<&str> = pods.into_iter().collect();
        let own: BTreeSet<String> = own_keys().collect();
        let mut found = Vec::new();
        walk(&self.dir, 0, &mut found);
        for path in found {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(UNFINISHED) {
                self.delete_file(&path);
                continue;
            }
            if !known.contains(name) && !own.contains(name) {
                tracing::debug!(key = name, "saved model of something that is gone, deleted");
                self.delete_file(&path);
                continue;
            }
            match fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
                Ok(text) => self.take(predictor, &path, name, &text),
                Err(error) => tracing::warn!(path = %path.display(), %error, "cannot read a saved model"),
            }
        }
        tracing::info!(models = predictor.len(), dir = %self.dir.display(), "saved models restored");
    }

    fn take(&self, predictor: &mut Predictor, path: &Path, key: &str, text: &str) {
        match predictor.restore(key, text) {
            Ok(partly) => {
                for fault in partly.0 {
                    tracing::warn!(key, fault, "part of a saved model cannot be used and starts empty");
                }
            }
            Err(error) => {
                tracing::warn!(key, %error, "a saved model cannot be read and is deleted");
                self.delete_file(path);
            }
        }
    }

    /// Drops what expired and saves what is due.
    pub fn keep(&mut self, predictor: &mut Predictor, now_ms: i64) {
        for key in predictor.expire(now_ms) {
            tracing::debug!(key = &*key, "model expired");
            if let Some(path) = self.path(&key) {
                self.delete_file(&path);
            }
        }
        let due = predictor.due(now_ms);
        let result = due.iter().try_for_each(|key| self.save(predictor, key, now_ms));
        match result {
            Ok(()) if due.is_empty() => {}
            Ok(()) => self.is_failing = false,
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::error!(dir = %self.dir.display(), %error, "cannot save models");
            }
            Err(_) => {}
        }
    }

    fn save(&self, predictor: &Predictor, key: &Arc<str>, now_ms: i64) -> io::Result<()> {
        let Some(path) = self.path(key) else { return Ok(()) };
        let Some(text) = predictor.checkpoint(key, now_ms) else { return Ok(()) };
        let unfinished = self.dir.join(format!("{key}{UNFINISHED}"));
        fs::write(&unfinished, text)?;
        fs::rename(&unfinished, &path)
    }

    /// None for a key that would lie elsewhere: the uid of a static pod is whatever its file says.
    fn path(&self, key: &str) -> Option<PathBuf> {
        (!key.is_empty() && !key.starts_with('.') && !key.contains('/')).then(|| self.dir.join(key))
    }

    /// A file that is not there needs no word.
    fn delete_file(&self, path: &Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "cannot delete a saved model");
            }
            _ => {}
        }
    }
}

/// Models that are not a pod's.
fn own_keys() -> impl Iterator<Item = String> {
    let classes = PriorityClass::ALL.into_iter().map(Some).chain([None]).map(class_key);
    [NODE, SYSTEM].into_iter().map(str::to_owned).chain(classes)
}

/// The files below a folder, in order of name.
fn walk(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if depth < DEPTH_MAX {
                walk(&path, depth + 1, found);
            }
        } else {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::models::{History, Sample, Settings, Training};

    const NOW: i64 = 1_767_243_600_000;

    fn names(dir: &Path) -> Vec<String> {
        let mut found = Vec::new();
        walk(dir, 0, &mut found);
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        found.iter().map(name).collect()
    }

    fn trained(now_ms: i64) -> Predictor {
        let mut predictor = Predictor::new(Settings::default());
        let sample = Sample { cores: 1.0, memory: 1e9 };
        let pods = vec![("pod-a".into(), Some(PriorityClass::Prod), sample)];
        predictor.train(&Training { pods, node: Some(sample) }, now_ms);
        predictor
    }

    #[test]
    fn a_restart_keeps_what_was_learnt() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new(folder.path());
        let mut before = trained(NOW);
        files.keep(&mut before, NOW);
        let saved = names(folder.path());
        assert_eq!(saved.len(), before.len());
        assert!(saved.contains(&"pod-a".to_owned()) && saved.contains(&NODE.to_owned()));
        // koordlet-observe#13.7.G14 koordlet-observe#13.7.G25
        for (name, text) in [("x.tmp", "{}"), ("gone-pod", "{}"), ("pod-b", "garbage")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let mut after = Predictor::new(Settings::default());
        files.restore(&mut after, ["pod-a", "pod-b"]);
        assert_eq!(names(folder.path()), saved);
        for key in ["pod-a", NODE, SYSTEM, "__node-koord-prod__"] {
            assert_eq!(after.peaks(key), before.peaks(key), "{key}");
        }
        assert!(after.peaks("pod-b").is_err());
    }

    #[test]
    fn what_expires_goes_from_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new(folder.path());
        let mut predictor = trained(NOW);
        files.keep(&mut predictor, NOW);
        let later = NOW + 31 * 60_000;
        predictor.train(&Training { pods: Vec::new(), node: Some(Sample::default()) }, later);
        files.keep(&mut predictor, later);
        assert!(!names(folder.path()).contains(&"pod-a".to_owned()));
        assert!(names(folder.path()).contains(&NODE.to_owned()));
    }

    #[test]
    fn without_a_folder_nothing_is_kept_and_nothing_breaks() {
        let mut files = Files::new("/nonexistent/models");
        let mut predictor = trained(NOW);
        files.keep(&mut predictor, NOW);
        files.restore(&mut predictor, []);
        assert!(files.is_failing);
        for key in ["", ".", "../x", "a/b", ".hidden"] {
            assert_eq!(files.path(key), None, "{key}");
        }
    }
}
