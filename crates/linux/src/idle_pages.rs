//! Cold memory, as Anolis' kidled counts it. Spec: koordlet-observe 5.11.

use std::fs;
use std::path::PathBuf;

use crate::error::{Error, Malformed};
use crate::root::Root;
use crate::text::{lines, number, words};

/// Lines of `memory.idle_page_stats`: 6 of keys, 8 of ornament, 17 of counts.
const LINES: usize = 31;
const FIRST_ROW: usize = 14;
const BUCKETS: usize = 8;
/// Clean and dirty file pages, evictable or not, that nobody touched.
const COLD_ROWS: [&[u8]; 4] = [b"cfei", b"dfei", b"cfui", b"dfui"];
/// Buckets from here on are idle for 60 scans and more.
pub const COLD_FROM: usize = 5;

/// Bytes of cold page cache; buckets from `cold_from` on count.
pub fn cold_bytes(content: &[u8], cold_from: usize) -> Result<u64, Malformed> {
    let count = lines(content).count();
    if count != LINES {
        return Err(Malformed(format!("memory.idle_page_stats has {count} lines, expected {LINES}")));
    }
    let mut cold = 0u64;
    for line in lines(content).skip(FIRST_ROW) {
        let mut row = words(line);
        let Some(name) = row.next() else { continue };
        if !COLD_ROWS.contains(&name) {
            continue;
        }
        let mut buckets = 0;
        for (bucket, word) in row.enumerate() {
            let bytes: u64 = number(word).ok_or_else(|| bad_row(line))?;
            buckets = bucket + 1;
            if bucket >= cold_from {
                cold = cold.saturating_add(bytes);
            }
        }
        if buckets < BUCKETS {
            return Err(bad_row(line));
        }
    }
    Ok(cold)
}

fn bad_row(line: &[u8]) -> Malformed {
    Malformed(format!("memory.idle_page_stats has an odd row {:?}", crate::text::shown(line)))
}

/// The switches of kidled.
#[derive(Clone, Debug)]
pub struct Kidled {
    scan_period: PathBuf,
    use_hierarchy: PathBuf,
    /// What they held before us, for whoever comes after a kill.
    kept: PathBuf,
}

/// What the switches held, to be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KidledState {
    scan_period: String,
    use_hierarchy: String,
}

impl Kidled {
    /// None on a kernel without it. Asking changes nothing.
    pub fn find(root: &Root) -> Option<Kidled> {
        let dir = root.sys.join("kernel/mm/kidled");
        let kidled = Kidled {
            scan_period: dir.join("scan_period_in_seconds"),
            use_hierarchy: dir.join("use_hierarchy"),
            kept: root.state.join("kidled-before"),
        };
        (kidled.scan_period.exists() && kidled.use_hierarchy.exists()).then_some(kidled)
    }

    /// Starts a scan every 5 s over whole hierarchies; gives what was there before, also before a run that was killed.
    pub fn enable(&self) -> Result<KidledState, Error> {
        let before = match self.kept() {
            Some(before) => before,
            None => self.keep()?,
        };
        self.write("5", "1")?;
        Ok(before)
    }

    pub fn restore(&self, before: &KidledState) -> Result<(), Error> {
        self.write(&before.scan_period, &before.use_hierarchy)?;
        // Found again, it makes the next run put the same values back.
        let _ = fs::remove_file(&self.kept);
        Ok(())
    }

    /// Puts back what a run left that was killed, and says whether there was such a run.
    pub fn give_back(root: &Root) -> Result<bool, Error> {
        let Some(kidled) = Kidled::find(root) else { return Ok(false) };
        kidled.kept().map_or(Ok(false), |before| kidled.restore(&before).map(|()| true))
    }

    fn kept(&self) -> Option<KidledState> {
        let text = crate::text::read(&self.kept).ok()?;
        let (scan_period, use_hierarchy) = text.trim().split_once(' ')?;
        Some(KidledState { scan_period: scan_period.to_owned(), use_hierarchy: use_hierarchy.to_owned() })
    }

