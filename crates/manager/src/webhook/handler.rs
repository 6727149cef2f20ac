//! What answers the requests of one path.
//!
//! Most handlers decide at once, from the request and the facts of the moment; one that has to ask or write first gives
//! a future. Neither knows of HTTP.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::facts::Facts;
use super::review::{Answer, Request, Verdict};

/// Decides at once.
pub type Decide = dyn Fn(&Request, &Facts, &mut Aside<'_>) -> Answer + Send + Sync;

/// Asks or writes first.
pub type DecideLater =
    dyn for<'a> Fn(Arc<Request>, Arc<Facts>, &'a mut Aside<'_>) -> BoxFuture<'a, Answer> + Send + Sync;

/// Answers the requests of one path.
#[derive(Clone)]
pub enum Handler {
    Now(Arc<Decide>),
    Later(Arc<DecideLater>),
    /// Decides at once; what it would refuse is looked at again by the other.
    Twice(Arc<Decide>, Arc<DecideLater>),
}

impl Handler {
    pub fn now(
        decide: impl Fn(&Request, &Facts, &mut Aside<'_>) -> Answer + Send + Sync + 'static,
    ) -> Handler {
        Handler::Now(Arc::new(decide))
    }

    pub fn later(
        decide: impl for<'a> Fn(Arc<Request>, Arc<Facts>, &'a mut Aside<'_>) -> BoxFuture<'a, Answer>
        + Send
        + Sync
        + 'static,
    ) -> Handler {
        Handler::Later(Arc::new(decide))
    }

    /// `decide` decides at once, and `again` about what that would refuse.
    pub fn twice(
        decide: impl Fn(&Request, &Facts, &mut Aside<'_>) -> Answer + Send + Sync + 'static,
        again: impl for<'a> Fn(Arc<Request>, Arc<Facts>, &'a mut Aside<'_>) -> BoxFuture<'a, Answer>
        + Send
        + Sync
        + 'static,
    ) -> Handler {
        Handler::Twice(Arc::new(decide), Arc::new(again))
    }

    /// The answer, whatever happens.
    ///
    /// A handler that panics lets the request through as it is: a bug of ours must not keep a cluster from starting
    /// pods. For the same reason a fault that is not the user's (a code from 500 on) does not refuse anything in a
    /// namespace that Kubernetes or we ourselves live in.
    pub async fn answer(&self, request: &Arc<Request>, facts: &Arc<Facts>, aside: &mut Aside<'_>) -> Answer {
        let answer = match self {
            Handler::Now(decide) => catch_unwind(AssertUnwindSafe(|| decide(request, facts, aside))),
            Handler::Later(decide) => {
                AssertUnwindSafe(decide(request.clone(), facts.clone(), aside)).catch_unwind().await
            }
            Handler::Twice(decide, again) => {
                match catch_unwind(AssertUnwindSafe(|| decide(request, facts, aside))) {
                    Ok(Answer { verdict: Verdict::Denied(_), .. }) => {
                        AssertUnwindSafe(again(request.clone(), facts.clone(), aside)).catch_unwind().await
                    }
                    answer => answer,
                }
            }
        };
        let Ok(mut answer) = answer else {
            tracing::error!(
                resource = request.resource.resource,
                namespace = request.namespace,
                name = request.name,
                "admission panicked; the request was let through"
            );
            return Answer::allow();
        };
        if let Verdict::Denied(denial) = &answer.verdict
            && denial.code >= 500
            && facts.is_protected(&request.namespace)
        {
            answer.warnings.push(format!("let through as it is: {}", denial.message));
            answer.verdict = Verdict::Allowed;
        }
        answer
    }
}

/// What a handler may use beside the facts.
pub struct Aside<'a> {
    /// Throws a number from 0 to 99.
    pub dice: &'a mut (dyn FnMut() -> i64 + Send),
    /// Hears of the end of each step of a handler: its name in metrics, and whether it found no fault.
    pub step: &'a mut (dyn FnMut(&'static str, bool) + Send),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::denial::Denial;

    #[tokio::test]
    async fn a_refusal_gets_a_second_look() {
        for (first, want) in [(Answer::allow(), false), (Answer::deny(400, "no"), true)] {
            let handler = Handler::twice(
                move |_, _, _| first.clone(),
                |_, _, _| Box::pin(async { Answer::deny(403, "never") }),
            );
            let answer = answered(&handler, "shop").await;
            assert_eq!(matches!(answer.verdict, Verdict::Denied(denial) if denial.code == 403), want);
        }
    }

    async fn answered(handler: &Handler, namespace: &str) -> Answer {
        let request = Arc::new(Request { namespace: namespace.into(), ..Request::default() });
        let mut aside = Aside { dice: &mut || 0, step: &mut |_, _| () };
        let facts = Arc::new(Facts::default());
        handler.answer(&request, &facts, &mut aside).await
    }

    #[tokio::test]
    async fn nothing_of_ours_locks_a_cluster_out() {
        let refuse = |code: u16| {
            let denial = move || Answer::from(Err(Denial { code, message: "no".into() }));
            [
                Handler::now(move |_, _, _| denial()),
                Handler::later(move |_, _, _| Box::pin(async move { denial() })),
            ]
        };
        for (code, namespace, allowed) in [
            (500, "shop", false),
            (500, "kube-system", true),
            (500, "koordinator-system", true),
            (403, "kube-system", false),
        ] {
            for handler in refuse(code) {
                let answer = answered(&handler, namespace).await;
                assert_eq!(answer.verdict == Verdict::Allowed, allowed, "{code} {namespace}");
                assert_eq!(answer.warnings.len(), usize::from(allowed));
            }
        }
        let bugs = [
            Handler::now(|_, _, _| panic!("bug")),
            Handler::later(|_, _, _| Box::pin(async { panic!("bug") })),
            Handler::twice(|_, _, _| Answer::deny(400, "no"), |_, _, _| Box::pin(async { panic!("bug") })),
        ];
        for bug in bugs {
            assert_eq!(answered(&bug, "shop").await, Answer::allow());
        }
    }
}
