//! What a pod may ask of the sandbox, each key spelt once.
//!
//! Durations are written as Go writes them (`90s`, `1h30m`) and pass in the fleet's own time: with a
//! speed of 60 a pod with a run time of `1h` ends after a minute.

/// How long containers run before they exit with `EXIT_CODE`. Without it they run for ever, or ten
/// seconds in a pod whose restartPolicy is not Always.
pub const RUN_TIME: &str = "sandbox.koord.sh/run-time";
/// From the node taking the pod to its first container running.
pub const START_DELAY: &str = "sandbox.koord.sh/start-delay";
/// From a container running to it being ready, on top of the delays of its probes.
pub const READY_DELAY: &str = "sandbox.koord.sh/ready-delay";
/// How long each init container runs.
pub const INIT_TIME: &str = "sandbox.koord.sh/init-time";
/// How long containers take to end when asked to; one that takes longer than its grace is killed.
pub const STOP_DELAY: &str = "sandbox.koord.sh/stop-delay";
/// What containers exit with at the end of their run time, 0 to 255.
pub const EXIT_CODE: &str = "sandbox.koord.sh/exit-code";
/// Each run of a container fails after this long, with `EXIT_CODE` or 1.
pub const FAIL_AFTER: &str = "sandbox.koord.sh/fail-after";
/// The share of runs that fail: `20%` or `0.2`. Where a run fails is up to `FAIL_AFTER`, else chance.
pub const FAILURE_RATE: &str = "sandbox.koord.sh/failure-rate";
/// CPU the pod uses. A profile: `500m`, `60%` of its request, `wave:min=20%,max=80%,period=24h,phase=6h`,
/// `burst:base=10%,peak=100%,every=10m,for=1m`, `trace:CONFIGMAP/KEY`.
pub const CPU_USAGE: &str = "sandbox.koord.sh/cpu-usage";
/// Memory the pod uses; a profile as for `CPU_USAGE`.
pub const MEMORY_USAGE: &str = "sandbox.koord.sh/memory-usage";

/// All of them.
pub const ALL: [&str; 10] = [
    RUN_TIME,
    START_DELAY,
    READY_DELAY,
    INIT_TIME,
    STOP_DELAY,
    EXIT_CODE,
    FAIL_AFTER,
    FAILURE_RATE,
    CPU_USAGE,
    MEMORY_USAGE,
];

/// What every key begins with; a key of this domain that is not in `ALL` is a mistake worth telling.
pub const DOMAIN: &str = "sandbox.koord.sh/";
