//! Which GPUs do not work, and why. Pure. Spec: koordlet-observe 6.7, 14 (11).

use std::collections::{BTreeMap, BTreeSet};

/// Errors that a faulty application causes; the card survives them.
pub const XIDS_OF_APPLICATIONS: [u64; 6] = [13, 31, 43, 45, 68, 109];
/// The code of a card whose errors the driver does not tell.
const UNWATCHED: &str = "DeviceHealthCheckNotSupported";
/// The code of a card that left without an error number.
const LOST: &str = "GpuLost";

/// Why a card does not work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ailment {
    /// One word, such as `Xid79`.
    pub code: String,
    pub message: String,
}

/// The cards that do not work, by bus id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    ailments: BTreeMap<String, Ailment>,
}

/// What happened to cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Incident {
    /// Cards that cannot be watched.
    Unwatched(Vec<String>),
    /// A critical error. Without a UUID it means every card.
    Xid { number: u64, bus_id: Option<String>, uuid: String },
    /// The driver stopped telling; cards may have left.
    Interrupted,
}

impl Marks {
    pub fn of(&self, bus_id: &str) -> Option<&Ailment> {
        self.ailments.get(bus_id)
    }

    /// Takes note. `missing` tells of a card that does not answer any more what the driver says of it.
    pub(crate) fn note(
        &mut self,
        incident: &Incident,
        bus_ids: &[String],
        ignored: &BTreeSet<u64>,
        missing: impl Fn(&str) -> Option<String>,
    ) {
        match incident {
            Incident::Unwatched(cards) => {
                for card in cards {
                    self.mark(card, UNWATCHED, "the driver does not tell errors of this device");
                }
            }
            Incident::Xid { number, .. } if ignored.contains(number) => {}
            Incident::Xid { number, bus_id, uuid } => {
                let code = format!("Xid{number}");
                let message = format!("Xid error detected on device, error code: {number}");
                for card in bus_ids {
                    if uuid.is_empty() || bus_id.as_ref() == Some(card) {
                        self.mark(card, &code, &message);
                    } else if let Some(error) = missing(card) {
                        self.mark(card, &code, &format!("failed to get device, error: {error}"));
                    }
                }
            }
            Incident::Interrupted => {
                for card in bus_ids {
                    if let Some(error) = missing(card) {
                        self.mark(card, LOST, &format!("failed to get device, error: {error}"));
                    }
                }
            }
        }
    }

    /// Takes the marks off cards that answer again and that the driver calls usable.
    // Differs: upstream keeps a card unhealthy until koordlet restarts.
    pub(crate) fn recover(&mut self, is_usable: impl Fn(&str) -> bool) {
        self.ailments.retain(|bus_id, ailment| ailment.code == UNWATCHED || !is_usable(bus_id));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ailments.is_empty()
    }

    fn mark(&mut self, bus_id: &str, code: &str, message: &str) {
        let ailment = Ailment { code: code.to_owned(), message: message.to_owned() };
        if self.ailments.insert(bus_id.to_owned(), ailment).is_none_or(|before| before.code != code) {
            tracing::error!(gpu = bus_id, code, message, "a GPU does not work");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid(number: u64, card: Option<&str>) -> Incident {
        let uuid = card.map(|card| format!("GPU-{card}")).unwrap_or_default();
        Incident::Xid { number, bus_id: card.map(str::to_owned), uuid }
    }

    #[test]
    fn incidents() {
        let cards = ["0000:0a:00.0", "0000:0b:00.0"].map(str::to_owned);
        let [a, b] = [cards[0].as_str(), cards[1].as_str()];
        let xid_message = |number| format!("Xid error detected on device, error code: {number}");
        let lost = "failed to get device, error: gone";
        for (name, incident, missing, want) in [
            ("koordlet-observe#13.4.D10 ignored", xid(31, Some(a)), "", vec![]),
            ("koordlet-observe#13.4.D10 counts", xid(79, Some(a)), "", vec![(a, "Xid79", xid_message(79))]),
            (
                "another left too",
                xid(79, Some(a)),
                b,
                vec![(a, "Xid79", xid_message(79)), (b, "Xid79", lost.to_owned())],
            ),
            (
                "no UUID means all",
                xid(48, None),
                "",
                vec![(a, "Xid48", xid_message(48)), (b, "Xid48", xid_message(48))],
            ),
            ("a card of nobody", xid(48, Some("0000:0c:00.0")), "", vec![]),
            ("the watch broke", Incident::Interrupted, b, vec![(b, LOST, lost.to_owned())]),
            ("the watch broke, all answer", Incident::Interrupted, "", vec![]),
            (
                "unwatched",
                Incident::Unwatched(vec![b.to_owned()]),
                "",
                vec![(b, UNWATCHED, "the driver does not tell errors of this device".to_owned())],
            ),
        ] {
            let mut marks = Marks::default();
            marks.note(&incident, &cards, &XIDS_OF_APPLICATIONS.into(), |card| {
                (card == missing).then(|| "gone".to_owned())
            });
            let seen: Vec<(&str, &str, String)> = marks
                .ailments
                .iter()
                .map(|(card, ailment)| (card.as_str(), ailment.code.as_str(), ailment.message.clone()))
                .collect();
            assert_eq!(seen, want, "{name}");
        }
    }

    #[test]
    fn cards_recover_when_the_driver_says_so() {
        let cards = ["a", "b", "c"].map(str::to_owned);
        let mut marks = Marks::default();
        marks.note(&xid(79, Some("a")), &cards, &BTreeSet::new(), |_| None);
        marks.note(&xid(13, Some("b")), &cards, &BTreeSet::new(), |_| None);
        marks.note(&Incident::Unwatched(vec!["c".to_owned()]), &cards, &BTreeSet::new(), |_| None);
        assert!(marks.of("b").is_some(), "the list of ignored errors is the caller's");
        marks.recover(|card| card != "a");
        assert_eq!(marks.of("a").map(|ailment| &*ailment.code), Some("Xid79"));
        assert_eq!(marks.of("b"), None);
        assert_eq!(
            marks.of("c").map(|ailment| &*ailment.code),
            Some(UNWATCHED),
            "nothing can show that it works"
        );
    }
}
