//! The command lines of the programs in a control plane. Paths are relative to its folder, where
//! they run, so that no length limit of a socket's name is met.

use crate::control_plane::Builder;
use crate::pki::{CONTROLLER_MANAGER, Identity, SCHEDULER};

/// Named in the tokens that the API server gives to service accounts.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A single member that talks to nobody: the advertised addresses are never used. The data lives
/// no longer than the test, so it is not synced to disk.
pub(crate) fn etcd() -> Vec<String> {
    list(&[
        "--name=koord",
        "--data-dir=etcd",
        "--listen-client-urls=unix://etcd.sock",
        "--listen-peer-urls=unix://etcd-peer.sock",
        "--advertise-client-urls=http://localhost:2379",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ])
}

pub(crate) fn apiserver(port: u16, builder: &Builder) -> Vec<String> {
    let mut args = list(&[
        "--etcd-servers=unix://etcd.sock",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        // Nobody inside the cluster could reach a loopback address.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--tls-cert-file=pki/server.crt",
        "--tls-private-key-file=pki/server.key",
        "--client-ca-file=pki/ca.crt",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--service-account-key-file=pki/service-account.pub",
        "--service-account-signing-key-file=pki/service-account.key",
    ]);
    args.push(format!("--secure-port={port}"));
    args.push(format!("--service-account-issuer={ISSUER}"));
    if !builder.controller_manager {
        // Nobody would make the account that this plugin gives to each pod.
        args.push("--disable-admission-plugins=ServiceAccount".to_string());
    }
    args.extend_from_slice(&builder.apiserver_args);
    args
}

pub(crate) fn controller_manager(builder: &Builder) -> Vec<String> {
    let mut args = list(&[
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials",
        "--service-account-private-key-file=pki/service-account.key",
        "--root-ca-file=pki/ca.crt",
        "--cluster-signing-cert-file=pki/ca.crt",
        "--cluster-signing-key-file=pki/ca.key",
        // There is no kubelet to renew a lease: a node stays as ready as the test made it.
        "--node-monitor-grace-period=24h",
    ]);
    args.push(kubeconfig(&CONTROLLER_MANAGER));
    args.extend_from_slice(&builder.controller_manager_args);
    args
}

pub(crate) fn scheduler(builder: &Builder) -> Vec<String> {
    let mut args = list(&["--secure-port=0", "--leader-elect=false"]);
    args.push(kubeconfig(&SCHEDULER));
    args.extend_from_slice(&builder.scheduler_args);
    args
}

fn kubeconfig(identity: &Identity) -> String {
    format!("--kubeconfig={}.kubeconfig", identity.file)
}

fn list(args: &[&str]) -> Vec<String> {
    args.iter().map(ToString::to_string).collect()
}
