//! Core scheduling on a tree of plain files, with a kernel that keeps cookies in a table: none of those that tests run on
//! has them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use super::super::core_sched::{Changed, Cookies, CoreSched, clear_below};
use super::*;

/// Cookies by process; a process without an entry is not there.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<u32, u64>>>);

impl Table {
    fn with(pids: &[u32]) -> Table {
        Table(Arc::new(Mutex::new(pids.iter().map(|pid| (*pid, 0)).collect())))
    }

    fn get(&self, pids: &[u32]) -> Vec<u64> {
        let table = self.0.lock().unwrap();
        pids.iter().map(|pid| table[pid]).collect()
    }

    fn set(&self, pid: u32, cookie: u64) -> io::Result<()> {
        match self.0.lock().unwrap().get_mut(&pid) {
            Some(held) => *held = cookie,
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(())
    }
}

impl Cookies for Table {
    fn is_supported(&self) -> bool {
        true
    }

    fn cookie(&self, pid: u32) -> io::Result<u64> {
        self.0.lock().unwrap().get(&pid).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, pid: u32) -> io::Result<()> {
        let newest = self.0.lock().unwrap().values().copied().max().unwrap_or(0);
        self.set(pid, newest + 1)
    }

    fn share(&self, from: u32, to: &[u32]) -> Changed {
        let cookie = self.cookie(from)?;
        Ok(to.iter().map(|pid| self.set(*pid, cookie)).collect())
    }

    fn clear(&self, pids: &[u32]) -> Changed {
        Ok(pids.iter().map(|pid| self.set(*pid, 0)).collect())
    }
}

impl World {
    /// The kernel's cookies are these.
    fn with_cookies(mut self, table: &Table) -> World {
        let entry = self.act.entries.iter_mut().find(|entry| entry.name == "CoreSched").unwrap();
        entry.strategy = Box::new(CoreSched::new(Box::new(table.clone())));
        self
    }

    fn put_processes(&self, group: &str, pids: &str) {
        self.put(&format!("kubepods/{group}/cgroup.procs"), pids);
        self.put(&format!("kubepods/{group}/cpuset.cpus"), "");
    }
}

fn core_sched(is_on: bool) -> Value {
    let class = json!({ "cpuQOS": { "enable": is_on, "coreExpeller": false, "schedIdle": 0 } });
    let idle = json!({ "cpuQOS": { "enable": is_on, "coreExpeller": false, "schedIdle": 1 } });
    json!({ "resourceQOSStrategy": { "policies": { "cpuPolicy": "coreSched" }, "lsClass": class, "beClass": idle } })
}

fn service(name: &str, group: &str) -> Pod {
    let pod = pod(name).qos("LS").kube_qos("Burstable").label("koordinator.sh/core-sched-group-id", group);
    pod.container("main", &[], &[]).running().read()
}

fn world(pods: Vec<Pod>) -> World {
    let world = World::new(Version::V2, "-feature-gates=CoreSched=true", core_sched(true), pods);
    for class in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
        world.put(&format!("{class}/cpu.idle"), "0\n");
    }
    world.put_processes("burstable/poda/a-main", "11\n12\n");
    world.put_processes("burstable/podb/b-main", "21\n");
    world.put_processes("burstable/podc/c-main", "31\n");
    world.put_processes("besteffort/podz/z-main", "91\n");
    world
}

const PIDS: [u32; 5] = [11, 12, 21, 31, 91];

