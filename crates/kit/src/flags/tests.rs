use super::*;

const TABLE: &[Flag] = &[
    Flag::new("config", Kind::Text, "", "configuration file").group("Files"),
    Flag::new("enable-leader-election", Kind::Bool, "true", "one replica acts").group("Replicas"),
    Flag::new("metrics-addr", Kind::Text, ":8080", "where metrics are served").group("Serving"),
    Flag::new("sync-period", Kind::Duration, "0s", "full resync").group("Replicas"),
    Flag::new("kube-api-qps", Kind::Float, "20", "requests per second").group("Client"),
    Flag::new("namespaces", Kind::List, "", "namespaces to watch").group("Client"),
    Flag::new("old-name", Kind::Text, "", "former name of config").group("Files").deprecated("use --config"),
];

const TABLES: &[&[Flag]] = &[TABLE, LOG_FLAGS, &[FEATURE_GATES]];

fn check(line: &str) -> Result<Values, String> {
    parse(TABLES, line.split_whitespace()).map_err(|errors| errors.to_string())
}

#[test]
fn every_spelling_means_the_same() {
    for line in [
        "--config=/etc/a.yaml --enable-leader-election=false -v=4",
        "-config=/etc/a.yaml -enable-leader-election=false --v=4",
        "-config /etc/a.yaml -enable_leader_election=false -v 4",
        "--config /etc/a.yaml --enable-leader-election false -v4",
        "--config /etc/a.yaml --enable_leader_election=F --v 4",
    ] {
        let values = check(line).unwrap();
        assert_eq!(values.text("config"), "/etc/a.yaml", "{line}");
        assert!(!values.bool("enable-leader-election"), "{line}");
        assert_eq!(values.int("v"), 4, "{line}");
        assert!(values.rest.is_empty(), "{line}");
        assert!(values.is_given("config") && !values.is_given("metrics-addr"), "{line}");
    }
}

#[test]
fn kinds_are_checked_and_defaults_hold() {
    let values = check("--sync-period=1m30s --kube-api-qps 12.5").unwrap();
    assert_eq!(values.duration("sync-period"), GoDuration(90_000_000_000));
    assert_eq!(values.float("kube-api-qps"), 12.5);
    assert_eq!(values.text("metrics-addr"), ":8080");
    assert!(values.bool("enable-leader-election"));
    assert_eq!(check("--v=0x10").unwrap().int("v"), 16);
}

#[test]
fn lists_and_maps_add_up() {
    let values =
        check("--namespaces=a,b --namespaces c -feature-gates=A=true,B=false --feature_gates=B=true")
            .unwrap();
    assert_eq!(values.list("namespaces"), ["a", "b", "c"]);
    let gates: Vec<_> = values.map("feature-gates").iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(gates, ["A=true", "B=true"]);
}

#[test]
fn a_switch_takes_no_other_word() {
    let values = check("--enable-leader-election --config x extra -- --config").unwrap();
    assert!(values.bool("enable-leader-election"));
    assert_eq!(values.rest, ["extra", "--config"]);
}

#[test]
fn help_and_version_are_seen() {
    assert!(check("-h").unwrap().help && check("--help").unwrap().help);
    assert!(check("--version").unwrap().version);
}

#[test]
fn old_flags_warn_once() {
    let values = check("--logtostderr=true -alsologtostderr --logtostderr --old-name=x").unwrap();
    assert_eq!(
        values.warnings,
        [
            "flag --logtostderr has no effect: logs always go to stderr",
            "flag --alsologtostderr has no effect: logs always go to stderr",
            "flag --old-name is deprecated: use --config",
        ]
    );
    assert_eq!(values.text("old-name"), "x");
}

#[test]
fn mistakes_are_named_together() {
    for (line, want) in [
        ("--confg=a", "unknown flag --confg; did you mean --config?"),
        ("--utterly-unknown", "unknown flag --utterly-unknown"),
        ("--config", "flag --config needs a value: a text"),
        ("--sync-period=5", "flag --sync-period: \"5\" is not accepted, expected a duration such as 1m30s"),
        (
            "--enable-leader-election=maybe",
            "flag --enable-leader-election: \"maybe\" is not accepted, expected true or false",
        ),
        (
            "--logging-format=xml",
            "flag --logging-format: \"xml\" is not accepted, expected one of text, json",
        ),
        ("--kube-api-qps=NaN", "flag --kube-api-qps: \"NaN\" is not accepted, expected a number such as 0.5"),
        ("-vx", "unknown flag -vx"),
        (
            "--feature-gates=A --metric-addr x",
            "flag --feature-gates: \"A\" is not accepted, expected pairs such as a=1,b=2\n\
             unknown flag --metric-addr; did you mean --metrics-addr?",
        ),
    ] {
        assert_eq!(check(line).unwrap_err(), want, "{line}");
    }
}

#[test]
fn log_options_come_from_their_flags() {
    let values = check("-v=5 --vmodule=cache=9,leader=1 --logging-format json").unwrap();
    let options = log_options(&values).unwrap();
    assert_eq!((options.verbosity, options.modules.len()), (5, 2));
    assert_eq!(options.format, crate::log::LogFormat::Json);
    assert!(log_options(&check("--vmodule=cache").unwrap()).is_err());
}

#[test]
fn gates_come_from_their_flag() {
    let (name, is_on) = Gates::defaults(Component::Scheduler).iter().next().unwrap();
    let values = check(&format!("--feature-gates={name}={}", !is_on)).unwrap();
    assert_eq!(feature_gates(&values, Component::Scheduler).unwrap().is_on(name), !is_on);
    assert!(feature_gates(&check("--feature-gates=NoSuchGate=true").unwrap(), Component::Scheduler).is_err());
}

#[test]
fn help_lists_flags_under_their_headings() {
    let text = help("koord scheduler", "Places pods.", &[&TABLE[..2], &LOG_FLAGS[..4]]);
    assert_eq!(
        text,
        "Places pods.\n\nUsage: koord scheduler [flags]\n\
         \nFiles:\n      --config text\n        configuration file\n\
         \nReplicas:\n      --enable-leader-election\n        one replica acts (default true)\n\
         \nLogs:\n  -v, --v int\n        verbosity: 0-3 info, 4 debug, 5 and up trace (default 0)\n\
         \x20     --vmodule a,b,…\n        verbosity of single modules, such as cache=5,leader=4\n\
         \x20     --logging-format text|json\n        the form of log lines (default text)\n\
         \nOther:\n  -h, --help\n        this text\n      --version\n        the version\n"
    );
}
