//! Traffic control by programs of the test's own, which keep what they are told in files, fail, and hang.

use std::process::Command;
use std::thread;

use koord_api::annotation::Annotation as _;
use koord_api::annotation::network::PodNetworkQos;

use super::*;
use crate::act::tc::Tc;
use crate::programs::{Fault, Host, Programs, Stuck, TIME_LIMIT};

/// All three programs: what was run stands in `log`, what is there in `made-…`. A line that holds what `refused` holds
/// fails; one that holds what `hangs` holds waits until somebody writes to `gate`.
const SCRIPT: &str = r#"
cd "${0%/*}"
line="${0##*/} $*"
echo "$line" >> log
holds() { [ -e "$1" ] && case "$line" in *"$(cat "$1")"*) true ;; *) false ;; esac; }
holds refused && exit 1
holds hangs && exec cat gate
case "$line" in
  "tc qdisc show"*) if [ -e made-qdisc ]; then echo "qdisc htb 1: root refcnt 2 r2q 10 default 0x2"; fi ;;
  "tc qdisc replace"*) : > made-qdisc ;;
  "tc qdisc del"*) rm made-qdisc ;;
  "ipset create"*) : > "made-$3" ;;
  "ipset destroy"*) rm "made-$2" ;;
  "ipset list -name") for set in made-*_class; do
    case $set in made-rule-*|"made-*_class") ;; *) echo "${set#made-}" ;; esac; done ;;
  *" -S "*) cat made-rule-* 2>&- || : ;;
  *" -A "*) echo "-A POSTROUTING -m set --match-set ${10} src -j CLASSIFY --set-class ${15}" > "made-rule-${10}" ;;
  *" -D "*) rm "made-rule-${10}" ;;
esac
"#;

/// A VPN's half of all addresses is no default route.
const ROUTES: &str = "\
Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
tun0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000080\t0\t0\t0
eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";

/// Runs the scripts of a folder.
struct Scripts {
    dir: PathBuf,
    host: Host,
}

impl Programs for Scripts {
    /// By the shell, for a file that was just written may not be a program yet: others may have it open still.
    fn run(&self, words: &[&str]) -> Result<String, Fault> {
        let script = self.dir.join(words[0]).display().to_string();
        self.host.run(&[&["sh", &script], &words[1..]].concat())
    }
}

struct Traffic {
    world: World,
    scripts: PathBuf,
}

fn slo(net: &str) -> Value {
    let mut slo = threshold("cfsQuota");
    slo["resourceQOSStrategy"] = json!({ "policies": { "netQOSPolicy": net } });
    slo["systemStrategy"] = json!({ "totalNetworkBandwidth": "800M" });
    slo
}

const QUOTA: &str = "kubepods/besteffort/cpu.max";

impl Traffic {
    fn new(time_limit: Duration) -> Traffic {
        let traffic = Traffic::of(Version::V2, time_limit);
        traffic.world.put(QUOTA, "max 100000\n");
        traffic
    }

    fn of(version: Version, time_limit: Duration) -> Traffic {
        let mut world = World::new(version, "", slo("tc"), vec![best_effort("batch")]);
        let scripts = world.dir.path().join("scripts");
        fs::create_dir(&scripts).unwrap();
        for name in ["tc", "ipset", "iptables"] {
            fs::write(scripts.join(name), SCRIPT).unwrap();
        }
        assert!(Command::new("mkfifo").arg(scripts.join("gate")).status().unwrap().success());
        let root = Root::host(world.dir.path());
        fs::create_dir_all(root.proc.join("net")).unwrap();
        fs::write(root.proc.join("net/route"), ROUTES).unwrap();
        let host = Host { through: Vec::new(), time_limit, stuck: Stuck::default() };
        let traffic = Tc::new(&root, Box::new(Scripts { dir: scripts.clone(), host }));
        world.act.entries.push(entry(10, Box::new(traffic)));
        Traffic { world, scripts }
    }

    fn set(&self, file: &str, part: &str) {
        fs::write(self.scripts.join(file), part).unwrap();
    }

    fn unset(&self, file: &str) {
        fs::remove_file(self.scripts.join(file)).unwrap();
    }

    /// Lets the program go on that hangs.
    fn let_go(&self) {
        self.unset("hangs");
        fs::write(self.scripts.join("gate"), "").unwrap();
    }

    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.scripts.join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn count(&self, part: &str) -> usize {
        self.log().iter().filter(|line| line.contains(part)).count()
    }

