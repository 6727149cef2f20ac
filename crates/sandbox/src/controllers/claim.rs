//! Adoption and release: which pods a controller calls its own.

use koord_api::selector::Selector;
use serde_json::{Value, json};

use super::pod::Pod;
use super::view::Meta;
use crate::kinds::meta;

/// An owner reference to be put on or taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) uid: Box<str>,
    pub(crate) adopts: bool,
}

/// Splits what a controller may claim into its own, and what must change hands first.
pub(crate) fn claim<'a>(
    owner: &Meta,
    selector: &Selector,
    pods: impl Iterator<Item = &'a Pod>,
) -> (Vec<&'a Pod>, Vec<Change>) {
    let (mut own, mut changes) = (Vec::new(), Vec::new());
    for pod in pods {
        let change = |adopts| Change { key: pod.key(), uid: pod.uid.clone(), adopts };
        let matches = selector.matches(&pod.labels);
        match (&pod.owner, matches) {
            (Some(controller), true) if controller.uid == owner.uid => own.push(pod),
            (Some(controller), false) if controller.uid == owner.uid => {
                if !owner.is_deleting() {
                    changes.push(change(false));
                }
            }
            (Some(_), _) | (None, false) => {}
            (None, true) => {
                if !owner.is_deleting() && pod.deleting.is_none() && !pod.is_terminal() {
                    changes.push(change(true));
                }
            }
        }
    }
    (own, changes)
}

/// Puts the owner on an object, or takes it off.
pub(crate) fn apply(object: &mut Value, adopts: bool, owner: &Value) {
    let fields = meta::of_mut(object);
    let owners = fields.entry("ownerReferences").or_insert_with(|| json!([]));
    if !owners.is_array() {
        *owners = json!([]);
    }
    let Some(list) = owners.as_array_mut() else { return };
    let has_controller = list.iter().any(|o| o["controller"] == true && o["uid"] != owner["uid"]);
    list.retain(|o| o["uid"] != owner["uid"]);
    // Somebody else was faster.
    if adopts && !has_controller {
        list.push(owner.clone());
    }
    if list.is_empty() {
        fields.remove("ownerReferences");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::view::{LabelSet, Owner};
    use jiff::Timestamp;

    fn pod(name: &str, app: &str, owner: Option<&str>) -> Pod {
        Pod {
            name: name.into(),
            namespace: "d".into(),
            labels: LabelSet([("app".into(), app.into())].into()),
            owner: owner.map(|uid| Box::new(Owner { uid: uid.into(), controller: true, ..Owner::default() })),
            ..Pod::default()
        }
    }

    #[test]
    fn pods_are_adopted_and_released_by_their_labels() {
        let owner = Meta { uid: "me".into(), ..Meta::default() };
        let leaving = Pod { deleting: Some(Timestamp::UNIX_EPOCH), ..pod("leaving", "web", None) };
        let pods = [
            pod("mine", "web", Some("me")),
            pod("theirs", "web", Some("other")),
            pod("stray", "db", Some("me")),
            pod("orphan", "web", None),
            pod("unrelated", "db", None),
            leaving,
        ];
        let selector: Selector = "app=web".parse().unwrap();
        let (own, changes) = claim(&owner, &selector, pods.iter());
        assert_eq!(own.iter().map(|p| &*p.name).collect::<Vec<_>>(), ["mine"]);
        let changes: Vec<(&str, bool)> = changes.iter().map(|c| (c.key.as_str(), c.adopts)).collect();
        assert_eq!(changes, [("d/stray", false), ("d/orphan", true)]);
        let dying = Meta { deletion_timestamp: Some(Timestamp::UNIX_EPOCH), ..owner };
        assert!(claim(&dying, &selector, pods.iter()).1.is_empty());
    }

    #[test]
    fn an_owner_is_put_on_and_taken_off() {
        let owner = json!({"uid": "me", "controller": true});
        let mut object = json!({"metadata": {}});
        apply(&mut object, true, &owner);
        assert_eq!(object, json!({"metadata": {"ownerReferences": [owner]}}));
        apply(&mut object, false, &owner);
        assert_eq!(object, json!({"metadata": {}}));
        let taken = json!({"metadata": {"ownerReferences": [{"uid": "other", "controller": true}]}});
        let mut object = taken.clone();
        apply(&mut object, true, &owner);
        assert_eq!(object, taken);
    }
}
