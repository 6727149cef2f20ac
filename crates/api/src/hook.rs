//! RuntimeHookService: what the runtime proxy asks and a hook server answers, as protobuf messages.
//!
//! Messages and method names only; transport belongs to the processes. The wire is documented in
//! `proto/hook.proto`. Spec: api 8.

use std::collections::BTreeMap;

/// gRPC service name with its package.
pub const SERVICE: &str = "runtime.v1alpha1.RuntimeHookService";

/// The hook points, named by their gRPC methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    PreRunPodSandbox,
    PostStopPodSandbox,
    PreCreateContainer,
    PreStartContainer,
    PostStartContainer,
    PostStopContainer,
    PreUpdateContainerResources,
}

/// What a hook is asked about, which fixes its request and response messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookSubject {
    /// `PodSandboxHookRequest`, `PodSandboxHookResponse`.
    PodSandbox,
    /// `ContainerResourceHookRequest`, `ContainerResourceHookResponse`.
    Container,
}

impl Hook {
    pub const ALL: [Hook; 7] = [
        Hook::PreRunPodSandbox,
        Hook::PostStopPodSandbox,
        Hook::PreCreateContainer,
        Hook::PreStartContainer,
        Hook::PostStartContainer,
        Hook::PostStopContainer,
        Hook::PreUpdateContainerResources,
    ];