    /// Names of what is there.
    fn made(&self) -> Vec<String> {
        let names = fs::read_dir(&self.scripts).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter(|name| name.starts_with("made-")).collect()
    }

    fn mark(&self) -> PathBuf {
        Root::host(self.world.dir.path()).var_run.join("koordlet/shaped-device")
    }

    /// A second in which the node uses so many cores.
    fn second(&mut self, cores: f64) {
        self.world.seconds(1, cores, &[("batch", 0.5)]);
    }

    /// Until the programs have come so far.
    fn until_run(&self, part: &str) {
        wait(|| self.count(part) > 0);
    }

    /// Until the order has ended, and a second more, in which its outcome is taken over.
    fn take_over(&mut self) {
        let strategy = &self.world.act.entries.last().unwrap().strategy;
        wait(|| strategy.is_urgent(News::default()));
        self.second(1.0);
    }
}

fn wait(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "it never came");
        thread::sleep(Duration::from_millis(2));
    }
}

fn words(line: &str) -> String {
    line.split(' ').take(3).collect::<Vec<&str>>().join(" ")
}

/// Suppression follows the load meanwhile, and nothing is ordered a second time.
#[test]
fn a_program_that_hangs_holds_up_nothing_else() {
    let mut traffic = Traffic::new(TIME_LIMIT * 100);
    traffic.set("hangs", "qdisc replace");
    traffic.second(1.0);
    traffic.until_run("qdisc replace");
    let quota = |traffic: &Traffic| traffic.world.get(QUOTA).split(' ').next().unwrap().to_owned();
    assert_eq!(quota(&traffic), "470000");
    for (cores, want) in [(3.0, "270000"), (5.0, "70000")] {
        traffic.world.news.pods = true;
        for _ in 0..100 {
            traffic.second(cores);
        }
        assert_eq!(quota(&traffic), want);
    }
    assert_eq!(traffic.log().len(), 2, "{:#?}", traffic.log());
    traffic.let_go();
    traffic.take_over();
    traffic.second(1.0);
    let log = traffic.log();
    let set = |name: &str| vec![format!("ipset create -exist"), format!("ipset list {name}")];
    let want = [
        vec!["tc qdisc show".to_owned(), "tc qdisc replace".to_owned()],
        vec!["tc class replace".to_owned(); 4],
        vec!["tc class show".to_owned(), "tc filter show".to_owned()],
        vec!["tc filter add".to_owned(); 3],
        set("system_class"),
        set("ls_class"),
        set("be_class"),
        vec!["iptables -w 2".to_owned(); 4],
    ];
    assert_eq!(log.iter().map(|line| words(line)).collect::<Vec<String>>(), want.concat());
}

#[test]
fn a_program_that_failed_is_run_again_on_the_next_pass() {
    let mut traffic = Traffic::new(TIME_LIMIT * 100);
    traffic.set("refused", "filter add");
    traffic.second(1.0);
    traffic.take_over();
    for _ in 0..9 {
        traffic.second(1.0);
        assert_eq!(traffic.count("filter add"), 1, "the next pass is the retry");
    }
    traffic.unset("refused");
    traffic.second(1.0);
    traffic.take_over();
    assert_eq!((traffic.count("filter add"), traffic.made().len()), (4, 7));
    let lines = traffic.log().len();
    for _ in 0..50 {
        traffic.second(1.0);
    }
    assert_eq!(traffic.log().len(), lines, "what is made is made once");
}

