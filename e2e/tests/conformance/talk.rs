//! Holding a case's conversation with one server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use http::Request;
use percent::encode_query;
use serde_json::{Value, json};

use crate::case::{Case, Step};
use crate::side::{Reply, Side, Stream};

/// How long `until` asks again.
const UNTIL_LIMIT: Duration = Duration::from_secs(20);
const UNTIL_PAUSE: Duration = Duration::from_millis(20);

/// What is known while a case runs.
pub(crate) type Variables = BTreeMap<String, String>;

/// All answers of a server, one per step.
pub(crate) async fn hold(side: &Side, case: &Case, common: &Variables) -> Result<Vec<Reply>> {
    let mut talk = Talk { side, known: common.clone(), open: BTreeMap::new() };
    talk.known.insert("ns".to_owned(), case.namespace());
    talk.known.insert("case".to_owned(), case.name.clone());
    if case.needs_namespace() {
        let body = json!({"metadata": {"name": case.namespace()}});
        let request = Request::post("/api/v1/namespaces").header("content-type", "application/json");
        let made = side.send("admin", request.body(body.to_string().into_bytes())?).await?;
        anyhow::ensure!(made.code == 201, "{}: namespace: {}", side.name, made.text);
    }
    let mut replies = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        let reply = talk.step(step).await;
        let reply = reply.with_context(|| format!("{}: step {} ({})", side.name, index + 1, step.title()))?;
        talk.capture(step, &reply);
        replies.push(reply);
    }
    Ok(replies)
}

struct Talk<'a> {
    side: &'a Side,
    known: Variables,
    open: BTreeMap<String, Stream>,
}

impl Talk<'_> {
    async fn step(&mut self, step: &Step) -> Result<Reply> {
        if let Some(name) = &step.read {
            let stream = self.open.get_mut(name).with_context(|| format!("no open watch {name}"))?;
            let text = stream.lines(step.events.unwrap_or(1)).await?;
            return Ok(Reply { code: stream.code, headers: stream.headers.clone(), text });
        }
        let user = step.user.as_deref().unwrap_or("admin");
        if step.open.is_none() && step.events.is_none() {
            return self.ask(step, user).await;
        }
        let mut stream = self.side.open(user, self.request(step)?).await?;
        let text = stream.lines(step.events.unwrap_or(0)).await?;
        let reply = Reply { code: stream.code, headers: stream.headers.clone(), text };
        if let Some(name) = &step.open {
            self.open.insert(name.clone(), stream);
        }
        Ok(reply)
    }

    async fn ask(&self, step: &Step, user: &str) -> Result<Reply> {
        let begun = Instant::now();
        loop {
            let reply = self.side.send(user, self.request(step)?).await?;
            if self.holds(step, &reply) || begun.elapsed() > UNTIL_LIMIT {
                return Ok(reply);
            }
            tokio::time::sleep(UNTIL_PAUSE).await;
        }
    }

    fn holds(&self, step: &Step, reply: &Reply) -> bool {
        let body: Value = serde_json::from_str(&reply.text).unwrap_or_default();
        step.until.iter().all(|(pointer, wanted)| match pointer.as_str() {
            "$code" => *wanted == json!(reply.code),
            "$warnings" => *wanted == json!(reply.headers.get_all("warning").iter().count()),
            pointer => find(&body, &self.fill(pointer, 0)).unwrap_or(&Value::Null) == wanted,
        })
    }

    fn request(&self, step: &Step) -> Result<Request<Vec<u8>>> {
        let (method, path) = step.request().context("METHOD /path")?;
        let path = encode_query(&self.fill(path, step.pad));
        let mut request = Request::builder().method(method).uri(path);
        if let Some(media) = step.content_type() {
            request = request.header("content-type", media);
        }
        for (name, value) in &step.headers {
            request = request.header(name, self.fill(value, 0));
        }
        let body = match (&step.raw, &step.body) {
            (Some(raw), _) => raw.clone(),
            (None, Some(body)) => body.to_string(),
            (None, None) => String::new(),
        };
        Ok(request.body(self.fill(&body, step.pad).into_bytes())?)
    }

    /// Puts in what is known.
    fn fill(&self, text: &str, pad: usize) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.known {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        text.replace("${pad}", &"x".repeat(pad))
    }

    fn capture(&mut self, step: &Step, reply: &Reply) {
        let first = reply.text.lines().next().unwrap_or_default();
        let body: Value =
            serde_json::from_str(&reply.text).or_else(|_| serde_json::from_str(first)).unwrap_or_default();
        for (name, pointer) in &step.capture {
            let value = match find(&body, pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => String::new(),
            };
            self.known.insert(name.clone(), value);
        }
    }
}

/// A JSON pointer whose segments may also be `[key=value]`, for an item of a list.
pub(crate) fn find<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(value, |value, segment| {
        let wanted =
            segment.strip_prefix('[').and_then(|s| s.strip_suffix(']')).and_then(|s| s.split_once('='));
        match wanted {
            Some((key, wanted)) => value.as_array()?.iter().find(|item| item[key] == wanted),
            None => match value {
                Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
                _ => value.get(segment.replace("~1", "/").replace("~0", "~")),
            },
        }
    })
}

mod percent {
    /// Characters that may not stand in a URI, so that files can hold selectors as they are read.
    pub(super) fn encode_query(path: &str) -> String {
        let mut out = String::with_capacity(path.len());
        for c in path.chars() {
            match c {
                ' ' => out.push_str("%20"),
                '"' => out.push_str("%22"),
                '<' => out.push_str("%3C"),
                '>' => out.push_str("%3E"),
                '\\' => out.push_str("%5C"),
                '{' => out.push_str("%7B"),
                '}' => out.push_str("%7D"),
                '|' => out.push_str("%7C"),
                '^' => out.push_str("%5E"),
                '`' => out.push_str("%60"),
                c if !c.is_ascii() => {
                    let mut bytes = [0; 4];
                    for byte in c.encode_utf8(&mut bytes).bytes() {
                        out.push_str(&format!("%{byte:02X}"));
                    }
                }
                c => out.push(c),
            }
        }
        out
    }
}
