//! A small virtual machine with a kernel of its own: cgroup v2, two NUMA nodes, two threads to a core.
//!
//! QEMU runs Debian's kernel with a file system in memory that holds one program of ours, a shell, and the libraries
//! that they need. It is emulated, and boots in some five seconds. QEMU is installed by `cargo xtask test`; the kernel is
//! taken from Debian's package once, into the user's cache. Where that cannot be had, tests say so and pass, but not
//! where `CI` is set.

mod archive;
mod kernel;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use archive::Archive;

const QEMU: &str = "qemu-system-x86_64";
/// Long enough for a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(300);
/// What the machine is, in the words of `crates/linux/tests/real_node.rs`.
const SHAPE: &str = "cpus=4 cores=2 sockets=2 nodes=2";
/// Before the exit status of the program, on a line of its own.
const END_MARK: &str = "koord-machine-end:";
/// Programs of the host that go along.
const PROGRAMS: [&str; 3] = ["sh", "mount", "mkdir"];

/// What is needed to start machines.
#[derive(Clone, Debug)]
pub struct Machine {
    kernel: PathBuf,
}

/// What a program did in a machine.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub status: i32,
    /// Both streams, and what the kernel said.
    pub output: String,
}

impl Machine {
    /// None, and a word why, where this host cannot start one.
    ///
    /// # Panics
    /// When it cannot and `CI` is set, for there a skip is a failure.
    #[expect(clippy::print_stderr, reason = "tests say why they skip")]
    pub fn find() -> Option<Machine> {
        let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
        match Machine::prepare() {
            Ok(machine) => Some(machine),
            Err(error) if in_ci => panic!("this test needs a virtual machine, and CI is set: {error:#}"),
            Err(error) => {
                eprintln!("SKIPPED: this test needs a virtual machine: {error:#}");
                None
            }
        }
    }

    fn prepare() -> Result<Machine> {
        ensure!(cfg!(target_arch = "x86_64"), "machines are made for x86_64 alone");
        let version = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
        version.with_context(|| format!("{QEMU} is missing; `cargo xtask test` installs it"))?;
        Ok(Machine { kernel: kernel::find()? })
    }

    /// Boots, runs a program of this host with some arguments, and takes the machine down.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> Result<Outcome> {
        let dir = tempfile::tempdir()?;
        let archive = dir.path().join("initramfs");
        fs::write(&archive, files(program, arguments)?)?;
        let console = dir.path().join("console");
        let mut qemu = self.qemu(&archive).stdout(File::create(&console)?).spawn()?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = qemu.try_wait()? {
                break status;
            }
            if start.elapsed() > PATIENCE {
                qemu.kill()?;
                qemu.wait()?;
                bail!("the machine did not end:\n{}", text(&console)?);
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        let output = text(&console)?;
        let mut ends = output.lines().rev().filter_map(|line| line.trim().strip_prefix(END_MARK));
        let Some(end) = ends.next().and_then(|end| end.trim().parse().ok()) else {
            bail!("the machine ended ({status}) before the program did:\n{output}");
        };
        Ok(Outcome { status: end, output })
    }

    fn qemu(&self, archive: &Path) -> Command {
        let mut qemu = Command::new(QEMU);
        qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-monitor", "none"]);
        // Emulated, since a host that is a virtual machine itself may offer KVM and then fail.
        qemu.args(["-machine", "q35", "-accel", "tcg"]);
        // AMD's model has no threads in QEMU.
        qemu.args(["-cpu", "max,vendor=GenuineIntel", "-smp", "4,sockets=2,cores=1,threads=2", "-m", "512M"]);
        for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
            qemu.args(["-object", &format!("memory-backend-ram,id=memory{node},size=256M")]);
            qemu.args(["-numa", &format!("node,nodeid={node},cpus={cpus},memdev=memory{node}")]);
        }
        qemu.args(["-serial", "stdio", "-append", "console=ttyS0 quiet panic=-1 psi=1"]);
        qemu.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(archive);
        qemu.stdin(Stdio::null()).stderr(Stdio::inherit());
        qemu
    }
}

fn text(console: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(console)?).into_owned())
}

/// The file system of the machine.
fn files(program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for dir in ["dev", "proc", "sys", "tmp", "bin"] {
        archive.dir(dir);
    }
    archive.console("dev/console");
    let mut programs = vec![("bin/program".to_owned(), program.to_owned())];
    for name in PROGRAMS {
        programs.push((format!("bin/{name}"), kernel::which(name)?));
    }
    for (place, path) in &programs {
        archive.file(place, &fs::read(path).with_context(|| path.display().to_string())?);
        for library in libraries(path)? {
            archive.file_with_dirs(&library, &fs::read(&library)?)?;
        }
    }
    let words: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
    archive.file("init", init(&words.join(" ")).as_bytes());
    Ok(archive.finish())
}

/// The first process: mounts what Linux has, runs the program, and takes the machine down.
fn init(arguments: &str) -> String {
    format!(
        "#!/bin/sh
export PATH=/bin RUST_BACKTRACE=1 KOORD_MACHINE_SHAPE='{SHAPE}'
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo '+cpu +cpuset +memory +io +pids' > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/kubepods
/bin/program {arguments} 2>&1
echo \"{END_MARK} $?\"
echo o > /proc/sysrq-trigger
read forever
"
    )
}

/// The libraries of a program, as the loader finds them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    ensure!(output.status.success(), "ldd {}: {}", program.display(), output.status);
    let lines = String::from_utf8(output.stdout)?;
    // `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, or the loader alone.
    let paths = lines.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}
