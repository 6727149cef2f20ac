//! The programs of a control plane, built once per Kubernetes version into the cache.
//!
//! Kubernetes cannot be built as an ordinary dependency, for its go.mod replaces the staging
//! modules by folders that the published module lacks. A scratch module replaces them by their
//! published versions instead, and so builds the very release with the Go toolchain alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use crate::cache::{BuildLock, cache_dir, say};
use crate::{Error, Version, go};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Etcd,
    Apiserver,
    ControllerManager,
    Scheduler,
    Kubectl,
}

impl Program {
    pub const ALL: [Program; 5] =
        [Program::Etcd, Program::Apiserver, Program::ControllerManager, Program::Scheduler, Program::Kubectl];

    pub fn name(self) -> &'static str {
        match self {
            Program::Etcd => "etcd",
            Program::Apiserver => "kube-apiserver",
            Program::ControllerManager => "kube-controller-manager",
            Program::Scheduler => "kube-scheduler",
            Program::Kubectl => "kubectl",
        }
    }

    fn package(self) -> String {
        match self {
            Program::Etcd => ETCD_MODULE.to_string(),
            _ => format!("{KUBERNETES_MODULE}/cmd/{}", self.name()),
        }
    }
}

const KUBERNETES_MODULE: &str = "k8s.io/kubernetes";
const ETCD_MODULE: &str = "go.etcd.io/etcd/server/v3";

/// The programs of one Kubernetes version, present on this machine.
#[derive(Clone, Debug)]
pub struct Binaries {
    version: Version,
    /// `None`: the etcd that this Kubernetes was itself built and tested with.
    etcd: Option<Version>,
    /// `<cache>/k8s/<version>`; the programs are in its `bin`.
    dir: PathBuf,
}

impl Binaries {
    /// Builds those of `programs` that the cache lacks; minutes the first time, nothing later.
    pub fn ensure(
        version: &Version,
        etcd: Option<&Version>,
        programs: &[Program],
    ) -> Result<Binaries, Error> {
        let dir = cache_dir()?.join("k8s").join(version.to_string());
        let binaries = Binaries { version: version.clone(), etcd: etcd.cloned(), dir };
        if binaries.missing(programs).is_empty() {
            return Ok(binaries);
        }
        let _lock = BuildLock::take(&binaries.dir, &format!("Kubernetes {version}"))?;
        let missing = binaries.missing(programs);
        if !missing.is_empty() {
            binaries.build(&missing)?;
        }
        Ok(binaries)
    }

    pub fn version(&self) -> &Version {
        &self.version
    }

    pub fn path(&self, program: Program) -> PathBuf {
        let name = match (program, &self.etcd) {
            (Program::Etcd, Some(etcd)) => format!("etcd-{etcd}"),
            _ => program.name().to_string(),
        };
        self.dir.join("bin").join(name)
    }

    fn missing(&self, programs: &[Program]) -> Vec<Program> {
        programs.iter().copied().filter(|program| !self.path(*program).is_file()).collect()
    }

    fn build(&self, programs: &[Program]) -> Result<(), Error> {
        let what = format!("Kubernetes {}", self.version);
        say(&format!("building {} for {what}, once, into {}", names(programs), self.dir.display()));
        say("getting the sources from the Go module proxy");
        let source = Source::download(&what, &self.dir, &self.version)?;
        let etcd = self.etcd.as_ref().map_or_else(|| source.etcd.clone(), Version::to_string);
        let kubernetes_dir = self.dir.join("src/kubernetes");
        let etcd_dir = self.dir.join(format!("src/etcd-{etcd}"));
        write_module(&kubernetes_dir, &source.scratch_module(&self.version))?;
        write_module(&etcd_dir, &etcd_scratch_module(&source.go, &etcd))?;
        go::require(&what, &kubernetes_dir, &source.go)?;

        let mut took = String::new();
        for (done, program) in programs.iter().enumerate() {
            let (dir, label) = match program {
                Program::Etcd => (&etcd_dir, format!("etcd {etcd}")),
                _ => (&kubernetes_dir, format!("{} {}", program.name(), self.version)),
            };
            let (number, total) = (done + 1, programs.len());
            say(&format!("[{number}/{total}] building {label}, {} more to go{took}", total - number));
            let start = Instant::now();
            let package = program.package();
            go::fetch(&label, dir, "-mod=mod", &[&package])?;
            go::build(&go::Build {
                what: &label,
                dir,
                package: &package,
                flags: &["-mod=mod".into(), "-ldflags".into(), source.ldflags(&self.version)],
                output: &self.path(*program),
            })?;
            took = format!(" ({} took {} s)", program.name(), start.elapsed().as_secs());
        }
        say(&format!("{what} is ready{took}"));
        Ok(())
    }
}

fn names(programs: &[Program]) -> String {
    programs.iter().map(|program| program.name()).collect::<Vec<_>>().join(", ")
}

/// What Kubernetes' own go.mod says about building it.
struct Source {
    go: String,
    godebug: Vec<(String, String)>,
    staging: Vec<String>,
    etcd: String,
    /// When the release was made: a fixed build date, so that builds can be repeated.
    date: String,
}

