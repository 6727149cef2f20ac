//! Vendors of accelerators: who is on this machine, and what their tools tell. Spec: koordlet-observe 6.5.
//!
//! One file for each vendor; a new one is one file and one row of [`VENDORS`]. Tools answer in tables made for people, so
//! each word that is looked for is named in the error about an answer that lacks it.

mod cambricon;
mod huawei;
mod kunlun;
mod metax;

#[cfg(test)]
pub(super) mod tests;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

use koord_kit::log::chain;
use koord_linux::pci::{self, Identity};
use koord_linux::root::Root;

use crate::devices::xpu::{Topology, Xpu};
use crate::programs::{Fault, Programs};

/// How much of an answer an error shows.
const SAID_MAX: usize = 200;

/// Who makes accelerators.
pub(super) struct Vendor {
    pub(super) name: &'static str,
    is_made: fn(Identity) -> bool,
    cards: fn(&Machine<'_>) -> Result<Vec<Card>, AskError>,
}

/// Every vendor whose accelerators can be described.
pub(super) const VENDORS: &[Vendor] = &[
    // Bridges and sound cards of the same maker are none.
    Vendor {
        name: "huawei",
        is_made: |id| id.vendor == 0x19e5 && ![0x1710, 0x1711].contains(&id.product),
        cards: huawei::cards,
    },
    Vendor { name: "kunlun", is_made: |id| id.vendor == 0x1d22, cards: kunlun::cards },
    Vendor { name: "cambricon", is_made: |id| id.vendor == 0xcabc, cards: cambricon::cards },
    Vendor { name: "metax", is_made: |id| id.vendor == 0x9999, cards: metax::cards },
];

impl Vendor {
    pub(super) fn is_present(&self, devices: &[Identity]) -> bool {
        devices.iter().any(|id| (self.is_made)(*id))
    }

    /// What there is of this vendor; an error when its tool does not even tell how many there are, or what they share.
    pub(super) fn cards(&self, machine: &Machine<'_>) -> Result<Vec<Card>, AskError> {
        (self.cards)(machine)
    }
}

/// A card that is there, and what its own questions were answered.
pub(super) struct Card {
    pub(super) minor: String,
    pub(super) told: Result<Xpu, AskError>,
}

/// The machine that is asked.
pub(super) struct Machine<'m> {
    pub(super) tools: &'m dyn Programs,
    pub(super) root: &'m Root,
    /// The machine's `/dev`.
    pub(super) dev: &'m Path,
    /// What is not as it should be about cards that are described all the same.
    pub(super) remarks: RefCell<BTreeSet<String>>,
}

/// Why a vendor's devices are not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Tool(#[from] Fault),
    #[error("`{command}` does not tell {wanted}; it said {said:?}")]
    Answer { command: String, wanted: &'static str, said: String },
    #[error("not asked any more, since the tool hangs")]
    NotAsked,
    #[error(
        "npu-smi tells of {cards} cards, but {dir} holds {files} files davinciN; whose is whose is known only when each card has one"
    )]
    Files { cards: usize, files: usize, dir: String },
    #[error("cannot list {dir}")]
    Dev { dir: String, source: std::io::Error },
}

/// What a tool said to which words.
struct Answer {
    command: String,
    text: String,
}

impl Machine<'_> {
    fn ask(&self, words: &[&str]) -> Result<Answer, AskError> {
        let text = self.tools.run(words)?;
        Ok(Answer { command: words.join(" "), text })
    }

    fn remark(&self, text: String) {
        self.remarks.borrow_mut().insert(text);
    }

    /// Where a device sits, by its bus id. What `/sys` does not know is left to its default.
    fn topology(&self, bus_id: &str) -> Topology {
        let bus_id = pci::bus_id(bus_id).unwrap_or_else(|| bus_id.to_owned());
        let place = pci::place(self.root, &bus_id).unwrap_or_else(|error| {
            self.remark(format!("nobody knows where device {bus_id} sits: {}", chain(&error)));
            pci::Place::default()
        });
        Topology {
            // Sockets are told by no tool.
            socket_id: "-1".to_owned(),
            node_id: place.numa_node.to_string(),
            pcie_id: place.pcie_root,
            bus_id,
            ..Topology::default()
        }
    }
}

impl Answer {
    fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map(str::trim)
    }

    /// Lines that contain a text.
    fn lines_with<'a>(&'a self, part: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines().filter(move |line| line.contains(part))
    }

    /// The last word of the first line that contains a text.
    fn value(&self, name: &'static str) -> Result<&str, AskError> {
        self.find(name).ok_or_else(|| self.lacks(name))
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.lines().find(|line| line.contains(name)).and_then(last_word)
    }

    /// The sum of the numbers at the ends of lines that contain one of these texts; there must be one.
    fn sum(&self, names: &[&str], wanted: &'static str) -> Result<u64, AskError> {
        let lines = self.lines().filter(|line| names.iter().any(|name| line.contains(name)));
        let numbers: Option<Vec<u64>> = lines.map(|line| last_word(line)?.parse().ok()).collect();
        let sum = numbers
            .filter(|numbers| !numbers.is_empty())
            .map(|numbers| numbers.into_iter().fold(0, u64::saturating_add));
        sum.ok_or_else(|| self.lacks(wanted))
    }

    fn lacks(&self, wanted: &'static str) -> AskError {
        let said = self.text.trim().chars().take(SAID_MAX).collect();
        AskError::Answer { command: self.command.clone(), wanted, said }
    }
}

fn last_word(line: &str) -> Option<&str> {
    line.split_whitespace().next_back()
}

/// Describes cards one by one, by their numbers. One that fails leaves the others to be described, but once a tool hangs no
/// more is asked of it, for each question would take its whole time.
fn each<M: Display>(
    minors: impl IntoIterator<Item = M>,
    describe: impl Fn(&M) -> Result<Xpu, AskError>,
) -> Vec<Card> {
    let mut hangs = false;
    let card = |minor: M| {
        let told = if hangs { Err(AskError::NotAsked) } else { describe(&minor) };
        hangs |= matches!(told, Err(AskError::Tool(Fault::Hung(_))));
        Card { minor: minor.to_string(), told }
    };
    minors.into_iter().map(card).collect()
}