#[test]
fn groups_share_cookies_and_nobody_else_does() {
    let pods = vec![service("a", "x"), service("b", "x"), service("c", "y"), best_effort("z")];
    let table = Table::with(&PIDS);
    let mut world = world(pods).with_cookies(&table);
    world.second();
    let [a, also_a, b, c, z]: [u64; 5] = table.get(&PIDS).try_into().unwrap();
    assert!(a != 0 && a == also_a && a == b, "one group, two pods");
    assert!(c != 0 && c != a && z != 0 && z != a && z != c, "groups of their own");
    assert_eq!(world.get("kubepods/besteffort/cpu.idle"), "1");
    assert_eq!(world.get("kubepods/burstable/cpu.idle"), "0");

    // A process that came later, and one whose cookie somebody took.
    table.0.lock().unwrap().insert(13, 0);
    world.put_processes("burstable/poda/a-main", "11\n12\n13\n");
    table.set(31, 0).unwrap();
    for _ in 0..11 {
        world.second();
    }
    assert_eq!(table.get(&[11, 12, 13, 21]), [a; 4]);
    assert!(table.get(&[31])[0] != 0);

    // Switched off, everybody has the system's cookie again.
    world.order(core_sched(false));
    world.second();
    assert_eq!(table.get(&PIDS), [0; 5]);
    let records = world.records("runtime-hooks");
    let class = "enable true, coreExpeller false, schedIdle";
    for (name, message) in [
        ("main", format!(r#"create cookie of group "x" for 2 processes; QoS LS, {class} 0"#)),
        ("main", format!(r#"assign cookie of group "x" for 1 processes; QoS LS, {class} 0"#)),
        ("main", format!(r#"create cookie of group "" for 1 processes; QoS BE, {class} 1"#)),
        (
            "main",
            "clear cookie for 3 processes; QoS LS, enable false, coreExpeller false, schedIdle 0".to_owned(),
        ),
        ("besteffort", format!("update cpu.idle to 1, was 0; class of BestEffort pods: {class} 1")),
    ] {
        let wanted = (name.to_owned(), message);
        assert!(records.contains(&wanted), "{wanted:?} is not in {records:#?}");
    }
    let page = world.page();
    assert!(
        page.contains(r#"koordlet_node_change{node="n1",kind="core-sched-cookie",status="success"}"#),
        "{page}"
    );
    world.order(json!({}));
    world.second();
    assert_eq!(world.get("kubepods/besteffort/cpu.idle"), "0");
}

/// Spec: koordlet-enforce 14.5.
#[test]
fn an_init_container_has_its_pods_cookie_while_it_runs() {
    let sketch = pod("a").qos("LS").kube_qos("Burstable").container("main", &[], &[]);
    let world = world(vec![sketch.initializing("setup", &[], &[]).read()]);
    let table = Table::with(&PIDS);
    let mut world = world.with_cookies(&table);
    world.put_processes("burstable/poda/a-setup", "12\n");
    world.second();
    let given = table.get(&PIDS).iter().filter(|cookie| **cookie != 0).count();
    assert!(table.get(&[12])[0] != 0 && given == 1, "{:?}", table.get(&PIDS));
}

/// A pod without cookies is left alone, in the log as well, though best-effort pods have the group that it would be in.
#[test]
fn a_pod_that_wants_no_cookie_is_cleared_once() {
    let alone = pod("a").qos("LS").kube_qos("Burstable").label("koordinator.sh/core-sched-policy", "none");
    let pods = vec![alone.container("main", &[], &[]).running().read(), best_effort("z")];
    let table = Table::with(&PIDS);
    table.set(12, 7).unwrap();
    let mut world = world(pods).with_cookies(&table);
    for _ in 0..25 {
        world.second();
    }
    assert_eq!(table.get(&[11, 12]), [0, 0]);
    let cleared = world.records("runtime-hooks");
    let cleared: Vec<&str> = cleared
        .iter()
        .map(|(_, message)| &**message)
        .filter(|message| message.starts_with("clear"))
        .collect();
    let want = "clear cookie for 1 processes; QoS LS, enable true, coreExpeller false, schedIdle 0";
    assert_eq!(cleared, [want]);
}

/// What an earlier run gave out is kept, so that no pod loses its core for a moment.
#[test]
fn another_run_takes_cookies_over() {
    let pods = || vec![service("a", "x"), service("b", "x")];
    let table = Table::with(&PIDS);
    let mut first = world(pods()).with_cookies(&table);
    first.second();
    let given = table.get(&[11, 12, 21]);
    let mut second = world(pods()).with_cookies(&table);
    second.second();
    assert_eq!(table.get(&[11, 12, 21]), given);
}

/// Clean-up needs no pods and no strategy: whatever runs below the group of all pods loses its cookie.
#[test]
fn clean_up_takes_all_cookies_away() {
    let pods = vec![service("a", "x"), service("c", "y"), best_effort("z")];
    let table = Table::with(&PIDS);
    let mut world = world(pods).with_cookies(&table);
    world.second();
    let given = table.get(&PIDS).iter().filter(|cookie| **cookie != 0).count();
    assert!(given >= 4, "{:?}", table.get(&PIDS));
    let cgroups = &world.act.setting.cgroups;
    assert_eq!(clear_below(cgroups, &cgroups.kube_root(), &table), given);
    assert_eq!(table.get(&PIDS), [0; 5]);
    assert_eq!(clear_below(cgroups, &cgroups.kube_root(), &table), 0, "nothing is left to do");
}
