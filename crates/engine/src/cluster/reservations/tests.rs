//! The ledger after what may happen to it. Spec: scheduler-reservation-loadaware A5.

use serde_json::{Value, json};

use super::*;

struct Books {
    cluster: Cluster,
}

impl Books {
    fn new() -> Books {
        let mut cluster = Cluster::default();
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "32", "memory": "64Gi", "pods": "9"}}});
        cluster.set_node(&serde_json::from_value(node).unwrap());
        Books { cluster }
    }

    fn reserve(&mut self, over: &Value) -> &mut Books {
        let held = over["held"].as_object().cloned().map_or(json!({"cpu": "8"}), Value::Object);
        let mut object = json!({"metadata": {"name": "r", "uid": "r"}, "spec": {"allocateOnce": false, "ttl": "1h",
            "owners": [{"labelSelector": {"matchLabels": {"app": "x"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": held}}]}}},
            "status": {"phase": "Available", "nodeName": "n", "allocatable": held}});
        for part in ["metadata", "spec", "status"] {
            for (key, value) in over[part].as_object().into_iter().flatten() {
                object[part][key] = value.clone();
            }
        }
        let news = self.cluster.set_reservation(&serde_json::from_value(object).unwrap());
        self.cluster.confirm(news.new.pod.clone());
        self.check()
    }

    fn pod(&mut self, name: &str, node: &str, requests: Value, mark: &str) -> &mut Books {
        let object = json!({"metadata": {"name": name, "namespace": "d", "uid": name,
            "annotations": {"scheduling.koordinator.sh/reservation-allocated": mark}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]}});
        let pod = Arc::new(self.cluster.compile(&serde_json::from_value(object).unwrap()));
        if !pod.node.is_empty() {
            self.cluster.confirm(pod);
        }
        self.check()
    }

    fn check(&mut self) -> &mut Books {
        assert_eq!(self.cluster.ledger(), self.cluster.recount());
        assert_eq!(self.cluster.reservation_ledger(), self.cluster.recount_reservations());
        self
    }

    /// Owners, what they use and what is left of cpu, and whether new ones may come.
    fn state(&self) -> (usize, i64, i64, bool) {
        let entry = self.cluster.reservations().get("r").unwrap();
        let cpu = ResourceId::CPU;
        (entry.owners.len(), entry.allocated.get(cpu), entry.available(cpu), entry.is_matchable)
    }

    fn requested(&self) -> i64 {
        self.cluster.columns.cpu.requested[self.cluster.row("n").unwrap().index()]
    }
}

const MARK: &str = r#"{"name":"r","uid":"r"}"#;

fn cpu(amount: &str) -> Value {
    json!({"cpu": amount})
}

#[test]
fn owners_come_and_go() {
    let mut books = Books::new();
    books.pod("a", "n", cpu("3"), MARK).reserve(&json!({}));
    // Upstream loses an owner that is told of first, until it is told of again.
    assert_eq!(books.state(), (1, 3000, 5000, true), "scheduler-reservation-loadaware#A5.D1");
    let mut books = Books::new();
    books.reserve(&json!({})).pod("a", "n", cpu("3"), MARK);
    assert_eq!(
        (books.state(), books.requested()),
        ((1, 3000, 5000, true), 8000),
        "scheduler-reservation-loadaware#A5.D2"
    );
    books.pod("a", "n", cpu("5"), MARK);
    assert_eq!(
        (books.state(), books.requested()),
        ((1, 5000, 3000, true), 8000),
        "scheduler-reservation-loadaware#A5.D3"
    );
    books.reserve(&json!({"held": {"cpu": "4"}}));
    assert_eq!(books.state(), (1, 5000, 0, true), "scheduler-reservation-loadaware#A5.D5");
    assert_eq!(books.requested(), 5000, "scheduler-reservation-loadaware#A5.D5");
    books.reserve(&json!({}));
    books.cluster.release("a");
    assert_eq!(
        (books.check().state(), books.requested()),
        ((0, 0, 8000, true), 8000),
        "scheduler-reservation-loadaware#A5.D4"
    );
    books.pod("b", "", cpu("1"), MARK);
    assert_eq!(books.state().0, 0, "scheduler-reservation-loadaware#A5.D9");
    books.pod("c", "n", cpu("1"), "{");
    assert_eq!(books.state().0, 0, "scheduler-reservation-loadaware#A5.D10");
    // One on another node is not counted here.
    books.pod("d", "m", cpu("1"), MARK);
    assert_eq!((books.state().0, books.requested()), (0, 9000));
}

#[test]
fn one_owner_and_no_more() {
    let mut books = Books::new();
    books.reserve(&json!({"spec": {"allocateOnce": true}})).pod("a", "n", cpu("4"), MARK);
    assert_eq!(books.state(), (1, 4000, 4000, false), "scheduler-reservation-loadaware#A5.D8");
    assert_eq!(books.requested(), 12_000, "scheduler-reservation-loadaware#A5.D8");
    books.cluster.remove_reservation("r");
    assert_eq!(books.check().requested(), 4000);
}

#[test]
fn what_is_kept_from_owners() {
    let mut books = Books::new();
    books.reserve(&json!({"held": {"cpu": "8", "memory": "16Gi"}, "spec": {"allocatePolicy": "Restricted"},
        "metadata": {"annotations": {
            "scheduling.koordinator.sh/reservation-restricted-options": r#"{"resources":["cpu"]}"#,
            "node.koordinator.sh/reservation": r#"{"resources":{"cpu":"2","memory":"1Gi"},"reservedCPUs":"0-3"}"#}}}));
    books.pod("a", "n", json!({"cpu": "3", "memory": "4Gi"}), MARK);
    let key = "scheduler-reservation-loadaware#A5.D12";
    let entry = books.cluster.reservations().get("r").unwrap();
    assert_eq!(*entry.record.names, [ResourceId::CPU], "{key}");
    assert_eq!(entry.record.inner.get(ResourceId::CPU), 4000, "{key}");
    assert_eq!(entry.allocated.get(ResourceId::CPU), 3000, "{key}");
    assert_eq!(entry.allocated.get(ResourceId::MEMORY), 0, "{key}");
    assert_eq!(entry.available(ResourceId::CPU), 1000, "{key}");
    assert_eq!(entry.available(ResourceId::MEMORY), 16 << 30, "{key}");
}

#[test]
fn records_change_and_move() {
    let mut books = Books::new();
    let object = json!({"metadata": {"name": "m"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}});
    books.cluster.set_node(&serde_json::from_value(object).unwrap());
    books.reserve(&json!({})).pod("a", "n", cpu("3"), MARK);
    books.reserve(&json!({"status": {"nodeName": "m"}}));
    assert_eq!((books.state().0, books.requested()), (0, 3000), "its owners stay behind");
    books.reserve(&json!({}));
    assert_eq!((books.state().0, books.requested()), (1, 8000));
    // Others may use it now.
    let other = json!([{"labelSelector": {"matchLabels": {"app": "y"}}}]);
    books.reserve(&json!({"spec": {"owners": other}}));
    assert_eq!((books.state(), books.requested()), ((1, 3000, 5000, true), 8000));
    for phase in ["Waiting", "Succeeded"] {
        books.reserve(&json!({"status": {"phase": phase}}));
        assert_eq!((books.state().3, books.requested()), (false, 11_000), "{phase}");
    }
    books.cluster.remove_node("n");
    books.check();
    books.cluster.remove_reservation("r");
    books.check();
    assert!(books.cluster.reservations().is_empty());
    assert_eq!(books.cluster.reservations().used_by("a"), Some("r"), "it comes back if the object does");
}
