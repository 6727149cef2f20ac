//! The HTTP pages: metrics, audit records, explanations, health. Spec: koordlet-observe 1.6.

use std::sync::Arc;
use std::time::Instant;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use koord_kit::http::{Answer, Health, Router, text, with_type};
use koord_kit::metrics::{Format, Metrics};

use crate::audit::{Auditor, Form, Query};
use crate::explain::{self, Explainer};
use crate::metrics::KoordletMetrics;

/// The header that a page of records ends with.
const NEXT_PAGE: HeaderName = HeaderName::from_static("next-page-token");

/// What is served.
pub struct Pages {
    pub health: Arc<Health>,
    pub metrics: KoordletMetrics,
    /// None when the gate of the page is off.
    pub events: Option<Auditor>,
    pub explainer: Explainer,
}

impl Pages {
    pub fn router(self) -> Router {
        let (internal, external) = (self.metrics.internal().clone(), self.metrics.external().clone());
        let (all_internal, all_external) = (internal.clone(), external.clone());
        let mut router = Router::new(self.health, internal.clone())
            .page("/metrics", move |request| {
                std::future::ready(page(&request, &[&all_internal, &all_external]))
            })
            .page("/internal-metrics", move |request| std::future::ready(page(&request, &[&internal])))
            .page("/external-metrics", move |request| std::future::ready(page(&request, &[&external])));
        let explainer = self.explainer;
        router = router.page(explain::ROOT, move |request| std::future::ready(explainer.answer(&request)));
        if let Some(auditor) = self.events {
            router = router.page("/events", move |request| std::future::ready(events(&request, &auditor)));
        }
        router
    }
}

/// One or two registries on one page. Only a single one can be told in the newer form, which has an end.
fn page<B>(request: &Request<B>, registries: &[&Metrics]) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "metrics are read with GET\n");
    }
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = if registries.len() == 1 { Format::of_accept(accept) } else { Format::Prometheus };
    let body: String = registries.iter().map(|metrics| metrics.render(format)).collect();
    with_type(StatusCode::OK, format.content_type(), body)
}

fn events<B>(request: &Request<B>, auditor: &Auditor) -> Answer {
    if *request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "audit records are read with GET\n");
    }
    let form = Form::of_accept(request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()));
    let query = Query::read(request.uri().query().unwrap_or_default());
    let answer = auditor.query(&query, Instant::now());
    let (status, body) = answer.body(form);
    let (content_type, token) = answer.headers(form);
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.extend(content_type.map(|value| (CONTENT_TYPE, HeaderValue::from_static(value))));
    headers.extend(token.and_then(|token| Some((NEXT_PAGE, HeaderValue::from_str(token).ok()?))));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::audit::Subject;
    use crate::flags::AuditOptions;
    use crate::metrics::Metric;

    fn get(address: &str, accept: Option<&str>) -> Request<()> {
        let mut request = Request::builder().uri(address);
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        request.body(()).unwrap()
    }

    async fn body(answer: Answer) -> String {
        String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn both_registries_on_one_page() {
        let metrics = KoordletMetrics::new("n1");
        metrics.node_seen();
        metrics.set(Metric::StartTime, &[], 1.0);
        metrics.set(Metric::NodeResourceAllocatable, &["kubernetes.io/batch-cpu", "integer"], 2000.0);
        let registries = [&**metrics.internal(), &**metrics.external()];
        let all = body(page(&get("/metrics", None), &registries)).await;
        let own = all.find("koordlet_start_time{").unwrap();
        let others = all.find("koordlet_node_resource_allocatable{").unwrap();
        assert!(own < others, "internal ones come first");
        assert!(all.contains("process_resident_memory_bytes"));
        let external = body(page(&get("/external-metrics", None), &registries[1..])).await;
        assert!(!external.contains("koordlet_start_time"));
    }

    #[tokio::test]
    async fn audit_records() {
        let dir = tempfile::tempdir().unwrap();
        let options = AuditOptions {
            dir: dir.path().into(),
            verbose: 3,
            disk_mib_max: 16,
            readers_max: 4,
            events_max: 2048,
        };
        let auditor = Auditor::open(&options);
        for number in 0..3 {
            auditor.record(0, Subject::Node, "r", format!("m {number}"));
        }
        let answer = events(&get("/events?size=2", None), &auditor);
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        let token = answer.headers()["Next-Page-Token"].to_str().unwrap().to_owned();
        assert_eq!(body(answer).await.lines().count(), 2);
        let answer = events(&get(&format!("/events?pageToken={token}"), Some("application/json")), &auditor);
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/json; charset=utf-8");
        let text = body(answer).await;
        assert!(text.starts_with(r#"{"NextPageToken":"","Events":[{"createdAt""#), "{text}");
        assert_eq!(events(&get("/events?size=3000", None), &auditor).status(), StatusCode::BAD_REQUEST);
        assert_eq!(events(&get("/events?pageToken=x", None), &auditor).status(), StatusCode::CONFLICT);
        let off = events(&get("/events", None), &Auditor::off());
        assert_eq!((off.status(), body(off).await.as_str()), (StatusCode::OK, ""));
    }
}
