//! Roles: the long-running programs that the one binary can play.
//!
//! A role is one row in `ROLES`. It is reached as `koord <name>` and by being called under one of
//! its program names (a link `koord-scheduler` -> `koord`). Roles read their own flags, since these
//! follow the original's spelling rather than clap's.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// One program that the binary can play.
pub(crate) struct Role {
    /// Subcommand name, e.g. `scheduler`.
    pub(crate) name: &'static str,
    /// Names under which the binary plays this role at once, e.g. `koord-scheduler`.
    pub(crate) programs: &'static [&'static str],
    /// One line for `koord --help`.
    pub(crate) about: &'static str,
    /// Runs the role with the words after its name.
    pub(crate) run: fn(Vec<OsString>) -> ExitCode,
}

/// Every role of this build, in the order of the help text.
pub(crate) const ROLES: &[Role] = &[
    Role {
        name: "scheduler",
        programs: &["koord-scheduler"],
        about: "Places pods on nodes: kube-scheduler with Koordinator's plugins",
        run: |words| koord_scheduler::run::main(words, crate::command::VERSION),
    },
    Role {
        name: "manager",
        programs: &["koord-manager"],
        about: "Reclaims unused capacity, tells agents their strategies, keeps quota trees, admits pods",
        run: |words| koord_manager::run::main(words, crate::command::VERSION),
    },
    Role {
        name: "koordlet",
        programs: &["koordlet"],
        about: "Watches a node, protects its important pods and lends the rest of it to best-effort ones",
        run: |words| {
            crate::lean::become_program("koordlet", &words);
            koordlet::run::main(words, crate::command::VERSION)
        },
    },
    Role {
        name: "device-daemon",
        programs: &["koord-device-daemon"],
        about: "Asks the tools of accelerators' vendors what a node has, and describes it for koordlet",
        run: |words| koordlet::device_daemon::main(words, crate::command::VERSION),
    },
];

/// The role that `program` (the first word, with or without a path) asks for.
pub(crate) fn by_program<'a>(roles: &'a [Role], program: &Path) -> Option<&'a Role> {
    let name = program.file_name()?.to_str()?;
    roles.iter().find(|role| role.programs.contains(&name))
}

/// Whether `program` is named after a component of Koord that this build does not have.
pub(crate) fn is_foreign_component(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("koord-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[Role] = &[
        Role {
            name: "scheduler",
            programs: &["koord-scheduler"],
            about: "",
            run: |words| ExitCode::from(u8::try_from(words.len()).unwrap()),
        },
        Role { name: "koordlet", programs: &["koordlet"], about: "", run: |_| ExitCode::SUCCESS },
    ];

    #[test]
    fn program_name_picks_the_role() {
        for (program, want) in [
            ("koord-scheduler", Some("scheduler")),
            ("/usr/local/bin/koord-scheduler", Some("scheduler")),
            ("./koordlet", Some("koordlet")),
            ("koord", None),
            ("scheduler", None),
            ("", None),
        ] {
            assert_eq!(by_program(TWO, Path::new(program)).map(|role| role.name), want, "{program}");
        }
    }

    #[test]
    fn component_names_without_a_role_are_noticed() {
        assert!(is_foreign_component(Path::new("/bin/koord-manager")));
        assert!(is_foreign_component(Path::new("koord-descheduler")));
        assert!(!is_foreign_component(Path::new("/usr/bin/koord")));
    }

    #[test]
    fn names_are_unique() {
        let subcommands = ROLES.iter().map(|role| role.name);
        let programs = ROLES.iter().flat_map(|role| role.programs.iter().copied());
        for mut names in [subcommands.collect::<Vec<&str>>(), programs.collect()] {
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{names:?}");
        }
    }
}
