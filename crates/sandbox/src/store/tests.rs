use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn object(namespace: &str, name: &str, n: u32) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"n": n.to_string()},
        "metadata": {"name": name, "namespace": namespace, "uid": "u", "labels": {"odd": (n % 2).to_string()}}})
}

fn draft(namespace: &str, name: &str, n: u32) -> Draft {
    Draft::new(&object(namespace, name, n), vec![("data.n".into(), n.to_string())])
}

fn table(limits: Limits) -> Arc<Table> {
    Store::new(limits).table("", "configmaps")
}

fn everything(_: &Stored) -> bool {
    true
}

#[test]
fn an_object_at_rest_reads_in_all_the_ways_the_wire_needs() {
    let table = table(Limits::default());
    let stored = table.create(draft("a", "x", 7)).unwrap();
    let mut want = object("a", "x", 7);
    want["metadata"]["resourceVersion"] = json!("2");
    assert_eq!(stored.value(), want);
    assert!(stored.json().starts_with(b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{"));
    let item = [b"{", stored.json_untyped()].concat();
    let item: Value = serde_json::from_slice(&item).unwrap();
    assert_eq!(item["metadata"], want["metadata"]);
    assert_eq!(item.get("kind"), None);
    let meta: Value = serde_json::from_slice(stored.json_metadata()).unwrap();
    assert_eq!(meta, want["metadata"]);
    let frame: Value = serde_json::from_slice(&stored.frame()).unwrap();
    assert_eq!(frame, json!({"type": "ADDED", "object": want}));
    assert_eq!((stored.namespace(), stored.name(), stored.uid()), ("a", "x", "u"));
    assert_eq!((stored.field("metadata.name"), stored.field("data.n"), stored.field("no")), ("x", "7", ""));
    let later = stored.at_revision(12345, Change::Deleted);
    assert_eq!(later.value()["metadata"]["resourceVersion"], "12345");
    assert!(draft("a", "x", 7).is_same_as(&later));
    assert!(!draft("a", "x", 8).is_same_as(&later));
}

#[test]
fn commits_need_the_state_they_were_made_from() {
    let table = table(Limits::default());
    let first = table.create(draft("a", "x", 1)).unwrap();
    assert!(table.create(draft("a", "x", 1)).is_err());
    let second = table.replace(draft("a", "x", 2), first.revision()).unwrap();
    assert!(second.revision() > first.revision());
    match table.replace(draft("a", "x", 3), first.revision()) {
        Err(Lost::Changed(current)) => assert_eq!(current.revision(), second.revision()),
        other => panic!("{other:?}"),
    }
    assert!(matches!(table.remove("a/x", first.revision()), Err(Lost::Changed(_))));
    assert!(table.remove("a/x", second.revision()).unwrap().revision() > second.revision());
    assert!(matches!(table.remove("a/x", second.revision()), Err(Lost::Gone)));
    assert!(table.is_empty());
}

#[test]
fn namespaces_do_not_mix() {
    let table = table(Limits::default());
    for namespace in ["a", "a-b", "a0", "b"] {
        table.create(draft(namespace, "x", 1)).unwrap();
    }
    let query = Query { namespace: Some("a"), ..Query::default() };
    let page = table.page(query, &everything).unwrap();
    assert_eq!(page.items.iter().map(|o| o.key()).collect::<Vec<_>>(), ["a/x"]);
    let past_end = Query { namespace: Some("a"), after: Some("b/x"), ..Query::default() };
    assert_eq!(table.page(past_end, &everything).unwrap().items.len(), 0);
    let before = Query { namespace: Some("b"), after: Some("a/x"), ..Query::default() };
    assert_eq!(table.page(before, &everything).unwrap().items.len(), 1);
}

#[test]
fn what_left_the_history_is_expired() {
    let table = table(Limits { events: 2, bytes: 1 << 20 });
    for name in ["a", "b", "c", "d"] {
        table.create(draft("", name, 1)).unwrap();
    }
    assert_eq!(table.watch(2).err(), Some(Expired { asked: 2, oldest: 3 }));
    let mut watch = table.watch(3).unwrap();
    assert_eq!(watch.take(9).unwrap().len(), 2);
    let mut slow = table.watch(3).unwrap();
    table.create(draft("", "e", 1)).unwrap();
    assert!(slow.take(9).is_err());
    let query = Query { at: Some(2), ..Query::default() };
    assert!(table.page(query, &everything).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u32),
    Delete(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u8..12, 0u32..100).prop_map(|(k, n)| Step::Put(k, n)),
        1 => (0u8..12).prop_map(Step::Delete),
    ];
    proptest::collection::vec(step, 0..60)
}

type Model = BTreeMap<String, Value>;

fn place(k: u8) -> (&'static str, String) {
    (if k.is_multiple_of(2) { "even" } else { "odd" }, format!("o{k}"))
}

fn run(table: &Table, step: &Step) {
    match step {
        Step::Put(k, n) => {
            let (namespace, name) = place(*k);
            match table.get(&format!("{namespace}/{name}")) {
                None => drop(table.create(draft(namespace, &name, *n)).unwrap()),
                Some(old) => drop(table.replace(draft(namespace, &name, *n), old.revision()).unwrap()),
            }
        }
        Step::Delete(k) => {
            let (namespace, name) = place(*k);
            let key = format!("{namespace}/{name}");
            if let Some(old) = table.get(&key) {
                table.remove(&key, old.revision()).unwrap();
            }
        }
    }
}

fn state(table: &Table, query: Query<'_>, filter: &dyn Fn(&Stored) -> bool) -> Model {
    let page = table.page(query, filter).unwrap();
    page.items.iter().map(|o| (o.key().to_owned(), o.value())).collect()
}

/// Plays what a watcher with a selection is told, from the list it began with.
fn replay(model: &mut Model, selection: &Selection, watch: &mut Watch, batch: usize) {
    loop {
        let events = watch.take(batch).unwrap();
        if events.is_empty() {
            return;
        }
        for event in events {
            let key = event.object.key().to_owned();
            match selection.filter(&event) {
                Filter::Unseen => {}
                Filter::Left => drop(model.remove(&key).expect("it was seen before")),
                Filter::Entered => assert!(model.insert(key, event.object.value()).is_none()),
                Filter::Same if event.change == Change::Deleted => {
                    let last = model.remove(&key).expect("it was seen before");
                    assert_eq!(last["data"], event.object.value()["data"], "a deletion shows the last state");
                }
                Filter::Same if event.change == Change::Added => {
                    assert!(model.insert(key, event.object.value()).is_none());
                }
                Filter::Same => assert!(model.insert(key, event.object.value()).is_some()),
            }
        }
    }
}

proptest! {
    /// Whenever a watcher starts and however it selects, list plus events equals the table.
    #[test]
    fn every_watcher_ends_with_the_tables_state(steps in steps(), starts in proptest::collection::vec(0usize..60, 4), batch in 1usize..5) {
        let selections = [
            Selection::default(),
            Selection { namespace: Some("even".into()), ..Selection::default() },
            Selection { labels: "odd=1".parse().unwrap(), ..Selection::default() },
            Selection { fields: "data.n!=7".parse().unwrap(), ..Selection::default() },
        ];
        let table = table(Limits::default());
        let mut watchers: Vec<Option<(Model, Watch)>> = vec![None, None, None, None];
        for (i, step) in steps.iter().enumerate() {
            for (w, start) in starts.iter().enumerate() {
                if *start == i {
                    let (page, watch) = table.snapshot(&|o| selections[w].matches(o));
                    let model = page.items.iter().map(|o| (o.key().to_owned(), o.value())).collect();
                    watchers[w] = Some((model, watch));
                }
                // Some watchers read along, others only at the end.
                if let (true, Some((model, watch))) = (w % 2 == 0, &mut watchers[w]) {
                    replay(model, &selections[w], watch, batch);
                }
            }
            run(&table, step);
        }
        for (w, watcher) in watchers.iter_mut().enumerate() {
            let Some((model, watch)) = watcher else { continue };
            replay(model, &selections[w], watch, batch);
            let want = state(&table, Query::default(), &|o| selections[w].matches(o));
            prop_assert_eq!(&*model, &want);
        }
    }

    /// Pages taken between writes together are the state at the first page's revision.
    #[test]
    fn pages_are_of_one_moment(before in steps(), between in steps(), limit in 1usize..5) {
        let table = table(Limits::default());
        before.iter().for_each(|s| run(&table, s));
        let want = state(&table, Query::default(), &everything);
        let mut between = between.iter();
        let mut at = None;
        let mut after: Option<String> = None;
        let mut got = Model::new();
        loop {
            let query = Query { at, after: after.as_deref(), limit: Some(limit), ..Query::default() };
            let page = table.page(query, &everything).unwrap();
            prop_assert_eq!(page.remaining, want.len() - got.len() - page.items.len());
            at = Some(page.revision);
            got.extend(page.items.iter().map(|o| (o.key().to_owned(), o.value())));
            if page.remaining == 0 {
                break;
            }
            after = page.items.last().map(|o| o.key().to_owned());
            between.by_ref().take(7).for_each(|s| run(&table, s));
        }
        prop_assert_eq!(got, want);
    }

    /// Any revision still in the history lists as it was.
    #[test]
    fn the_past_does_not_change(steps in steps()) {
        let table = table(Limits::default());
        let mut states = Vec::new();
        for step in &steps {
            run(&table, step);
            let page = table.page(Query::default(), &everything).unwrap();
            states.push((page.revision, state(&table, Query::default(), &everything)));
        }
        for (revision, want) in states {
            let query = Query { at: Some(revision), ..Query::default() };
            prop_assert_eq!(state(&table, query, &everything), want);
        }
    }
}

#[test]
fn concurrent_writers_and_watchers_agree() {
    let table = table(Limits::default());
    let writers = 4u8;
    std::thread::scope(|scope| {
        for w in 0..writers {
            let table = &table;
            scope.spawn(move || {
                for n in 0..200u32 {
                    run(table, &Step::Put(w * 2, n));
                    if n % 7 == 2 {
                        run(table, &Step::Delete(w * 2));
                    }
                }
            });
        }
        for _ in 0..3 {
            let table = &table;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    let selection = Selection::default();
                    let (page, mut watch) = table.snapshot(&everything);
                    let mut model: Model =
                        page.items.iter().map(|o| (o.key().to_owned(), o.value())).collect();
                    let done = |m: &Model| {
                        m.len() == usize::from(writers) && m.values().all(|v| v["data"]["n"] == "199")
                    };
                    while !done(&model) {
                        watch.changed().await;
                        replay(&mut model, &selection, &mut watch, 64);
                    }
                });
            });
        }
    });
}
