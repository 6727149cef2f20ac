//! What a bare machine needs before the tests can run. Installs it, and says so.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::step::{exec, say};

/// A program that must be there, and how to get it.
struct Need {
    /// Words whose success shows that it is there.
    probe: &'static [&'static str],
    /// What it is for.
    reason: &'static str,
    /// Commands that install it.
    install: &'static [&'static [&'static str]],
}

const APT_UPDATE: &[&str] = &["apt-get", "update", "-qq"];

/// Everything that the test command calls.
const NEEDS: &[Need] = &[
    Need {
        probe: &["cargo", "fmt", "--version"],
        reason: "formatting",
        install: &[&["rustup", "component", "add", "rustfmt"]],
    },
    Need {
        probe: &["cargo", "clippy", "--version"],
        reason: "lints",
        install: &[&["rustup", "component", "add", "clippy"]],
    },
    Need {
        probe: &["cc", "--version"],
        reason: "linking, and the C parts of the TLS library",
        install: &[APT_UPDATE, &["apt-get", "install", "-y", "-qq", "gcc", "libc6-dev"]],
    },
    Need {
        probe: &["c++", "--version"],
        reason: "the fuzzing engine",
        install: &[APT_UPDATE, &["apt-get", "install", "-y", "-qq", "g++"]],
    },
    Need {
        probe: &["go", "version"],
        reason: "building Kubernetes for the tests",
        install: &[APT_UPDATE, &["apt-get", "install", "-y", "-qq", "golang-go"]],
    },
    Need {
        probe: &["qemu-system-x86_64", "--version"],
        reason: "kernel tests on cgroup v2 in a virtual machine",
        install: &[
            APT_UPDATE,
            &["apt-get", "install", "-y", "-qq", "--no-install-recommends", "qemu-system-x86"],
        ],
    },
    Need {
        probe: &["ip", "-V"],
        reason: "the network of that machine",
        install: &[APT_UPDATE, &["apt-get", "install", "-y", "-qq", "--no-install-recommends", "iproute2"]],
    },
    Need {
        probe: &["ipset", "--version"],
        reason: "traffic control in that machine",
        install: &[APT_UPDATE, &["apt-get", "install", "-y", "-qq", "--no-install-recommends", "ipset"]],
    },
    Need {
        probe: &["iptables", "--version"],
        reason: "traffic control in that machine",
        install: &[APT_UPDATE, &["apt-get", "install", "-y", "-qq", "--no-install-recommends", "iptables"]],
    },
    Need {
        probe: &["containerd", "--version"],
        reason: "containers that a real runtime makes",
        install: &[
            APT_UPDATE,
            &["apt-get", "install", "-y", "-qq", "--no-install-recommends", "containerd", "runc"],
        ],
    },
    STRACE,
    Need {
        probe: &["strip", "--version"],
        reason: "making programs small that go into that machine",
        install: &[APT_UPDATE, &["apt-get", "install", "-y", "-qq", "--no-install-recommends", "binutils"]],
    },
];

const STRACE: Need = Need {
    probe: &["strace", "--version"],
    reason: "counting what koordlet opens and writes",
    install: &[APT_UPDATE, &["apt-get", "install", "-y", "-qq", "--no-install-recommends", "strace"]],
};

/// Installs what is missing for the tests.
pub(crate) fn run() -> Result<()> {
    install(NEEDS)
}

/// Installs what is missing for watching a process.
pub(crate) fn strace() -> Result<()> {
    install(&[STRACE])
}

fn install(needs: &[Need]) -> Result<()> {
    for need in needs {
        let name = need.probe[0..need.probe.len() - 1].join(" ");
        if is_there(need.probe) {
            say(&format!("found {name}"));
            continue;
        }
        say(&format!("{name} is missing; it is needed for {}: installing it", need.reason));
        for words in need.install {
            exec(Command::new(words[0]).args(&words[1..]))
                .with_context(|| format!("cannot install {name}; install it by hand and try again"))?;
        }
    }
    Ok(())
}

fn is_there(probe: &[&str]) -> bool {
    Command::new(probe[0])
        .args(&probe[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
