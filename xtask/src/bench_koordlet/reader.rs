//! The measure: a process that opens and reads the same files once a second and does nothing with them.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::world::World;

/// A running reader. Killed when dropped.
pub(super) struct Reader {
    child: Child,
}

impl Reader {
    pub(super) fn start(world: &World) -> Result<Reader> {
        let child = Command::new(std::env::current_exe()?)
            .args(["bench", "koordlet", "--read"])
            .arg(world.list())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the reader")?;
        Ok(Reader { child })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads until killed.
pub(super) fn read(list: &Path) -> Result<()> {
    let files: Vec<PathBuf> = fs::read_to_string(list)?.lines().map(PathBuf::from).collect();
    let mut buffer = vec![0; 1 << 16];
    loop {
        for path in &files {
            let length = File::open(path)?.read(&mut buffer)?;
            ensure!(length > 0, "{} is empty", path.display());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
