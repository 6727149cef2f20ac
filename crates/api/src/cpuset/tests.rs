//! The worked examples of api 1.3, and the set laws.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn set(list: &str) -> CpuSet {
    list.parse().unwrap_or_else(|error| panic!("{list:?}: {error}"))
}

#[test]
fn lists() {
    for (key, list, canonical) in [
        ("api#1.3.C1", "3,1,2", "1-3"),
        ("api#1.3.C1", "0,0,0", "0"),
        ("api#1.3.C1", "0-3,2-5", "0-5"),
        ("api#1.3.C1", "5-5", "5"),
        ("api#1.3.C1", "00-03", "0-3"),
        ("api#1.3.C2", "", ""),
        ("api#1.3.C3", "3-1", ""),
        ("across blocks", "62-65,127,128,2147483647", "62-65,127-128,2147483647"),
    ] {
        assert_eq!(set(list).to_string(), canonical, "{key} {list:?}");
    }
}

#[test]
fn wrong_lists() {
    for (key, list) in ["1,", ",1", "1,,2", "-1", "0-", "a", "0x1", "1.0"]
        .map(|list| ("api#1.3.C4", list))
        .into_iter()
        .chain([" 0-3", "0, 1", "0-3\n", "0-3:2"].map(|list| ("api#1.3.C6", list)))
    {
        let error = list.parse::<CpuSet>().expect_err(list);
        assert!(matches!(&error, CpuListError::Id { list: named, .. } if named == list), "{key} {error}");
    }
    for (key, list, message) in [
        ("api#1.3.C5", "0--3", "invalid format: 0--3"),
        ("api#1.3.C5", "0-3-5", "invalid format: 0-3-5"),
        (
            "api#1.3.C8",
            "2147483648",
            r#"invalid CPU list "2147483648": "2147483648" is no CPU id, expected a list such as 0-3,8"#,
        ),
    ] {
        assert_eq!(list.parse::<CpuSet>().expect_err(list).to_string(), message, "{key}");
    }
}

#[test]
fn only_range_ends_are_limited() {
    assert_eq!(set("0-4096").len(), 4097, "api#1.3.C7");
    assert_eq!(
        "1-4097".parse::<CpuSet>().unwrap_err().to_string(),
        "end 4097 exceed the maximum available CPU count: 4096",
        "api#1.3.C7"
    );
    assert_eq!(set("4097").iter().collect::<Vec<_>>(), [4097], "api#1.3.C7");
}

#[test]
fn written_from_sets() {
    for (cpus, list) in
        [(&[0, 1][..], "0-1"), (&[0, 2, 4, 6], "0,2,4,6"), (&[7], "7"), (&[0, 1, 2, 5], "0-2,5")]
    {
        assert_eq!(cpus.iter().copied().collect::<CpuSet>().to_string(), list, "api#1.3.C9");
    }
    assert_eq!([0, 1, 2, 5].into_iter().collect::<CpuSet>().to_string(), "0-2,5", "api#10.85");
}

#[test]
fn json() {
    let cpus: CpuSet = serde_json::from_str("\"1,0\"").unwrap();
    assert_eq!(serde_json::to_string(&cpus).unwrap(), "\"0-1\"");
    assert!(serde_json::from_str::<CpuSet>("3").is_err());
}

#[test]
fn never_empty() {
    assert_eq!(NonEmptyCpuSet::new(CpuSet::new()), None);
    let cpus = NonEmptyCpuSet::new(set("3,2")).unwrap();
    assert_eq!(cpus.to_string(), "2-3");
    assert_eq!(cpus.as_set(), &set("2-3"));
    assert_eq!(cpus.into_set().len(), 2);
}

fn some_cpus() -> impl Strategy<Value = BTreeSet<u32>> {
    proptest::collection::btree_set(prop_oneof![0_u32..200, Just(4097), Just(i32::MAX.unsigned_abs())], 0..40)
}

proptest! {
    #[test]
    fn behaves_like_a_set_of_numbers(a in some_cpus(), b in some_cpus(), cpu in 0_u32..200) {
        let (mut ours, theirs): (CpuSet, CpuSet) = (a.iter().copied().collect(), b.iter().copied().collect());
        let list = |cpus: &CpuSet| cpus.iter().collect::<Vec<_>>();
        prop_assert_eq!(list(&(&ours | &theirs)), (&a | &b).into_iter().collect::<Vec<_>>());
        prop_assert_eq!(list(&(&ours & &theirs)), (&a & &b).into_iter().collect::<Vec<_>>());
        prop_assert_eq!(list(&(&ours - &theirs)), (&a - &b).into_iter().collect::<Vec<_>>());
        prop_assert_eq!(ours.is_subset(&theirs), a.is_subset(&b));
        prop_assert_eq!(ours.is_disjoint(&theirs), a.is_disjoint(&b));
        prop_assert_eq!((ours.len(), ours.first(), ours.last()), (a.len(), a.first().copied(), a.last().copied()));
        prop_assert_eq!(set(&ours.to_string()), ours.clone());
        let mut a = a;
        prop_assert_eq!(ours.contains(cpu), a.contains(&cpu));
        prop_assert_eq!(ours.remove(cpu), a.remove(&cpu));
        prop_assert_eq!(list(&ours), a.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(ours.insert(cpu), a.insert(cpu));
        prop_assert_eq!(list(&ours), a.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn any_text_reads_or_fails_cleanly(list in "[-0-9,+ ]{0,12}") {
        if let Ok(cpus) = list.parse::<CpuSet>() {
            prop_assert_eq!(set(&cpus.to_string()), cpus);
        }
    }
}
