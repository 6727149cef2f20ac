//! A vector behaves as a map from names to integers does.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 9] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "kubernetes.io/batch-cpu",
    "kubernetes.io/batch-memory",
    "koordinator.sh/gpu-core",
    "nvidia.com/gpu",
    "hugepages-2Mi",
];

fn list(text: &[(&str, &str)]) -> ResourceList {
    text.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
}

#[test]
fn lists_in_and_out() {
    let mut table = ResourceTable::new();
    let asked = list(&[
        ("cpu", "1500m"),
        ("memory", "1536Mi"),
        ("kubernetes.io/batch-cpu", "1500"),
        ("koordinator.sh/gpu-memory", "8Gi"),
        ("nvidia.com/gpu", "1"),
        ("pods", "0"),
    ]);
    let vector = ResourceVector::from_list(&asked, &mut table);
    assert_eq!(vector.get(ResourceId::CPU), 1500);
    assert_eq!(vector.get(ResourceId::MEMORY), 1536 << 20);
    assert_eq!(vector.get(ResourceId::BATCH_CPU), 1500);
    assert_eq!(vector.get(table.id("nvidia.com/gpu").unwrap()), 1);
    assert_eq!(table.id("amd.com/gpu"), None);
    let texts: Vec<String> =
        vector.to_list(&table).iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    assert_eq!(
        texts,
        [
            "cpu=1500m",
            "koordinator.sh/gpu-memory=8Gi",
            "kubernetes.io/batch-cpu=1500",
            "memory=1536Mi",
            "nvidia.com/gpu=1"
        ]
    );
    let odd = ResourceVector::from_list(&list(&[("cpu", "100u"), ("memory", "1m")]), &mut table);
    assert_eq!((odd.get(ResourceId::CPU), odd.get(ResourceId::MEMORY)), (1, 1), "rounded up");
}

#[test]
fn tables_agree_on_common_names_only() {
    let mut table = ResourceTable::default();
    for (slot, name) in NAMES.into_iter().take(6).enumerate() {
        assert_eq!(table.id(name), Some(ResourceId::of_slot(slot)));
        assert_eq!(table.intern(name), ResourceId::of_slot(slot));
    }
    let gpu = table.intern("nvidia.com/gpu");
    assert_eq!((table.intern("nvidia.com/gpu"), table.name(gpu)), (gpu, "nvidia.com/gpu"));
    assert_eq!(ResourceTable::new().name(gpu), "");
}

#[test]
fn what_fits() {
    let mut table = ResourceTable::new();
    let mut vector = |text: &[(&str, &str)]| ResourceVector::from_list(&list(text), &mut table);
    let free = vector(&[("cpu", "4"), ("memory", "-1Gi"), ("nvidia.com/gpu", "1")]);
    assert!(vector(&[("cpu", "4"), ("nvidia.com/gpu", "1")]).fits(&free));
    assert!(vector(&[("cpu", "-1")]).fits(&free));
    assert!(!vector(&[("cpu", "4001m")]).fits(&free));
    let greedy = vector(&[("cpu", "5"), ("memory", "1"), ("nvidia.com/gpu", "2"), ("amd.com/gpu", "1")]);
    let names: Vec<String> = greedy.lacking(&free).map(|id| table.name(id).to_owned()).collect();
    assert_eq!(names, ["cpu", "memory", "nvidia.com/gpu", "amd.com/gpu"]);
}

#[test]
fn limits() {
    let mut table = ResourceTable::new();
    let gpu = table.intern("nvidia.com/gpu");
    for id in [ResourceId::MEMORY, gpu] {
        let mut full = ResourceVector::new();
        full.set(id, i64::MAX);
        let mut one = ResourceVector::new();
        one.set(id, 1);
        assert_eq!(full.checked_add(&one), None);
        assert!(full.checked_sub(&one).is_some());
        full += &one;
        assert_eq!(full.get(id), i64::MAX);
        let mut low = ResourceVector::new();
        low.set(id, i64::MIN);
        assert_eq!(low.checked_sub(&one), None);
        low -= &one;
        assert_eq!(low.get(id), i64::MIN);
        low.clamp_to_zero();
        assert!(low.is_zero());
    }
}

type Model = BTreeMap<usize, i64>;

fn model() -> impl Strategy<Value = Model> {
    let amount = prop_oneof![-5_i64..6, any::<i64>()];
    proptest::collection::btree_map(0..NAMES.len(), amount, 0..NAMES.len())
}

fn vector(model: &Model, table: &mut ResourceTable) -> ResourceVector {
    let mut vector = ResourceVector::new();
    for (name, units) in model {
        vector.set(table.intern(NAMES[*name]), *units);
    }
    vector
}

fn combined(a: &Model, b: &Model, op: impl Fn(i64, i64) -> i64) -> Model {
    let at = |model: &Model, name: usize| model.get(&name).copied().unwrap_or(0);
    (0..NAMES.len()).map(|name| (name, op(at(a, name), at(b, name)))).collect()
}

proptest! {
    #[test]
    fn behaves_like_a_map(a in model(), b in model()) {
        let mut table = ResourceTable::new();
        for name in NAMES.into_iter().rev() {
            table.intern(name);
        }
        let (ours, theirs) = (vector(&a, &mut table), vector(&b, &mut table));
        let mut sum = ours.clone();
        sum += &theirs;
        prop_assert_eq!(&sum, &vector(&combined(&a, &b, i64::saturating_add), &mut table));
        let mut difference = ours.clone();
        difference -= &theirs;
        prop_assert_eq!(&difference, &vector(&combined(&a, &b, i64::saturating_sub), &mut table));
        let mut most = ours.clone();
        most.max_assign(&theirs);
        prop_assert_eq!(&most, &vector(&combined(&a, &b, i64::max), &mut table));
        let overflows = combined(&a, &b, |x, y| i64::from(x.checked_add(y).is_none())).values().any(|o| *o == 1);
        prop_assert_eq!(ours.checked_add(&theirs).is_none(), overflows);
        let lacks = combined(&a, &b, |x, y| i64::from(x > 0 && x > y)).values().filter(|lacks| **lacks == 1).count();
        prop_assert_eq!(ours.lacking(&theirs).count(), lacks);
        prop_assert_eq!(ours.fits(&theirs), lacks == 0);
        prop_assert_eq!(ours.is_zero(), a.values().all(|units| *units == 0));
    }

    #[test]
    fn adding_and_taking_away_leaves_no_trace(start in model(), steps in proptest::collection::vec(model(), 0..8)) {
        let mut table = ResourceTable::new();
        let small = |model: &Model| -> Model { model.iter().map(|(name, units)| (*name, units % 1000)).collect() };
        let before = vector(&small(&start), &mut table);
        let mut ledger = before.clone();
        for step in &steps {
            ledger += &vector(&small(step), &mut table);
        }
        for step in &steps {
            ledger -= &vector(&small(step), &mut table);
        }
        prop_assert_eq!(ledger, before);
    }
}
