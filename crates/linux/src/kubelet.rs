//! Asking a running kubelet which cgroup driver it uses, before it has made any group. Spec: koordlet-observe 2.1.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::Driver;
use crate::error::Error;
use crate::process::{command_line, dir};
use crate::root::Root;
use crate::text;

/// The state of a socket that waits for connections, in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The driver of the kubelet that listens on `port`. None when nobody listens there; the caller asks again.
pub fn driver(root: &Root, port: u16) -> Result<Option<Driver>, Error> {
    let Some(pid) = listener(root, port)? else { return Ok(None) };
    let config = match asked_for(&command_line(root, pid)?) {
        Answer::Driver(driver) => return Ok(Some(driver)),
        Answer::Config(config) => config,
    };
    Ok(Some(driver_of_config(&text::read(&host_path(root, pid, &config))?)))
}

/// The process that listens on a port.
pub fn listener(root: &Root, port: u16) -> Result<Option<u32>, Error> {
    for table in ["net/tcp6", "net/tcp"] {
        let Ok(sockets) = text::read(&root.proc.join(table)) else { continue };
        if let Some(inode) = listening_inode(&sockets, port) {
            let link = format!("socket:[{inode}]");
            return Ok(processes(root)?.find(|pid| holds(root, *pid, &link)));
        }
    }
    Ok(None)
}

/// `sl local_address rem_address st … inode …`, addresses in hexadecimal.
fn listening_inode(sockets: &str, port: u16) -> Option<&str> {
    let wanted = format!("{port:04X}");
    sockets.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = words.get(1)?.rsplit_once(':')?;
        (local == wanted && *words.get(3)? == LISTEN).then(|| words.get(9).copied())?
    })
}

fn processes(root: &Root) -> Result<impl Iterator<Item = u32>, Error> {
    let entries = fs::read_dir(&root.proc).map_err(|source| Error::read(&root.proc, source))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

fn holds(root: &Root, pid: u32, link: &str) -> bool {
    let Ok(files) = fs::read_dir(dir(root, pid).join("fd")) else { return false };
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|target| target == Path::new(link)))
}

/// What a command line says of the driver.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Driver(Driver),
    /// It is in this file.
    Config(PathBuf),
}

fn asked_for(arguments: &[String]) -> Answer {
    let named = flag(arguments, "cgroup-driver").and_then(Driver::parse);
    match (named, flag(arguments, "config")) {
        (Some(driver), _) => Answer::Driver(driver),
        (None, Some(config)) if !config.is_empty() => Answer::Config(config.into()),
        _ => Answer::Driver(Driver::Cgroupfs),
    }
}

/// `--name=value` or `--name value`; the last one counts.
fn flag<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let named =
        |word: &'a String| word.trim_start_matches('-').strip_prefix(name).filter(|_| word.starts_with('-'));
    arguments.iter().enumerate().rev().find_map(|(at, word)| match named(word)? {
        "" => arguments.get(at + 1).map(String::as_str),
        value => value.strip_prefix('='),
    })
}

/// Kubelet's file as that process sees it: no command is run in its mount namespace.
fn host_path(root: &Root, pid: u32, config: &Path) -> PathBuf {
    let process = dir(root, pid);
    match config.strip_prefix("/") {
        Ok(absolute) => process.join("root").join(absolute),
        Err(_) => process.join("cwd").join(config),
    }
}

fn driver_of_config(config: &str) -> Driver {
    let named = config.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("cgroupDriver:")).then(|| words.next())?
    });
    named.and_then(|name| Driver::parse(name.trim_matches('"'))).unwrap_or(Driver::Cgroupfs)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn flags_win_over_the_file() {
        for (line, want) in [
            ("kubelet --cgroup-driver=systemd --config=/x", Answer::Driver(Driver::Systemd)),
            ("kubelet --cgroup-driver systemd", Answer::Driver(Driver::Systemd)),
            ("kubelet --v=2", Answer::Driver(Driver::Cgroupfs)),
            (
                "kubelet --config=/var/lib/kubelet/config.yaml",
                Answer::Config("/var/lib/kubelet/config.yaml".into()),
            ),
            ("kubelet --config rel.yaml --cgroup-driver=", Answer::Config("rel.yaml".into())),
        ] {
            assert_eq!(asked_for(&words(line)), want, "{line}");
        }
    }

    #[test]
    fn the_file_names_a_driver_or_means_cgroupfs() {
        assert_eq!(driver_of_config("kind: KubeletConfiguration\ncgroupDriver: systemd\n"), Driver::Systemd);
        assert_eq!(driver_of_config("cgroupDriver: \"systemd\"\n"), Driver::Systemd);
        assert_eq!(driver_of_config("# cgroupDriver: systemd\n"), Driver::Cgroupfs);
    }

    #[test]
    fn a_kubelet_is_found_by_its_port() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::host(tree.path());
        let process = root.proc.join("42");
        fs::create_dir_all(root.proc.join("net")).unwrap();
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::create_dir_all(process.join("root/etc")).unwrap();
        fs::create_dir_all(root.proc.join("sys")).unwrap();
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        // 10250 is 280A. The first row is a connection, not the listener.
        let rows = "   0: 00000000:280A 0100007F:0001 01 00000000:00000000 00:00000000 00000000     0        0 7 1\n   \
                    1: 00000000:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1\n";
        fs::write(root.proc.join("net/tcp6"), format!("{head}{rows}")).unwrap();
        fs::write(process.join("cmdline"), "kubelet\0--config=/etc/kubelet.yaml\0").unwrap();
        fs::write(process.join("root/etc/kubelet.yaml"), "cgroupDriver: systemd\n").unwrap();
        assert_eq!(driver(&root, 10250).unwrap(), None, "nobody holds the socket");
        symlink("socket:[777]", process.join("fd/3")).unwrap();
        assert_eq!(listener(&root, 10250).unwrap(), Some(42));
        assert_eq!(driver(&root, 10250).unwrap(), Some(Driver::Systemd));
        assert_eq!(driver(&root, 10255).unwrap(), None);
        fs::remove_file(process.join("root/etc/kubelet.yaml")).unwrap();
        assert!(driver(&root, 10250).is_err());
    }
}
