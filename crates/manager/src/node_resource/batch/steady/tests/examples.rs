//! The worked examples of the specification as one hour of a node's life. Spec: manager 6.7.
//!
//! What changes between one example and the next happens to node N1, a minute each. How much the amounts move, and
//! how often they promise more than there is, is counted for both strategies.

use super::*;

/// Batch cpu in milli-cores and memory in MiB; 0 where nothing is lent.
type Lent = [i64; 2];

/// A minute: what happens, whether the node reports, and what high-priority pods and the system really use.
struct Minute<'a> {
    key: &'a str,
    act: &'a dyn Fn(&mut World),
    is_reported: bool,
    /// In milli-cores and GiB.
    used: Lent,
}

/// 4.5 cores and 6 GiB of the system; web 6 and 40, db 5 and 30, new 2 and 4, mid 2 and 4.
const ALL: Lent = [19_500, 84];

fn hour<'a>() -> Vec<Minute<'a>> {
    let minute = |key, act, is_reported, used| Minute { key, act, is_reported, used };
    let nothing: &dyn Fn(&mut World) = &|_| {};
    vec![
        minute("B1", nothing, true, ALL),
        minute("B1, `new` is measured", &|w| w.usage("new", "koord-prod", "2", "4Gi"), true, ALL),
        minute("B18, what was dangling is gone", &|w| w.unreport("gone"), true, ALL),
        minute("B21", &|w| w.usage("web", "koord-prod", "6000500u", "40Gi"), true, ALL),
        minute("B30, a pod lands", &|w| w.pod("late", "LS", "koord-prod", "4", "4Gi"), true, [20_000, 85]),
        minute("and is measured", &|w| w.usage("late", "koord-prod", "500m", "1Gi"), true, [20_000, 85]),
        minute("B24", &|w| w.usage("web", "koord-prod", "5999m", "40Gi"), true, [20_000, 85]),
        minute(
            "B19, a batch job ends and its report has lost its class",
            &|w| {
                w.phase("spark", "Succeeded");
                w.usage("spark", "", "10", "20Gi");
                w.metric["status"]["podsMetric"].as_array_mut().unwrap().last_mut().unwrap()["qos"] =
                    json!("BE");
            },
            true,
            [20_000, 85],
        ),
        minute("and goes", &|w| w.unreport("spark"), true, [20_000, 85]),
        minute("B18, web ends", &|w| w.phase("web", "Succeeded"), true, [14_000, 45]),
        minute("and is no longer reported", &|w| w.unreport("web"), true, [14_000, 45]),
        minute("and lands again", &|w| w.phase("web", "Running"), true, ALL),
        minute("and is measured", &|w| w.usage("web", "koord-prod", "6", "40Gi"), true, ALL),
        minute("B32, silence", &|w| w.now += SignedDuration::from_mins(13), false, ALL),
        minute(
            "B9, for more than a quarter of an hour",
            &|w| w.now += SignedDuration::from_mins(2),
            false,
            ALL,
        ),
        minute("it reports again", nothing, true, ALL),
        minute(
            "B40, a report lacks the node",
            &|w| w.metric["status"]["nodeMetric"] = json!(null),
            true,
            ALL,
        ),
        minute("it is whole again", &|w| w.metric["status"]["nodeMetric"] = node_metric(), true, ALL),
        minute(
            "B39, db is LSR",
            &|w| w.find_pod("db")["metadata"]["labels"]["koordinator.sh/qosClass"] = json!("LSR"),
            true,
            ALL,
        ),
        minute("web has a burst", &|w| w.usage("web", "koord-prod", "12", "40Gi"), true, [25_500, 84]),
        minute("and is calm", &|w| w.usage("web", "koord-prod", "6", "40Gi"), true, ALL),
    ]
}

fn node_metric() -> serde_json::Value {
    World::n1().metric["status"]["nodeMetric"].take()
}

#[derive(Debug, Default)]
struct Count {
    variation: Lent,
    violations: [usize; 2],
}

fn count(strategy: serde_json::Value) -> Count {
    let (mut world, mut memory, mut count) = (World::n1(), NodeMemory::default(), Count::default());
    world.set(strategy);
    let mut before: Option<Lent> = None;
    for Minute { key, act, is_reported, used } in hour() {
        world.now += SignedDuration::from_mins(1);
        act(&mut world);
        if is_reported {
            world.report_age(SignedDuration::ZERO);
        }
        let (cpu, memory_bytes) = batch(&world.plan_with(&mut memory));
        let lent = [cpu.unwrap_or(0), memory_bytes.unwrap_or(0) >> 20];
        // 60 % of 64 cores and 65 % of 256 GiB are to be used.
        let room = [38_400 - used[0], 170_393 - used[1] * 1024];
        for at in 0..2 {
            count.variation[at] += before.map_or(0, |before| (lent[at] - before[at]).abs());
            count.violations[at] += usize::from(lent[at] > room[at]);
        }
        assert!(lent[0] >= 0, "{key}");
        before = Some(lent);
    }
    count
}

#[test]
fn moves_half_as_much_and_promises_no_more() {
    let (plain, steady) = (count(json!({})), count(json!({"batchStabilizationWindowSeconds": WINDOW})));
    let shown = format!("by default {plain:?}\nsteadier {steady:?}");
    for (at, what) in ["cpu", "memory"].into_iter().enumerate() {
        assert!(steady.variation[at] * 2 <= plain.variation[at], "manager#26.DB-23 {what} moves, {shown}");
        assert!(
            steady.violations[at] <= plain.violations[at],
            "manager#26.DB-23 {what} is promised, {shown}"
        );
    }
}
