//! A small virtual machine with a kernel of its own: cgroup v2 or v1, two NUMA nodes, two threads to a core.
//!
//! QEMU runs Debian's kernel with a file system in memory that holds one program of ours, a shell, and the libraries
//! that they need. It is emulated, and boots in some five seconds. QEMU is installed by `cargo xtask test`; the kernel is
//! taken from Debian's package once, into the user's cache. Where that cannot be had, tests say so and pass, but not
//! where `CI` is set.

mod archive;
mod kernel;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use archive::Archive;
pub use kernel::MODULES;

const QEMU: &str = "qemu-system-x86_64";
/// Long enough for a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(900);
/// Until the program begins. An emulated kernel boots in some seconds, or in a minute on a busy host; now and then one of
/// its processors never comes out of a lock.
const BOOT_PATIENCE: Duration = Duration::from_secs(150);
/// How often a machine that does not boot is started anew.
const BOOTS_MAX: u32 = 3;
/// What the machine is, in the words of `crates/linux/tests/real_node.rs`.
const SHAPE: &str = "cpus=4 cores=2 sockets=2 nodes=2";
/// When everything is mounted and the program begins.
const BEGIN_MARK: &str = "koord-machine-begin";
/// Before the exit status of the program, on a line of its own.
const END_MARK: &str = "koord-machine-end:";
/// Programs of the host that always go along.
const PROGRAMS: [&str; 3] = ["sh", "mount", "mkdir"];
/// Controllers of cgroup v1, each mounted where distributions mount it.
const CONTROLLERS_V1: [&str; 6] = ["cpu", "cpuacct", "cpuset", "memory", "blkio", "net_cls"];

/// What is needed to start machines.
#[derive(Clone, Debug)]
pub struct Machine {
    kernel: PathBuf,
    /// Where modules of that kernel are.
    modules: Option<PathBuf>,
}

/// A program that runs in a machine, and what it finds there.
#[derive(Clone, Debug)]
pub struct Trip<'a> {
    pub program: &'a Path,
    pub arguments: &'a [&'a str],
    /// Programs of the host that go along, besides a shell.
    pub programs: &'a [&'a str],
    /// Other files of the host that go along, to the same place.
    pub files: &'a [PathBuf],
    /// Whether all modules that [`MODULES`] names go along, to `/modules`.
    pub has_modules: bool,
    pub memory_mib: u32,
    pub cgroups: Groups,
}

/// Which cgroups a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    V1,
    V2,
}

