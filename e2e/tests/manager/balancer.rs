//! What a Service is in a cluster with a network: connections go to the replicas in turn.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::place::eventually;

/// Passes connections on to whoever of the replicas takes them. Ends with the test's process.
pub(crate) struct Balancer {
    pub(crate) port: u16,
    replicas: Arc<Mutex<Vec<u16>>>,
    /// Held by every connection since the last cut.
    line: Arc<Mutex<Arc<()>>>,
    cuts: watch::Sender<u32>,
}

impl Balancer {
    pub(crate) async fn start() -> Result<Balancer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let replicas = Arc::<Mutex<Vec<u16>>>::default();
        let (cuts, cut) = watch::channel(0);
        let line = Arc::<Mutex<Arc<()>>>::default();
        let turn = Arc::new(AtomicUsize::new(0));
        let (ports, current) = (replicas.clone(), line.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut ports = ports.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let first = turn.fetch_add(1, Ordering::Relaxed).checked_rem(ports.len()).unwrap_or(0);
                ports.rotate_left(first);
                let (held, mut cut) =
                    (current.lock().unwrap_or_else(PoisonError::into_inner).clone(), cut.clone());
                cut.mark_unchanged();
                tokio::spawn(async move {
                    pass(client, ports, cut).await;
                    drop(held);
                });
            }
        });
        Ok(Balancer { port, replicas, line, cuts })
    }

    /// A replica is ready for connections.
    pub(crate) fn add(&self, port: u16) {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).push(port);
    }

    /// No new connections to this replica; those that are there go on.
    pub(crate) fn remove(&self, port: u16) {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != port);
    }

    /// Ends all connections, and waits until those who made them have noticed.
    pub(crate) async fn cut(&self) -> Result<()> {
        let old = std::mem::take(&mut *self.line.lock().unwrap_or_else(PoisonError::into_inner));
        self.cuts.send_modify(|cuts| *cuts += 1);
        eventually("connections end", async || Ok((Arc::strong_count(&old) == 1).then_some(()))).await
    }
}

async fn pass(mut client: TcpStream, ports: Vec<u16>, mut cut: watch::Receiver<u32>) {
    for port in ports {
        // One that was killed refuses; the next is asked.
        let Ok(mut replica) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { continue };
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut replica) => return,
            _ = cut.changed() => {}
        }
        // Who only hears that nothing more comes ends its side, too; a request sent into the void would be lost.
        if client.shutdown().await.is_ok() {
            let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
        }
        return;
    }
}