    /// Reads the switches and writes down what they hold, whole or not at all.
    fn keep(&self) -> Result<KidledState, Error> {
        let read = |path: &PathBuf| crate::text::read(path).map(|text| text.trim().to_owned());
        let before =
            KidledState { scan_period: read(&self.scan_period)?, use_hierarchy: read(&self.use_hierarchy)? };
        let text = format!("{} {}", before.scan_period, before.use_hierarchy);
        let fresh = self.kept.with_extension("new");
        let made = self.kept.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&fresh, &text))
            .and_then(|()| fs::rename(&fresh, &self.kept))
            .map_err(|source| Error::write(&self.kept, &text, source))?;
        Ok(before)
    }

    fn write(&self, scan_period: &str, use_hierarchy: &str) -> Result<(), Error> {
        for (path, value) in [(&self.scan_period, scan_period), (&self.use_hierarchy, use_hierarchy)] {
            fs::write(path, value).map_err(|source| Error::write(path, value, source))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(rows: &[(&str, [u64; 8])]) -> String {
        let mut lines: Vec<String> = vec!["# version: 1.0".into(); 6];
        lines.extend((6..14).map(|_| "  ornament".to_owned()));
        let names =
            ["csei", "dsei", "cfei", "dfei", "csui", "dsui", "cfui", "dfui", "csea", "dsea", "cfea", "dfea"];
        for name in names.iter().copied().chain(["csua", "dsua", "cfua", "dfua", "slab"]) {
            let values = rows.iter().find(|(row, _)| *row == name).map_or([0; 8], |(_, values)| *values);
            lines.push(format!("{name} {}", values.map(|value| value.to_string()).join(" ")));
        }
        lines.join("\n") + "\n"
    }

    #[test]
    fn cold_page_cache() {
        // koordlet-observe#13.2.B21
        let text = stats(&[
            ("cfei", [9, 9, 9, 9, 9, 1, 2, 3]),
            ("dfei", [9, 9, 9, 9, 9, 0, 0, 4]),
            ("csei", [9; 8]),
        ]);
        assert_eq!(cold_bytes(text.as_bytes(), COLD_FROM), Ok(10));
        // koordlet-observe#13.2.B22
        let short = text.split_once('\n').unwrap().1;
        let fault = cold_bytes(short.as_bytes(), COLD_FROM).unwrap_err().to_string();
        assert_eq!(fault, "memory.idle_page_stats has 30 lines, expected 31");
        assert!(cold_bytes(text.replace("cfei 9 9", "cfei x 9").as_bytes(), COLD_FROM).is_err());
        assert!(cold_bytes(text.replace("cfei 9 9", "cfei").as_bytes(), COLD_FROM).is_err());
    }

    #[test]
    fn asking_is_not_enabling() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::host(tree.path());
        assert!(Kidled::find(&root).is_none());
        let dir = root.sys.join("kernel/mm/kidled");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("scan_period_in_seconds"), "0\n").unwrap();
        fs::write(dir.join("use_hierarchy"), "0\n").unwrap();
        let held = || {
            ["scan_period_in_seconds", "use_hierarchy"]
                .map(|name| fs::read_to_string(dir.join(name)).unwrap())
        };
        // koordlet-observe#13.2.B52
        let kidled = Kidled::find(&root).unwrap();
        assert_eq!(held(), ["0\n", "0\n"]);
        let before = kidled.enable().unwrap();
        assert_eq!(held(), ["5", "1"]);
        kidled.restore(&before).unwrap();
        assert_eq!(held(), ["0", "0"]);
        // Killed while it was on, it is put back all the same: at the end of the next run, or without one.
        kidled.enable().unwrap();
        let before = Kidled::find(&root).unwrap().enable().unwrap();
        kidled.restore(&before).unwrap();
        assert_eq!(held(), ["0", "0"]);
        kidled.enable().unwrap();
        Kidled::give_back(&root).unwrap();
        assert_eq!(held(), ["0", "0"]);
        fs::write(dir.join("use_hierarchy"), "1").unwrap();
        Kidled::give_back(&root).unwrap();
        assert_eq!(held(), ["0", "1"], "once is enough");
    }
}