impl<'a> Trip<'a> {
    /// A program that needs no other than a shell.
    pub fn new(program: &'a Path, arguments: &'a [&'a str]) -> Trip<'a> {
        let cgroups = Groups::V2;
        Trip { program, arguments, programs: &[], files: &[], has_modules: false, memory_mib: 512, cgroups }
    }
}

/// How a machine ended.
enum Ride {
    Ended(ExitStatus),
    /// The program did not begin in time.
    NeverBegan,
    /// The program did not end in time.
    NeverEnded,
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
        let (kernel, modules) = kernel::find()?;
        Ok(Machine { kernel, modules })
    }

    /// Whether modules can go along: a kernel that somebody named comes without.
    pub fn has_modules(&self) -> bool {
        self.modules.is_some()
    }

    /// Boots, runs a program of this host, and takes the machine down.
    #[expect(clippy::print_stderr, reason = "tests say what went wrong on the way")]
    pub fn run(&self, trip: &Trip<'_>) -> Result<Outcome> {
        let dir = tempfile::tempdir()?;
        let archive = dir.path().join("initramfs");
        fs::write(&archive, self.files(trip)?)?;
        let console = dir.path().join("console");
        let mut boots = 1;
        let status = loop {
            match self.ride(&archive, trip.memory_mib, &console)? {
                Ride::Ended(status) => break status,
                // Nothing of ours ran, so nothing of ours is hidden.
                Ride::NeverBegan if boots < BOOTS_MAX => {
                    eprintln!("a machine did not boot and is started anew:\n{}", text(&console)?);
                    boots += 1;
                }
                Ride::NeverBegan | Ride::NeverEnded => {
                    bail!("the machine did not end, boot {boots}:\n{}", text(&console)?)
                }
            }
        };
        let output = text(&console)?;
        let Some(end) = end_of(&output) else {
            bail!("the machine ended ({status}) before the program did:\n{output}");
        };
        Ok(Outcome { status: end, output })
    }

    /// One start of a machine, watched to its end.
    fn ride(&self, archive: &Path, memory_mib: u32, console: &Path) -> Result<Ride> {
        let mut qemu = self.qemu(archive, memory_mib).stdout(File::create(console)?).spawn()?;
        let (start, mut has_begun) = (Instant::now(), false);
        loop {
            if let Some(status) = qemu.try_wait()? {
                return Ok(Ride::Ended(status));
            }
            has_begun = has_begun || text(console)?.contains(BEGIN_MARK);
            let (patience, late) = match has_begun {
                true => (PATIENCE, Ride::NeverEnded),
                false => (BOOT_PATIENCE, Ride::NeverBegan),
            };
            if start.elapsed() > patience {
                qemu.kill()?;
                qemu.wait()?;
                return Ok(late);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn qemu(&self, archive: &Path, memory_mib: u32) -> Command {
        let mut qemu = Command::new(QEMU);
        qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-monitor", "none"]);
        // Emulated, since a host that is a virtual machine itself may offer KVM and then fail.
        qemu.args(["-machine", "q35", "-accel", "tcg"]);
        // AMD's model has no threads in QEMU.
        qemu.args(["-cpu", "max,vendor=GenuineIntel", "-smp", "4,sockets=2,cores=1,threads=2"]);
        qemu.args(["-m", &format!("{memory_mib}M")]);
        for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
            qemu.args(["-object", &format!("memory-backend-ram,id=memory{node},size={}M", memory_mib / 2)]);
            qemu.args(["-numa", &format!("node,nodeid={node},cpus={cpus},memdev=memory{node}")]);
        }
        qemu.args(["-serial", "stdio", "-append", "console=ttyS0 quiet panic=-1 psi=1"]);
        qemu.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(archive);
        qemu.stdin(Stdio::null()).stderr(Stdio::inherit());
        qemu
    }
}

impl Machine {
    /// The file system of the machine.
    fn files(&self, trip: &Trip<'_>) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        for dir in ["dev", "proc", "sys", "tmp", "bin"] {
            archive.dir(dir);
        }
        archive.console("dev/console");
        archive.file("bin/program", &stripped(trip.program)?);
        let mut programs = vec![trip.program.to_owned()];
        for name in PROGRAMS.iter().chain(trip.programs) {
            let path = kernel::which(name)?;
            archive
                .file(&format!("bin/{name}"), &fs::read(&path).with_context(|| path.display().to_string())?);
            programs.push(path);
        }
        programs.extend(trip.files.iter().cloned());
        for file in trip.files {
            archive.file_with_dirs(file, &fs::read(file).with_context(|| file.display().to_string())?)?;
        }
        for path in &programs {
            for library in libraries(path)? {
                archive.file_with_dirs(&library, &fs::read(&library)?)?;
            }
        }
        if let Some(modules) = self.modules.as_ref().filter(|_| trip.has_modules) {
            archive.dir("modules");
            for name in kernel::MODULES {
                let file = format!("{name}.ko");
                archive.file(&format!("modules/{file}"), &fs::read(modules.join(&file))?);
            }
        }
        let words: Vec<String> = trip.arguments.iter().map(|word| format!("'{word}'")).collect();
        archive.file("init", init(&words.join(" "), trip.cgroups).as_bytes());
        Ok(archive.finish())
    }
}

/// The exit status after the last end mark. The kernel may speak in the middle of that line: its words go to the console
/// past those of programs that wait there.
fn end_of(output: &str) -> Option<i32> {
    let mut heard = String::new();
    for line in output.split_inclusive('\n') {
        let is_time = |words: &str| {
            let time = words.split_once(']').map(|(time, _)| time.trim());
            time.is_some_and(|time| time.parse::<f64>().is_ok())
        };
        let kernel = line.match_indices('[').map(|(at, _)| at).find(|at| is_time(&line[at + 1..]));
        heard.push_str(kernel.map_or(line, |at| &line[..at]));
    }
    let end = heard.rsplit_once(END_MARK)?.1.trim_start();
    end.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn text(console: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(console)?).into_owned())
}

/// The first process: mounts what Linux has, runs the program, and takes the machine down.
fn init(arguments: &str, groups: Groups) -> String {
    let groups = match groups {
        Groups::V1 => {
            let mount = |name: &&str| {
                format!(
                    "mkdir /sys/fs/cgroup/{name}\nmount -t cgroup -o {name} cgroup /sys/fs/cgroup/{name}\n"
                )
            };
            let mounts: String = CONTROLLERS_V1.iter().map(mount).collect();
            format!("mount -t tmpfs tmpfs /sys/fs/cgroup\n{mounts}")
        }
        Groups::V2 => "mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo '+cpu +cpuset +memory +io +pids' > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/kubepods
"
        .to_owned(),
    };
    format!(
        "#!/bin/sh
export PATH=/bin RUST_BACKTRACE=1 KOORD_MACHINE_SHAPE='{SHAPE}'
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
{groups}echo {BEGIN_MARK}
/bin/program {arguments} 2>&1
echo \"{END_MARK} $?\"
echo o > /proc/sysrq-trigger
read forever
"
    )
}

/// A program without what only debuggers read; as it is where it cannot be taken away.
fn stripped(program: &Path) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let small = dir.path().join("program");
    let strip = Command::new("strip").arg("-o").arg(&small).arg(program).stderr(Stdio::null()).status();
    let path = if strip.is_ok_and(|status| status.success()) { small.as_path() } else { program };
    fs::read(path).with_context(|| path.display().to_string())
}

/// The libraries of a program, as the loader finds them.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    ensure!(output.status.success(), "ldd {}: {}", program.display(), output.status);
    let lines = String::from_utf8(output.stdout)?;
    // `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, or the loader alone.
    let paths = lines.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_may_speak_in_the_middle_of_the_end() {
        for (output, want) in [
            ("x\r\nkoord-machine-end: 0\r\n[  127.7] sysrq: Power Off\r\n", Some(0)),
            ("koord-machine-end: 101[  127.749390] sysrq: Power Off\r\n\r\n", Some(101)),
            ("koord-machine-en[  127.749390] sysrq: Power Off\r\nd: 0\r\n[  127.8] reboot\r\n", Some(0)),
            ("koord-machine-end: 0\r\nkoord-machine-end: [1.5] x\r\n1\r\n", Some(1)),
            ("[    0.1] Kernel panic\r\n", None),
        ] {
            assert_eq!(end_of(output), want, "{output:?}");
        }
    }
}
