//! Serves an empty cluster and writes its kubeconfig: `cargo run --example serve -- KUBECONFIG`.

use std::collections::HashMap;

use koord_sandbox::server::tls::Authority;
use koord_sandbox::server::{Api, Server, ServerConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: serve KUBECONFIG")?;
    let api = Api::new(koord_sandbox::store::Limits::default());
    let config = ServerConfig {
        listen: "127.0.0.1:0".parse()?,
        authority: Authority::generate()?,
        tokens: HashMap::new(),
        control: None,
    };
    let server = Server::start(api, config).await?;
    std::fs::write(&path, server.kubeconfig())?;
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
