//! The binary as a user meets it.

use std::process::{Command, Output};

fn koord(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_koord")).args(words).output().expect("koord starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("koord prints UTF-8")
}

#[test]
fn version_names_release_and_commit() {
    let output = koord(&["--version"]);
    assert!(output.status.success());
    let line = text(&output.stdout);
    assert!(line.starts_with(concat!("koord ", env!("CARGO_PKG_VERSION"), " (commit ")), "{line}");
}

#[test]
fn unknown_subcommand_suggests() {
    let output = koord(&["crd"]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("'crd'") && error.contains("crds"), "{error}");
}

#[test]
fn help_lists_no_role_that_is_not_there() {
    let output = koord(&["--help"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    assert!(help.contains("crds") && help.contains("completions") && help.contains("koordlet"), "{help}");
    assert!(!help.contains("descheduler"), "{help}");
}

/// A koordlet that was left behind by another build is not run in silence.
#[test]
fn only_a_koordlet_of_the_same_build_is_run() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let own = folder.path().join("koord");
    std::fs::hard_link(env!("CARGO_BIN_EXE_koord"), &own).unwrap();
    let agent = folder.path().join("koordlet");
    let version = |output: &Output| (text(&output.stdout), text(&output.stderr));
    std::fs::hard_link(env!("CARGO_BIN_EXE_koordlet"), &agent).unwrap();
    let (same, complaint) = version(&Command::new(&own).args(["koordlet", "--version"]).output().unwrap());
    assert!(same.starts_with("koordlet ") && complaint.is_empty(), "{same}{complaint}");
    for (says, found) in
        [("echo 'koordlet 0.0.1 (commit old)'", "koordlet 0.0.1 (commit old)"), (":", "\"\"")]
    {
        std::fs::remove_file(&agent).unwrap();
        // Written by a program of its own: a file that another test's child still has open to write cannot be run.
        let script = format!("printf '#!/bin/sh\\n%s\\n' \"$1\" > '{0}' && chmod +x '{0}'", agent.display());
        assert!(Command::new("sh").args(["-c", &script, "sh", says]).status().unwrap().success());
        let (told, complaint) =
            version(&Command::new(&own).args(["koordlet", "--version"]).output().unwrap());
        assert_eq!(told, same);
        let names = [agent.display().to_string(), found.to_owned(), same.trim().to_owned()];
        assert!(names.iter().all(|name| complaint.contains(name)), "{complaint}");
    }
}

/// As long as it runs, what its vendor's tool tells is in the file; SIGHUP has it look again.
#[test]
fn the_device_daemon_describes_devices_and_takes_the_file_back() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let shell = |script: &str| {
        let status = Command::new("sh").arg("-ec").arg(script).current_dir(folder.path()).status().unwrap();
        assert!(status.success(), "{script}");
    };
    shell(
        "mkdir -p bin sys/bus/pci/devices/0000:c1:00.0 && cd sys/bus/pci/devices/0000:c1:00.0 &&
         echo 0x1d22 > vendor && echo 0x3684 > device && echo 1 > numa_node",
    );
    let tool = |model: &str| {
        let line = format!("0000:c1:00.0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 32768 19 20 {model} 22");
        shell(&format!(
            "printf '#!/bin/sh\\necho {line}\\n' > bin/new && chmod +x bin/new && mv bin/new bin/xpu_smi"
        ));
    };
    tool("P800");
    shell("echo 'version: v1' > kdd.yaml");
    let output = path("infos/ic-device");
    /// Ends with the test, however that ends.
    struct Daemon(std::process::Child);
    impl Drop for Daemon {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let daemon = Command::new(env!("CARGO_BIN_EXE_koord"))
        .args(["device-daemon", "--host-root-dir=/"])
        .args([format!("--sys-root-dir={}", path("sys")), format!("--prints-output-file={output}")])
        .arg(format!("--config-file={}", path("kdd.yaml")))
        .env("PATH", format!("{}:{}", path("bin"), std::env::var("PATH").unwrap()))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut daemon = Daemon(daemon);
    let described = |model: &str| {
        for _ in 0..600 {
            let found = std::fs::read_to_string(&output).unwrap_or_default();
            if found.contains(&format!("\"model\": \"{model}\"")) {
                return found;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{model} is not described within a minute");
    };
    let found = described("P800");
    assert!(
        found.contains("\"koordinator.sh/gpu-memory\": \"32768Mi\"") && found.contains("\"nodeID\": \"1\""),
        "{found}"
    );
    // A faulty configuration file changes nothing.
    shell("echo 'version: v2' > kdd.yaml");
    tool("P900");
    shell(&format!("kill -HUP {}", daemon.0.id()));
    described("P900");
    shell(&format!("kill -TERM {}", daemon.0.id()));
    assert!(daemon.0.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(path("infos")).unwrap().count(), 0);
    // Once, and a tool that fails: what could not be described is told by the exit code.
    let once = || {
        Command::new(env!("CARGO_BIN_EXE_koord"))
            .args(["device-daemon", "--oneshot", "--host-root-dir=/"])
            .args([format!("--sys-root-dir={}", path("sys")), format!("--prints-output-file={output}")])
            .env("PATH", format!("{}:{}", path("bin"), std::env::var("PATH").unwrap()))
            .output()
            .unwrap()
    };
    assert!(once().status.success());
    let found = described("P900");
    shell("rm bin/xpu_smi");
    let failed = once();
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("xpu_smi"), "{}", text(&failed.stderr));
    assert_eq!(std::fs::read_to_string(&output).unwrap(), found, "what was described before stays");
    let wrong = koord(&["device-daemon", "--sleep-interval=0s"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("sleep-interval"), "{}", text(&wrong.stderr));
}

/// As a subcommand and under its own name alike.
#[test]
fn the_scheduler_reads_its_own_flags() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("koord-scheduler");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_koord"), &link).unwrap();
    let written = folder.path().join("config.yaml");
    let write = format!("--write-config-to={}", written.display());
    for (words, status, said) in [
        (vec!["--help"], 0, "--debug-scores"),
        (vec!["--version"], 0, "koord-scheduler"),
        (vec!["-no-such-flag"], 1, "no-such-flag"),
        (vec!["--config=/nonexistent"], 1, "/nonexistent"),
        (vec![write.as_str()], 0, "Wrote configuration"),
    ] {
        let under_its_name = Command::new(&link).args(&words).output().unwrap();
        let as_subcommand = koord(&[&["scheduler"], words.as_slice()].concat());
        for output in [under_its_name, as_subcommand] {
            assert_eq!(output.status.code(), Some(status), "{words:?}");
            let all = text(&output.stdout) + &text(&output.stderr);
            assert!(all.contains(said), "{words:?}: {all}");
        }
    }
    let config = std::fs::read_to_string(written).unwrap();
    assert!(config.contains("kind: KubeSchedulerConfiguration"), "{config}");
}

#[test]
fn no_words_show_the_help_and_fail() {
    let output = koord(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage: koord"));
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = koord(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        assert!(text(&output.stdout).contains("koord"), "{shell}");
    }
    let error = text(&koord(&["completions", "tcsh"]).stderr);
    assert!(error.contains("bash") && error.contains("tcsh"), "{error}");
}

#[test]
fn crds_are_listed_and_printed() {
    let list = text(&koord(&["crds", "--list"]).stdout);
    assert!(list.contains("reservations.scheduling.koordinator.sh\n"), "{list}");
    assert_eq!(list.lines().count(), 13, "{list}");

    let one = text(&koord(&["crds", "reservations"]).stdout);
    assert!(one.contains("kind: CustomResourceDefinition"), "{one}");
    assert_eq!(one.matches("kind: CustomResourceDefinition").count(), 1);

    let output = koord(&["crds", "pods"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("reservations"));
}

/// Called under a component's name that this build lacks, the binary says so instead of guessing.
#[test]
fn a_component_name_without_its_role_is_refused() {
    let folder = std::env::temp_dir().join(format!("koord-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let link = folder.join("koord-nosuchrole");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_koord"), &link).unwrap();
    let output = Command::new(&link).arg("--help").output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("koord-nosuchrole") && error.contains("koord --help"), "{error}");
}