    /// Name of the gRPC method.
    pub fn method(self) -> &'static str {
        match self {
            Hook::PreRunPodSandbox => "PreRunPodSandboxHook",
            Hook::PostStopPodSandbox => "PostStopPodSandboxHook",
            Hook::PreCreateContainer => "PreCreateContainerHook",
            Hook::PreStartContainer => "PreStartContainerHook",
            Hook::PostStartContainer => "PostStartContainerHook",
            Hook::PostStopContainer => "PostStopContainerHook",
            Hook::PreUpdateContainerResources => "PreUpdateContainerResourcesHook",
        }
    }

    /// HTTP/2 path of the gRPC method.
    pub fn path(self) -> String {
        format!("/{SERVICE}/{}", self.method())
    }

    pub fn subject(self) -> HookSubject {
        match self {
            Hook::PreRunPodSandbox | Hook::PostStopPodSandbox => HookSubject::PodSandbox,
            _ => HookSubject::Container,
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxHookRequest {
    #[prost(message, optional, tag = "1")]
    pub pod_meta: Option<PodSandboxMetadata>,
    #[prost(string, tag = "2")]
    pub runtime_handler: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub annotations: BTreeMap<String, String>,
    #[prost(string, tag = "5")]
    pub cgroup_parent: String,
    #[prost(message, optional, tag = "6")]
    pub overhead: Option<LinuxContainerResources>,
    #[prost(message, optional, tag = "7")]
    pub resources: Option<LinuxContainerResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxHookResponse {
    #[prost(btree_map = "string, string", tag = "1")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub annotations: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub cgroup_parent: String,
    #[prost(message, optional, tag = "4")]
    pub resources: Option<LinuxContainerResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxContainerResources {
    /// Microseconds.
    #[prost(int64, tag = "1")]
    pub cpu_period: i64,
    /// Microseconds per period; 0 is "not said", -1 is "no limit".
    #[prost(int64, tag = "2")]
    pub cpu_quota: i64,
    #[prost(int64, tag = "3")]
    pub cpu_shares: i64,
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
    #[prost(int64, tag = "5")]
    pub oom_score_adj: i64,
    /// CPU list.
    #[prost(string, tag = "6")]
    pub cpuset_cpus: String,
    /// NUMA node list.
    #[prost(string, tag = "7")]
    pub cpuset_mems: String,
    #[prost(message, repeated, tag = "8")]
    pub hugepage_limits: Vec<HugepageLimit>,
    /// cgroup v2 files by name.
    #[prost(btree_map = "string, string", tag = "9")]
    pub unified: BTreeMap<String, String>,
    #[prost(int64, tag = "10")]
    pub memory_swap_limit_in_bytes: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HugepageLimit {
    /// As in `hugepages-<page_size>`, for example `2Mi`.
    #[prost(string, tag = "1")]
    pub page_size: String,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
    #[prost(string, tag = "3")]
    pub id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerResourceHookRequest {
    #[prost(message, optional, tag = "1")]
    pub pod_meta: Option<PodSandboxMetadata>,
    #[prost(message, optional, tag = "2")]
    pub container_meta: Option<ContainerMetadata>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub container_annotations: BTreeMap<String, String>,
    #[prost(message, optional, tag = "4")]
    pub container_resources: Option<LinuxContainerResources>,
    #[prost(message, optional, tag = "5")]
    pub pod_resources: Option<LinuxContainerResources>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub pod_annotations: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "7")]
    pub pod_labels: BTreeMap<String, String>,
    #[prost(string, tag = "8")]
    pub pod_cgroup_parent: String,
    #[prost(btree_map = "string, string", tag = "9")]
    pub container_envs: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerResourceHookResponse {
    #[prost(btree_map = "string, string", tag = "1")]
    pub container_annotations: BTreeMap<String, String>,
    #[prost(message, optional, tag = "2")]
    pub container_resources: Option<LinuxContainerResources>,
    #[prost(string, tag = "3")]
    pub pod_cgroup_parent: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub container_envs: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    const PROTO: &str = include_str!("../proto/hook.proto");

    /// (message, field, type, number), with message types written as `message`.
    type Field = (String, String, String, u32);

    fn fields_of_proto() -> Vec<Field> {
        let mut message = String::new();
        let mut out = Vec::new();
        for line in PROTO.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("message ") {
                message = rest.trim_end_matches(" {").to_string();
            } else if let Some((left, number)) = line.strip_suffix(';').and_then(|l| l.split_once(" = ")) {
                let Ok(number) = number.parse() else { continue };
                let (kind, name) = left.rsplit_once(' ').unwrap();
                out.push((message.clone(), name.to_string(), kind.to_string(), number));
            }
        }
        out
    }

    /// Reads the structs of this file as protobuf would write them.
    fn fields_of_structs() -> Vec<Field> {
        let source = include_str!("hook.rs").split("#[cfg(test)]").next().unwrap();
        let (mut message, mut attribute) = (String::new(), None);
        let mut out = Vec::new();
        for line in source.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("pub struct ") {
                message = rest.trim_end_matches(" {").to_string();
            } else if let Some(rest) = line.strip_prefix("#[prost(") {
                attribute = rest.strip_suffix("\")]").and_then(|r| r.split_once(", tag = \""));
                assert!(attribute.is_some(), "{line}");
            } else if let Some((kind, tag)) = attribute.take() {
                let (name, rust) = line.strip_prefix("pub ").unwrap().split_once(": ").unwrap();
                let inner = rust.trim_end_matches(',').trim_end_matches('>').rsplit('<').next().unwrap();
                let kind = match kind {
                    "message, optional" => inner.to_string(),
                    "message, repeated" => format!("repeated {inner}"),
                    "btree_map = \"string, string\"" => "map<string, string>".to_string(),
                    plain => plain.to_string(),
                };
                out.push((message.clone(), name.to_string(), kind, tag.parse().unwrap()));
            }
        }
        out
    }

    #[test]
    fn proto_file_and_structs_agree() {
        let (proto, structs) = (fields_of_proto(), fields_of_structs());
        assert_eq!(proto.len(), 43, "the scan found {proto:?}");
        assert_eq!(structs, proto);
    }

    #[test]
    fn proto_file_and_methods_agree() {
        let rpcs: Vec<(&str, HookSubject)> = PROTO
            .lines()
            .filter_map(|line| line.trim().strip_prefix("rpc "))
            .map(|rpc| {
                let pod = rpc.contains("(PodSandboxHookRequest) returns (PodSandboxHookResponse)");
                let subject = if pod { HookSubject::PodSandbox } else { HookSubject::Container };
                (rpc.split('(').next().unwrap(), subject)
            })
            .collect();
        assert_eq!(Hook::ALL.map(|h| (h.method(), h.subject())).to_vec(), rpcs);
        let package = PROTO.lines().find_map(|l| l.strip_prefix("package ")).unwrap();
        assert_eq!(SERVICE, format!("{}.RuntimeHookService", package.trim_end_matches(';')));
        let path = Hook::PreRunPodSandbox.path();
        assert_eq!(path, "/runtime.v1alpha1.RuntimeHookService/PreRunPodSandboxHook");
    }

    #[test]
    fn bytes_on_the_wire() {
        let response = PodSandboxHookResponse {
            labels: BTreeMap::from([("a".into(), "b".into())]),
            cgroup_parent: "x".into(),
            resources: Some(LinuxContainerResources {
                cpu_quota: -1,
                memory_swap_limit_in_bytes: 1,
                ..LinuxContainerResources::default()
            }),
            ..PodSandboxHookResponse::default()
        };
        let minus_one = [0xff; 9].into_iter().chain([0x01]);
        let want: Vec<u8> = [0x0a, 6, 0x0a, 1, b'a', 0x12, 1, b'b', 0x1a, 1, b'x', 0x22, 13, 0x10]
            .into_iter()
            .chain(minus_one)
            .chain([0x50, 1])
            .collect();
        assert_eq!(response.encode_to_vec(), want);
        assert_eq!(PodSandboxHookResponse::decode(want.as_slice()).unwrap(), response);
    }
}
