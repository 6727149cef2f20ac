//! One of the two servers, and the sending of requests to it.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// What the token file of the real server and the table of the sandbox hold for `robot`.
pub(crate) const ROBOT_TOKEN: &str = "open-sesame";

/// Longer than any answer takes; a server that needs more hangs.
const LIMIT: Duration = Duration::from_secs(15);

/// A server with clients for all users of the corpus.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    clients: HashMap<&'static str, Client>,
}

/// An answer read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// A watch under way.
pub(crate) struct Stream {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    frames: BoxStream<'static, Result<Vec<u8>>>,
    buffer: Vec<u8>,
}

impl Side {
    pub(crate) async fn new(name: &'static str, kubeconfig: &str) -> Result<Side> {
        let token = |text: &str| AuthInfo { token: Some(text.to_owned().into()), ..AuthInfo::default() };
        let users = [
            ("admin", None),
            ("anonymous", Some(AuthInfo::default())),
            ("robot", Some(token(ROBOT_TOKEN))),
            ("stranger", Some(token("nobody-knows-me"))),
        ];
        let mut clients = HashMap::new();
        for (user, auth) in users {
            let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
            let mut config =
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            config.default_retry = false;
            config.auth_info = auth.unwrap_or(config.auth_info);
            clients.insert(user, Client::try_from(config)?);
        }
        Ok(Side { name, clients })
    }

    pub(crate) async fn of_file(name: &'static str, kubeconfig: &Path) -> Result<Side> {
        Side::new(name, &std::fs::read_to_string(kubeconfig)?).await
    }

    /// Sends a request and reads the head of the answer.
    pub(crate) async fn open(&self, user: &str, request: Request<Vec<u8>>) -> Result<Stream> {
        let client = self.clients.get(user).with_context(|| format!("no user {user}"))?;
        let what = format!("{} {} {}", self.name, request.method(), request.uri());
        let (head, body) = request.into_parts();
        let sent = client.send(Request::from_parts(head, Body::from(body)));
        let answer = tokio::time::timeout(LIMIT, sent).await.with_context(|| what.clone())?;
        let (head, body) = answer.with_context(|| what)?.into_parts();
        let frames = body.into_data_stream().map(|frame| Ok(frame?.to_vec())).boxed();
        Ok(Stream { code: head.status.as_u16(), headers: head.headers, frames, buffer: Vec::new() })
    }

    pub(crate) async fn send(&self, user: &str, request: Request<Vec<u8>>) -> Result<Reply> {
        let what = format!("{} {} {}", self.name, request.method(), request.uri());
        let mut stream = self.open(user, request).await?;
        let text = tokio::time::timeout(LIMIT, stream.rest()).await.with_context(|| what)??;
        Ok(Reply { code: stream.code, headers: stream.headers, text })
    }
}

impl Stream {
    async fn rest(&mut self) -> Result<String> {
        while let Some(frame) = self.frames.next().await {
            self.buffer.extend(frame?);
        }
        Ok(String::from_utf8(std::mem::take(&mut self.buffer))?)
    }

    /// The next line; none at the end of the stream.
    async fn line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(String::from_utf8(line)?));
            }
            match self.frames.next().await {
                Some(frame) => self.buffer.extend(frame?),
                None => return Ok(None),
            }
        }
    }

    /// Up to so many lines, and what is there when time is up.
    pub(crate) async fn lines(&mut self, count: usize) -> Result<String> {
        let mut text = String::new();
        for _ in 0..count {
            match tokio::time::timeout(LIMIT, self.line()).await {
                Ok(Ok(Some(line))) => text.push_str(&line),
                Ok(Ok(None)) => break,
                Ok(Err(error)) => bail!("{error:#} after {text}"),
                Err(_) => bail!("no more than this came: {text:?}"),
            }
        }
        Ok(text)
    }
}