impl Source {
    fn download(what: &str, dir: &Path, version: &Version) -> Result<Source, Error> {
        let module = format!("{KUBERNETES_MODULE}@{version}");
        let failed = |output: String| Error::Download { what: what.to_string(), output };
        let answer = go::run(what, dir, &["mod", "download", "-json", &module])?;
        let download: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
        let go_mod = match (download["GoMod"].as_str(), download["Error"].as_str()) {
            (_, Some(error)) => return Err(failed(error.to_string())),
            (Some(path), None) => path,
            (None, None) => return Err(failed(go::tail(&answer.stderr))),
        };
        let answer = go::run(what, dir, &["mod", "edit", "-json", go_mod])?;
        let parsed: Value = serde_json::from_str(&answer.stdout)
            .map_err(|error| failed(format!("{go_mod}: {error}\n{}", answer.stderr)))?;
        let info = download["Info"].as_str().and_then(|path| fs::read_to_string(path).ok());
        let info: Value = info.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let date = info["Time"].as_str().unwrap_or("1970-01-01T00:00:00Z").to_string();
        Source::read(&parsed, date).ok_or_else(|| failed(format!("{go_mod} names no etcd or no Go version")))
    }

    fn read(go_mod: &Value, date: String) -> Option<Source> {
        let list = |key: &str| go_mod[key].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_string);
        let staging = list("Replace")
            .iter()
            .filter(|replace| replace["New"]["Path"].as_str().is_some_and(|to| to.starts_with("./staging/")))
            .filter_map(|replace| text(&replace["Old"]["Path"]))
            .collect();
        let godebug = list("Godebug")
            .iter()
            .filter_map(|pair| Some((text(&pair["Key"])?, text(&pair["Value"])?)))
            .collect();
        let require = list("Require");
        let etcd = require.iter().find(|require| require["Path"] == ETCD_MODULE)?;
        Some(Source { go: text(&go_mod["Go"])?, godebug, staging, etcd: text(&etcd["Version"])?, date })
    }

    fn scratch_module(&self, version: &Version) -> String {
        let mut text = format!("module koord.local/kubernetes\n\ngo {}\n", self.go);
        for (key, value) in &self.godebug {
            text += &format!("\ngodebug {key}={value}\n");
        }
        text += &format!("\nrequire {KUBERNETES_MODULE} {version}\n\nreplace (\n");
        for module in &self.staging {
            text += &format!("\t{module} => {module} {}\n", version.staging());
        }
        text + ")\n"
    }

    /// Small programs that answer `/version` as the official build does.
    fn ldflags(&self, version: &Version) -> String {
        let mut flags = "-s -w".to_string();
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            for (key, value) in [
                ("gitVersion", version.to_string()),
                ("gitMajor", version.major().to_string()),
                ("gitMinor", version.minor().to_string()),
                ("gitTreeState", "archive".to_string()),
                ("buildDate", self.date.clone()),
            ] {
                flags += &format!(" -X {package}.{key}={value}");
            }
        }
        flags
    }
}

fn etcd_scratch_module(go: &str, etcd: &str) -> String {
    format!("module koord.local/etcd\n\ngo {go}\n\nrequire {ETCD_MODULE} {etcd}\n")
}

fn write_module(dir: &Path, go_mod: &str) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let path = dir.join("go.mod");
    fs::write(&path, go_mod).map_err(Error::io("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn source() -> Source {
        let go_mod = json!({
            "Go": "1.25.0",
            "Godebug": [{"Key": "default", "Value": "go1.25"}],
            "Require": [
                {"Path": "go.etcd.io/etcd/client/v3", "Version": "v3.6.4"},
                {"Path": "go.etcd.io/etcd/server/v3", "Version": "v3.6.5", "Indirect": true},
            ],
            "Replace": [
                {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
                {"Old": {"Path": "example.com/fork"}, "New": {"Path": "example.com/other", "Version": "v1.0.0"}},
            ],
        });
        Source::read(&go_mod, "2026-04-15T18:01:22Z".to_string()).unwrap()
    }

    #[test]
    fn the_scratch_module_replaces_staging_by_published_versions() {
        let text = source().scratch_module(&"v1.35.4".parse().unwrap());
        assert_eq!(
            text,
            "module koord.local/kubernetes\n\ngo 1.25.0\n\ngodebug default=go1.25\n\n\
             require k8s.io/kubernetes v1.35.4\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.35.4\n)\n"
        );
    }

    #[test]
    fn etcd_is_the_one_kubernetes_names() {
        assert_eq!(source().etcd, "v3.6.5");
        assert!(Source::read(&json!({"Go": "1.25.0"}), String::new()).is_none());
    }

    #[test]
    fn the_version_is_linked_in() {
        let flags = source().ldflags(&"v1.35.4".parse().unwrap());
        for part in ["gitVersion=v1.35.4", "gitMajor=1", "gitMinor=35", "buildDate=2026-04-15T18:01:22Z"] {
            assert!(
                flags.contains(&format!(" -X k8s.io/component-base/version.{part}")),
                "{part} in {flags}"
            );
        }
    }

    #[test]
    fn another_etcd_does_not_hide_the_default_one() {
        let binaries = |etcd: Option<&str>| Binaries {
            version: "v1.35.4".parse().unwrap(),
            etcd: etcd.map(|text| text.parse().unwrap()),
            dir: "/cache".into(),
        };
        assert_eq!(binaries(None).path(Program::Etcd), Path::new("/cache/bin/etcd"));
        assert_eq!(binaries(Some("3.5.21")).path(Program::Etcd), Path::new("/cache/bin/etcd-v3.5.21"));
        assert_eq!(binaries(Some("3.5.21")).path(Program::Kubectl), Path::new("/cache/bin/kubectl"));
    }
}
