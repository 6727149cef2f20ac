//! OOM scores of processes that are born and end, on a `/proc` of plain files.

use super::*;

/// A process of the container `main` of the pod `web`.
const PROCS: &str = "cpu/kubepods/burstable/podweb/web-main/cgroup.procs";

impl World {
    fn process(&self, pid: u32, parent: u32, start_ticks: u64, score: &str) {
        let stat = format!("{pid} (app) S {parent} 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start_ticks} 0");
        self.put_host(&format!("proc/{pid}/stat"), &stat);
        self.put_host(&format!("proc/{pid}/oom_score_adj"), score);
    }

    fn scores(&self, pids: &[u32]) -> Vec<String> {
        let path = |pid: &u32| self.host(&format!("proc/{pid}/oom_score_adj"));
        pids.iter().map(|pid| fs::read_to_string(path(pid)).unwrap().trim().to_owned()).collect()
    }

    fn annotate(&mut self, score: &str) {
        self.pods = vec![scored(score)];
        self.turn_with_pods();
    }
}

fn scored(score: &str) -> Pod {
    let pod = pod("web").qos("LS").kube_qos("Burstable").annotated("koordinator.sh/oom-score-adj", score);
    pod.container("main", &[], &[]).running().read()
}

#[test]
fn scores_follow_the_annotation_and_go_back_without_it() {
    let line = "-feature-gates=OOMScoreAdj=true";
    let mut world = World::new(Version::V1, line, json!({}), vec![scored("-500")]);
    world.put(PROCS, "10\n11\n");
    world.process(10, 1, 100, "900\n");
    world.process(11, 10, 101, "950\n");
    world.turn_with_pods();
    assert_eq!(world.scores(&[10, 11]), ["-500", "-500"]);
    let (container, message) = &world.records("runtime-hooks")[0];
    assert_eq!(container, "main");
    let want = "update oom_score_adj to -500, was 900; process 10, annotation koordinator.sh/oom-score-adj";
    assert_eq!(message, want);
    // 11 ends and somebody else has its id. 12 is a child of 10 and has its score.
    world.process(11, 1, 300, "7\n");
    world.process(12, 10, 301, "-500\n");
    world.put(PROCS, "10\n12\n");
    world.annotate("-400");
    assert_eq!(world.scores(&[10, 11, 12]), ["-400", "7", "-400"]);
    world.annotate("nonsense");
    assert_eq!(world.scores(&[10, 12]), ["-400", "-400"], "what is malformed changes nothing");
    world.annotate("");
    assert_eq!(world.scores(&[10, 11, 12]), ["900", "7", "900"], "what 12 was born with was ours");
}

/// A child that is born with the score we want is never written to, and yet gets back what its parent gets.
#[test]
fn scores_that_were_inherited_go_back() {
    let line = "-feature-gates=OOMScoreAdj=true";
    let mut world = World::new(Version::V1, line, json!({}), vec![scored("-500")]);
    world.put(PROCS, "10\n");
    world.process(10, 1, 100, "900\n");
    world.turn_with_pods();
    for pid in [11, 12] {
        world.process(pid, pid - 1, u64::from(pid), "-500\n");
    }
    world.put(PROCS, "10\n11\n12\n");
    world.turn_with_pods();
    world.annotate("");
    assert_eq!(world.scores(&[10, 11, 12]), ["900", "900", "900"]);
    assert_eq!(world.applier.kept(), 3, "the executor knows three values, and nothing is to be given back");
}
