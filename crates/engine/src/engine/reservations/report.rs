//! The second event of a pod that must use a reservation: what became of the reservations. Spec:
//! scheduler-reservation-loadaware A22.

/// What every item about reservations has after its number.
const MARK: &str = " Reservation(s) ";
const TOTAL: &str = "matched owner total";
const NODE_REASON: &str = "for node reason that ";
const NAME_MATCHES: &str = "exactly matches the requested reservation name";
const NAME_DIFFERS: &str = "didn't match the requested reservation name";
/// How the parts of an item go on that has amounts.
const AMOUNTS: [&str; 3] = ["requested: ", "used: ", "capacity: "];

/// The text for a fit error; none when that says nothing of reservations.
pub(crate) fn reservations_message(fit_error: &str) -> Option<String> {
    let rest = fit_error.strip_prefix("0/")?.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let rest = rest.strip_prefix(" nodes are available: ")?;
    let mut total = None;
    let mut items: Vec<Item> = Vec::new();
    let mut is_open = false;
    for part in rest.replace(". ", ", ").split(',') {
        let part = part.trim_matches([' ', '.']);
        if is_open
            && AMOUNTS.iter().any(|start| part.starts_with(start))
            && let Some(item) = items.last_mut()
        {
            // Differs: upstream loses the amounts at their commas.
            item.text.push_str(", ");
            item.text.push_str(part);
            continue;
        }
        is_open = false;
        let Some((count, what)) = part.split_once(MARK) else { continue };
        if count.is_empty() || !count.bytes().all(|letter| letter.is_ascii_digit()) {
            continue;
        }
        if what == TOTAL {
            total = Some(count.to_owned());
            continue;
        }
        items.push(Item { place: Place::of(what), text: part.to_owned() });
        is_open = true;
    }
    // Stable: within a place the order of the fit error stays.
    items.sort_by_key(|item| item.place);
    let texts: Vec<String> = items.into_iter().map(|item| item.text).collect();
    Some(format!("0/{} reservations are available: {}.", total?, texts.join(", ")))
}

struct Item {
    place: Place,
    text: String,
}

/// Where an item stands among the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Name,
    Other,
    NodeReason,
}

impl Place {
    fn of(what: &str) -> Place {
        match what {
            NAME_MATCHES | NAME_DIFFERS => Place::Name,
            _ if what.starts_with(NODE_REASON) => Place::NodeReason,
            _ => Place::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_reservations() {
        for (key, fit_error, want) in [
            (
                "scheduler-reservation-loadaware#A22.V11",
                "0/3 nodes are available: 1 Insufficient cpu by node, 2 Reservation(s) Insufficient cpu. \
                 1 Reservation(s) is unschedulable, 3 Reservation(s) matched owner total.",
                Some(
                    "0/3 reservations are available: 2 Reservation(s) Insufficient cpu, 1 Reservation(s) is unschedulable.",
                ),
            ),
            (
                "scheduler-reservation-loadaware#A22.V12",
                "0/1 nodes are available: 1 node(s) no reservations match reservation affinity. \
                 0 Reservation(s) matched owner total.",
                Some("0/0 reservations are available: ."),
            ),
            (
                "scheduler-reservation-loadaware#A22.V13",
                "0/2 nodes are available: 2 Reservation(s) Insufficient cpu.",
                None,
            ),
            ("scheduler-reservation-loadaware#A22.V14", "no nodes available to schedule pods", None),
            (
                "scheduler-reservation-loadaware#A22.V15",
                "0/4 nodes are available: 4 x. preemption: not eligible, 2 Reservation(s) for node reason that node(s) \
                 had taint {a: b}, 1 Reservation(s) didn't match affinity rules, 1 Reservation(s) exactly matches the \
                 requested reservation name, 4 Reservation(s) matched owner total.",
                Some(
                    "0/4 reservations are available: 1 Reservation(s) exactly matches the requested reservation name, \
                     1 Reservation(s) didn't match affinity rules, 2 Reservation(s) for node reason that node(s) had \
                     taint {a: b}.",
                ),
            ),
            (
                "scheduler-reservation-loadaware#A22.V16",
                "0/1 nodes are available: 1 Reservation(s) Insufficient cpu, requested: 3000, used: 6000, capacity: \
                 8000. 1 Reservation(s) exactly matches the requested reservation name, 1 Reservation(s) matched owner \
                 total.",
                Some(
                    "0/1 reservations are available: 1 Reservation(s) exactly matches the requested reservation name, \
                     1 Reservation(s) Insufficient cpu, requested: 3000, used: 6000, capacity: 8000.",
                ),
            ),
            (
                "scheduler-reservation-loadaware#A22.V17",
                "0/1 nodes are available: 2 Reservation(s) Insufficient cpu. 3 Reservation(s) didn't match affinity \
                 rules, 5 Reservation(s) matched owner total. Gang \"a/b\" gets rejected due to pod is unschedulable.",
                Some(
                    "0/5 reservations are available: 2 Reservation(s) Insufficient cpu, 3 Reservation(s) didn't match \
                     affinity rules.",
                ),
            ),
        ] {
            assert_eq!(reservations_message(fit_error).as_deref(), want, "{key}");
        }
    }
}
