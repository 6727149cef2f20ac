//! Accelerators that other programs describe in files. Spec: koordlet-observe 6.4.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use koord_api::gojson;
use serde::{Deserialize, Serialize};

/// An accelerator as its file describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Xpu {
    pub vendor: String,
    pub model: String,
    pub uuid: String,
    pub minor: String,
    /// Quantities by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// Where it sits, and whom it talks to fast.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Topology {
    #[serde(rename = "socketID", skip_serializing_if = "String::is_empty")]
    pub socket_id: String,
    #[serde(rename = "nodeID", skip_serializing_if = "String::is_empty")]
    pub node_id: String,
    #[serde(rename = "pcieID", skip_serializing_if = "String::is_empty")]
    pub pcie_id: String,
    #[serde(rename = "busID", skip_serializing_if = "String::is_empty")]
    pub bus_id: String,
    /// Whether only partitions may be given.
    #[serde(rename = "mustHonorPartition", skip_serializing_if = "std::ops::Not::not")]
    pub must_honor_partition: bool,
    #[serde(rename = "p2pLinks", skip_serializing_if = "Vec::is_empty")]
    pub p2p_links: Vec<Link>,
}

/// A fast connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// Minor numbers with commas.
    #[serde(rename = "peerMinor")]
    pub peer_minor: String,
    #[serde(rename = "type")]
    pub link_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    pub healthy: bool,
    #[serde(rename = "errCode", skip_serializing_if = "String::is_empty")]
    pub error_code: String,
    #[serde(rename = "errMessage", skip_serializing_if = "String::is_empty")]
    pub error_message: String,
}

/// Why the files cannot be taken. One bad file spoils them all, since it may be half written.
#[derive(Debug, thiserror::Error)]
pub enum XpuError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} does not describe accelerators")]
    Content { path: PathBuf, source: gojson::Error },
}

impl XpuError {
    /// Whether nobody made the directory or file: normal where all accelerators are known to the driver.
    pub fn is_missing(&self) -> bool {
        matches!(self, XpuError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Everything that the files of a directory describe, in order of file name.
pub fn read_dir(dir: &Path) -> Result<Vec<Xpu>, XpuError> {
    let entries = fs::read_dir(dir).map_err(|source| XpuError::Read { path: dir.to_owned(), source })?;
    // Differs: upstream reads half-written temporary files too, and then keeps what it had before.
    let is_settled = |name: &str| !name.starts_with('.') && !name.ends_with(".tmp");
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_settled))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort_unstable();
    let mut all = Vec::new();
    for path in paths {
        all.extend(read_file(&path)?);
    }
    Ok(all)
}

/// What one file describes.
pub(crate) fn read_file(path: &Path) -> Result<Vec<Xpu>, XpuError> {
    let text = fs::read_to_string(path).map_err(|source| XpuError::Read { path: path.to_owned(), source })?;
    let described: Option<Vec<Xpu>> =
        gojson::from_str(&text).map_err(|source| XpuError::Content { path: path.to_owned(), source })?;
    Ok(described.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NPU: &str = r#"[{"vendor":"huawei","model":"Ascend-910B3","uuid":"npu-0-0","minor":"0",
        "resources":{"koordinator.sh/gpu-memory":"65536Mi","huawei.com/npu-core":"20"},
        "topology":{"socketID":"-1","nodeID":"0","pcieID":"pci0000:c0","busID":"0000:c1:00.0",
            "mustHonorPartition":true,"p2pLinks":[{"peerMinor":"1,2,3","type":"HCCS"}]},
        "status":{"healthy":false,"errCode":"chip error","errMessage":"NPU index 0 has 2 chip faults"}}]"#;

    #[test]
    fn files_are_joined_and_temporary_ones_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_dir(&dir.path().join("none")).unwrap_err().is_missing());
        assert_eq!(read_dir(dir.path()).unwrap(), [], "an empty directory describes nothing");
        fs::write(dir.path().join("a"), NPU).unwrap();
        fs::write(dir.path().join("b"), "[]").unwrap();
        let found = read_dir(dir.path()).unwrap();
        assert_eq!(found.len(), 1, "koordlet-observe#13.4.D23");
        let topology = found[0].topology.as_ref().unwrap();
        assert!(topology.must_honor_partition);
        assert_eq!(topology.p2p_links, [Link { peer_minor: "1,2,3".into(), link_type: "HCCS".into() }]);
        assert_eq!(found[0].status.as_ref().unwrap().error_code, "chip error");
        // koordlet-observe#13.4.D23: a half-written file is no fault when its name says so.
        fs::write(dir.path().join("c.tmp"), "").unwrap();
        fs::write(dir.path().join(".d"), "[{").unwrap();
        assert_eq!(read_dir(dir.path()).unwrap(), found);
        fs::write(dir.path().join("e"), "").unwrap();
        let error = read_dir(dir.path()).unwrap_err();
        assert!(matches!(error, XpuError::Content { .. }) && !error.is_missing(), "{error}");
    }
}
