//! A way to the API server that tests can cut and heal.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use koord_testkit::ControlPlane;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to an API server. While it is cut, nothing passes and nothing is refused, as when a cable is
/// pulled.
pub(crate) struct Proxy {
    is_cut: watch::Sender<bool>,
    kubeconfig: PathBuf,
    _dir: tempfile::TempDir,
}

impl Proxy {
    pub(crate) async fn start(cluster: &ControlPlane) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server: SocketAddr =
            cluster.server().trim_start_matches("https://").parse().context("server address")?;
        let (is_cut, watching) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server, watching.clone()));
            }
        });
        let dir = tempfile::tempdir()?;
        let kubeconfig = dir.path().join("kubeconfig");
        let text = std::fs::read_to_string(cluster.kubeconfig())?;
        let through = text.replace(cluster.server(), &format!("https://{address}"));
        ensure!(text != through, "the kubeconfig does not name {}", cluster.server());
        std::fs::write(&kubeconfig, through)?;
        Ok(Proxy { is_cut, kubeconfig, _dir: dir })
    }

    /// A kubeconfig that leads through here.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub(crate) fn heal(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn forward(client: TcpStream, server: SocketAddr, mut is_cut: watch::Receiver<bool>) {
    let _ = is_cut.wait_for(|is_cut| !is_cut).await;
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    tokio::join!(pass(client_in, server_out, is_cut.clone()), pass(server_in, client_out, is_cut));
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut is_cut: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        if is_cut.wait_for(|is_cut| !is_cut).await.is_err() {
            return;
        }
        match read {
            Ok(count) if count > 0 && to.write_all(&buffer[..count]).await.is_ok() => {}
            _ => break,
        }
    }
    let _ = to.shutdown().await;
}
