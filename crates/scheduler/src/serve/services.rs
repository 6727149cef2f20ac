//! Koordinator's services API: nodes and queue as the engine has them, and why pods wait.

use http::{Request, StatusCode, header};
use hyper::body::Incoming;
use koord_kit::http::{Answer, json, text};
use serde_json::{Value, json};

use super::{Pages, only_read};
use crate::brain::{Form, View};

/// What is served, as the list of services names it.
const ROUTES: [&str; 9] = [
    "/apis/v1/__services__",
    "/apis/v1/explain/pending",
    "/apis/v1/explain/pod/:namespace/:name",
    "/apis/v1/explain/reservation/:name",
    "/apis/v1/nodes/:nodeName",
    "/apis/v1/plugins/LoadAwareScheduling/node/:nodeName",
    "/apis/v1/plugins/Reservation/nodeReservations/:nodeName",
    "/apis/v1/plugins/Reservation/reservationSelectorIndex",
    "/apis/v1/queue",
];

pub(super) async fn answer(pages: Pages, request: Request<Incoming>) -> Answer {
    if let Some(refusal) = only_read(&request) {
        return refusal;
    }
    // What a follower knows is not what is done.
    if !pages.standing.leads() {
        return json(StatusCode::SERVICE_UNAVAILABLE, &json!({"message": "the instance is not leader"}));
    }
    if !pages.standing.is_listed() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "the instance is still initializing\n");
    }
    let path = request.uri().path().strip_prefix("/apis/v1/").unwrap_or_default();
    let words: Vec<&str> = path.split('/').collect();
    let form = form(&request);
    let (view, missing) = match words.as_slice() {
        ["__services__"] => return json(StatusCode::OK, &json!({"GET": ROUTES})),
        ["nodes", name] => (View::Node((*name).to_owned()), format!("cannot find node {name}")),
        ["plugins", "LoadAwareScheduling", "node", name] => {
            (View::Load((*name).to_owned()), format!("no service {path}"))
        }
        ["queue"] => (View::Queue, "there is no queue".to_owned()),
        ["explain", "pending"] => (View::ExplainPending(form), "nothing is explained".to_owned()),
        ["explain", "pod", namespace, name] => {
            let (namespace, name) = ((*namespace).to_owned(), (*name).to_owned());
            let view = View::ExplainPod { namespace, name, form };
            (view, format!("cannot find pod {}", words[2..].join("/")))
        }
        ["explain", "reservation", name] => {
            let view = View::ExplainReservation { name: (*name).to_owned(), form };
            (view, format!("cannot find reservation {name}"))
        }
        ["plugins", "Reservation", "reservationSelectorIndex"] => {
            let with_names =
                request.uri().query().is_some_and(|query| query.split('&').any(|q| q == "detail=true"));
            (View::ReservationIndex { with_names }, "there is no index".to_owned())
        }
        ["plugins", "Reservation", "nodeReservations", node] => {
            (View::NodeReservations((*node).to_owned()), format!("cannot find node {node}"))
        }
        _ => return json(StatusCode::NOT_FOUND, &json!({"message": format!("no service {path}")})),
    };
    match pages.desk.ask(view).await {
        Ok(Some(Value::String(told))) if form == Form::Text => text(StatusCode::OK, told),
        Ok(Some(found)) => json(StatusCode::OK, &found),
        Ok(None) => json(StatusCode::NOT_FOUND, &json!({"message": missing})),
        Err(stopping) => json(StatusCode::SERVICE_UNAVAILABLE, &json!({"message": stopping.to_string()})),
    }
}

/// Text for those who ask for it and for nothing else.
fn form(request: &Request<Incoming>) -> Form {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accept.is_some_and(|accept| accept.starts_with("text/plain")) { Form::Text } else { Form::Data }
}
