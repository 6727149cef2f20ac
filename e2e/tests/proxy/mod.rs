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
    line: watch::Sender<Line>,
    kubeconfig: PathBuf,
    _dir: tempfile::TempDir,
}

#[derive(Clone, Copy, Default)]
struct Line {
    is_cut: bool,
    /// Connections made before the last reset carry nothing any more.
    resets: u32,
}

impl Proxy {
    #[allow(dead_code, reason = "each test file uses its part of this module")]
    pub(crate) async fn start(cluster: &ControlPlane) -> Result<Proxy> {
        Proxy::before(cluster.server(), &std::fs::read_to_string(cluster.kubeconfig())?).await
    }

    /// The way to the server of that URL and kubeconfig.
    pub(crate) async fn before(url: &str, text: &str) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server: SocketAddr = url.trim_start_matches("https://").parse().context("server address")?;
        let (line, watching) = watch::channel(Line::default());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server, watching.clone()));
            }
        });
        let dir = tempfile::tempdir()?;
        let kubeconfig = dir.path().join("kubeconfig");
        let through = text.replace(url, &format!("https://{address}"));
        ensure!(text != through, "the kubeconfig does not name {url}");
        std::fs::write(&kubeconfig, through)?;
        Ok(Proxy { line, kubeconfig, _dir: dir })
    }

    /// A kubeconfig that leads through here.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    #[allow(dead_code, reason = "each test file uses its part of this module")]
    pub(crate) fn cut(&self) {
        self.line.send_modify(|line| line.is_cut = true);
    }

    /// Lets pass again, also what was under way when the line was cut.
    #[allow(dead_code, reason = "each test file uses its part of this module")]
    pub(crate) fn heal(&self) {
        self.line.send_modify(|line| line.is_cut = false);
    }

    /// Lets new connections pass; what was under way is lost, and the old connections end.
    #[allow(dead_code, reason = "each test file uses its part of this module")]
    pub(crate) fn reset(&self) {
        self.line.send_modify(|line| *line = Line { is_cut: false, resets: line.resets + 1 });
    }
}

async fn forward(client: TcpStream, server: SocketAddr, mut line: watch::Receiver<Line>) {
    let Ok(resets) = line.wait_for(|line| !line.is_cut).await.map(|line| line.resets) else { return };
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    tokio::join!(
        pass(client_in, server_out, line.clone(), resets),
        pass(server_in, client_out, line, resets)
    );
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut line: watch::Receiver<Line>,
    resets: u32,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut ended = line.clone();
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = ended.wait_for(|line| line.resets != resets) => break,
        };
        match line.wait_for(|line| !line.is_cut).await.map(|line| line.resets) {
            Ok(now) if now == resets => {}
            _ => break,
        }
        match read {
            Ok(count) if count > 0 && to.write_all(&buffer[..count]).await.is_ok() => {}
            _ => break,
        }
    }
    let _ = to.shutdown().await;
}