/// Once, when its packets find the class, and when the class is another; not by another run, which finds that traffic is
/// shaped.
#[tokio::test]
async fn pods_are_told_of_their_class() {
    let mut traffic = Traffic::new(TIME_LIMIT * 100);
    let sketch = || pod("batch").qos("BE").kube_qos("BestEffort").ip("10.0.0.7");
    let limited = |egress: &str| {
        let annotation = format!(r#"{{"egressLimit":"{egress}"}}"#);
        let sketch = sketch().annotated(PodNetworkQos::KEY, &annotation);
        vec![sketch.container("main", &[], &[]).running().read()]
    };
    traffic.world.listen();
    let told = |traffic: &mut Traffic| {
        traffic.world.news.pods = true;
        traffic.second(1.0);
        traffic.take_over();
        let all = traffic.world.told().into_iter();
        all.filter(|text| text.contains("traffic class")).collect::<Vec<String>>()
    };
    assert_eq!(told(&mut traffic), [""; 0], "nothing leads its packets there before it has an address");
    traffic.world.pods = vec![sketch().container("main", &[], &[]).running().read()];
    let first = told(&mut traffic);
    assert!(first.len() == 1 && first[0].ends_with("traffic class Be"), "{first:?}");
    for egress in ["10M", "20M"] {
        traffic.world.pods = limited(egress);
        let first = told(&mut traffic);
        let words = format!("limits egress to {}000000 bits/s", egress.trim_end_matches('M'));
        assert!(
            first.len() == 1 && first[0].starts_with("batch netqos reconcile: update traffic class to "),
            "{first:?}"
        );
        assert!(first[0].ends_with(&words), "{first:?}");
    }
    let root = Root::host(traffic.world.dir.path());
    traffic.world.act.entries.pop();
    let host = Host { through: Vec::new(), time_limit: TIME_LIMIT * 100, stuck: Stuck::default() };
    let again = Tc::new(&root, Box::new(Scripts { dir: traffic.scripts.clone(), host }));
    traffic.world.act.entries.push(entry(10, Box::new(again)));
    traffic.world.listen();
    assert_eq!(told(&mut traffic), [""; 0]);
    traffic.world.order(slo("terway-qos"));
    told(&mut traffic);
    let last = traffic.world.records("netqos reconcile").pop().unwrap().1;
    assert_eq!(last, "remove traffic classes; no policy asks for them");
}

/// With v1 a class id that was written to the pod's group has left a record; one that stands there already, or has nowhere
/// to stand, has not, and the pod is told.
#[tokio::test]
async fn pods_with_class_ids_are_told_once() {
    const CLASS: &str = "net_cls/kubepods/besteffort/podbatch/net_cls.classid";
    for (name, before, is_written) in
        [("new", Some("0"), true), ("from before", Some("65540"), false), ("not mounted", None, false)]
    {
        let mut traffic = Traffic::of(Version::V1, TIME_LIMIT * 100);
        if let Some(before) = before {
            traffic.world.put(CLASS, before);
            traffic.world.put("net_cls/kubepods/net_cls.classid", "0");
        }
        traffic.world.listen();
        traffic.second(1.0);
        traffic.take_over();
        traffic.second(1.0);
        let told: Vec<String> =
            traffic.world.told().into_iter().filter(|text| text.contains("class")).collect();
        let want = if is_written { "net_cls.classid to 65540" } else { "update traffic class to " };
        assert!(told.len() == 1 && told[0].contains(want), "{name}: {told:?}");
        assert_eq!(before.map(|_| traffic.world.get(CLASS)), before.map(|_| "65540".to_owned()), "{name}");
    }
}

/// The program that hangs is let go, or ended.
#[test]
fn switching_off_takes_everything_away_though_an_order_is_under_way() {
    for (time_limit, is_let_go) in [(TIME_LIMIT * 100, true), (Duration::from_secs(1), false)] {
        let mut traffic = Traffic::new(time_limit);
        traffic.set("hangs", "create -exist ls_class");
        traffic.second(1.0);
        traffic.until_run("ls_class");
        traffic.world.order(slo("terway-qos"));
        traffic.second(1.0);
        if is_let_go {
            assert_eq!(traffic.count(" del ") + traffic.count("destroy"), 0, "one order after the other");
            traffic.let_go();
        }
        wait(|| {
            traffic.second(1.0);
            !traffic.mark().exists()
        });
        assert_eq!(traffic.made(), Vec::<String>::new());
        let log = traffic.log();
        let at = |part: &str| log.iter().rposition(|line| line.contains(part)).unwrap();
        assert!(at("tc class replace") < at("tc qdisc del"), "{log:#?}");
        if is_let_go {
            assert!(at(" -D ") < at("ipset destroy be_class"), "a set that a rule names cannot go");
        }
    }
}

#[test]
fn the_end_of_the_process_waits_for_an_order() {
    let mut traffic = Traffic::new(TIME_LIMIT * 100);
    traffic.second(1.0);
    traffic.take_over();
    assert_eq!(traffic.made().len(), 7);
    traffic.set("hangs", "qdisc del");
    traffic.world.order(slo("terway-qos"));
    traffic.second(1.0);
    traffic.until_run("qdisc del");
    let entries = std::mem::take(&mut traffic.world.act.entries);
    thread::scope(|scope| {
        let end = scope.spawn(|| drop(entries));
        assert!(!end.is_finished() && traffic.made().len() == 7);
        traffic.let_go();
    });
    assert!(
        traffic.made() == ["made-qdisc"] && !traffic.mark().exists(),
        "the program that hung did nothing"
    );
}
