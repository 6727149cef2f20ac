//! Switches that are changed while we run: verbosity, score dumps, refusal dumps.

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use koord_kit::http::{Answer, text, with_type};

use super::Pages;

/// Far more than any value needs.
const BODY_MAX: usize = 1024;

const INDEX: &str = "<html><head><title>/debug/flags/</title></head><body>/debug/flags/<br><br>\
    <table><tr><td><a href=\"d\">d</a></td></tr><tr><td><a href=\"db\">db</a></td></tr><tr><td><a href=\"f\">f</a></td></tr><tr><td><a href=\"s\">s</a></td></tr>\
    <tr><td><a href=\"v\">v</a></td></tr></table></body></html>\n";

pub(super) async fn answer(pages: Pages, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let name = path.strip_prefix("/debug/flags").unwrap_or_default().trim_start_matches('/');
    if name.is_empty() {
        return with_type(StatusCode::OK, "text/html; charset=utf-8", INDEX);
    }
    if !["v", "s", "f", "d", "db"].contains(&name) {
        return text(StatusCode::NOT_FOUND, format!("no flag {name}\n"));
    }
    if *request.method() != Method::PUT {
        return text(StatusCode::NOT_ACCEPTABLE, "unrecognized http method");
    }
    let body = match Limited::new(request.into_body(), BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return text(StatusCode::BAD_REQUEST, format!("error reading request body: {error}"));
        }
    };
    let value = String::from_utf8_lossy(&body);
    let result = match name {
        "s" => pages.switches.set_top_scores(&value),
        "f" => pages.switches.set_refusals(&value),
        "d" => pages.switches.set_diagnosis(&value),
        "db" => pages.switches.set_blocking(&value),
        _ => set_verbosity(&pages, &value),
    };
    match result {
        Ok(done) => text(StatusCode::OK, done),
        Err(refusal) => text(StatusCode::BAD_REQUEST, refusal),
    }
}

fn set_verbosity(pages: &Pages, value: &str) -> Result<String, String> {
    let Some(log) = &pages.log else {
        return Err(format!("failed set klog.logging.verbosity {value}: the logs are another's"));
    };
    let level: u8 =
        value.parse().map_err(|error| format!("failed set klog.logging.verbosity {value}: {error}"))?;
    log.set_verbosity(level);
    Ok(format!("successfully set klog.logging.verbosity to {value}"))
}
