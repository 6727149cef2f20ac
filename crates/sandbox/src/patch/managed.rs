//! metadata.managedFields: who set which fields, by which operation, when.

use serde_json::{Map, Value, json};

use super::fieldset::{FieldSet, FieldSetError};

/// Managers by update that are kept apart; older ones are put together.
const UPDATE_MANAGERS_MAX: usize = 10;
/// Name under which the oldest managers are put together.
const ANCIENT: &str = "ancient-changes";
/// Longest name of a manager.
const MANAGER_BYTES_MAX: usize = 128;

/// Who acts: one entry per identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub manager: String,
    pub operation: Operation,
    /// Not part of an applier's identity: applying in another version is the same applier.
    pub api_version: String,
    pub subresource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

/// What one manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub identity: Identity,
    /// RFC 3339, to the second.
    pub time: Option<String>,
    pub fields: FieldSet,
}

/// The record of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    pub entries: Vec<Entry>,
}

/// Why managedFields cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedError {
    #[error("{0}")]
    Entry(String),
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldSetError),
}

impl Identity {
    fn is_same(&self, other: &Identity) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Order of managers in texts, as the API server sorts its own encoding of them.
    pub(super) fn sort_key(&self) -> (&str, Operation, &str, &str) {
        let version = if self.operation == Operation::Apply { "" } else { &self.api_version };
        (&self.manager, self.operation, version, &self.subresource)
    }

    /// As a conflict names it: `"kubectl" with subresource "status" using apps/v1`.
    pub(super) fn print(&self, time: Option<&str>) -> String {
        let mut text = crate::schema::fault::quote(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {}", crate::schema::fault::quote(&self.subresource)));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        if let Some(time) = time.filter(|_| self.operation == Operation::Update) {
            text.push_str(&format!(" at {time}"));
        }
        text
    }
}

impl Managed {
    /// Reads the entries of an object.
    pub fn of(object: &Value) -> Result<Managed, ManagedError> {
        let raw = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        let mut managed = Managed::default();
        for (place, raw) in raw.into_iter().flatten().enumerate() {
            let entry = Entry::parse(raw, place)?;
            managed.set(entry);
        }
        Ok(managed)
    }

    /// Writes the entries into an object; without entries the field goes.
    pub fn write(&self, object: &mut Value) {
        let Some(metadata) = metadata(object) else { return };
        if self.entries.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| {
            let identity = &entry.identity;
            // Texts of times in UTC sort as the times do.
            (
                identity.operation,
                entry.time.clone(),
                identity.manager.clone(),
                identity.api_version.clone(),
                identity.subresource.clone(),
            )
        });
        metadata.insert("managedFields".to_owned(), entries.into_iter().map(Entry::to_json).collect());
    }

    pub(super) fn find(&self, identity: &Identity) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.identity.is_same(identity))
    }

    /// Puts an entry in the place of its manager's; one without fields removes it.
    pub(super) fn set(&mut self, entry: Entry) {
        let place = self.entries.iter().position(|other| other.identity.is_same(&entry.identity));
        match (place, entry.fields.is_empty()) {
            (Some(place), true) => drop(self.entries.remove(place)),
            (Some(place), false) => self.entries[place] = entry,
            (None, true) => {}
            (None, false) => self.entries.push(entry),
        }
    }

    /// Puts the oldest updaters together until no more than ten are left.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<Identity> = Vec::new();
        let mut sorted: Vec<&Entry> =
            self.entries.iter().filter(|entry| entry.identity.operation == Operation::Update).collect();
        sorted.sort_by(|a, b| (&a.time, a.identity.sort_key()).cmp(&(&b.time, b.identity.sort_key())));
        updaters.extend(sorted.into_iter().map(|entry| entry.identity.clone()));
        let mut count = updaters.len();
        let mut first_of_version: Vec<Identity> = Vec::new();
        for identity in updaters {
            if count <= UPDATE_MANAGERS_MAX {
                return;
            }
            let same_version = |other: &&Identity| other.api_version == identity.api_version;
            let Some(first) = first_of_version.iter().find(same_version).cloned() else {
                first_of_version.push(identity);
                continue;
            };
            let bucket =
                Identity { manager: ANCIENT.to_owned(), subresource: String::new(), ..identity.clone() };
            self.fold(&first, &bucket);
            self.fold(&identity, &bucket);
            count -= 1;
        }
    }

    /// Moves the fields of one manager to another, with its time.
    fn fold(&mut self, from: &Identity, into: &Identity) {
        if from.is_same(into) {
            return;
        }
        let Some(place) = self.entries.iter().position(|entry| entry.identity.is_same(from)) else { return };
        let moved = self.entries.remove(place);
        let fields = match self.find(into) {
            Some(entry) => entry.fields.union(&moved.fields),
            None => moved.fields,
        };
        self.set(Entry { identity: into.clone(), time: moved.time, fields });
    }
}

impl Entry {
    fn parse(raw: &Value, place: usize) -> Result<Entry, ManagedError> {
        let text = |name: &str| raw.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let bad = |text: String| Err(ManagedError::Entry(text));
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return bad("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return bad("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return bad(format!("missing fieldsType in managed fields entry {place}")),
            other => {
                let other = crate::schema::fault::quote(other);
                return bad(format!("invalid fieldsType {other} in managed fields entry {place}"));
            }
        }
        let fields = match raw.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::new(),
            Some(fields) => FieldSet::parse(fields)?,
        };
        let identity = Identity {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
        };
        let time = raw.get("time").and_then(Value::as_str).map(str::to_owned);
        Ok(Entry { identity, time, fields })
    }

    fn to_json(&self) -> Value {
        let operation = match self.identity.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut entry = json!({
            "operation": operation,
            "apiVersion": self.identity.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_json(),
        });
        let optional = [
            ("manager", Some(&self.identity.manager)),
            ("subresource", Some(&self.identity.subresource)),
            ("time", self.time.as_ref()),
        ];
        for (name, value) in optional {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                entry[name] = value.as_str().into();
            }
        }
        entry
    }
}

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let fields = object.as_object_mut()?;
    fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
}

/// Takes the entries out of an object.
pub fn strip(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Whether a client asks for the record to be cleared: an empty list, or one empty entry.
pub(super) fn asks_for_reset(object: &Value) -> bool {
    match object.pointer("/metadata/managedFields").and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// The name a request acts under: the one it gives, or the program of its user agent.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let program = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for character in program.chars().filter(|character| !character.is_control()) {
        if name.len() + character.len_utf8() > MANAGER_BYTES_MAX {
            break;
        }
        name.push(character);
    }
    name
}

/// Gives entries their old times back when nothing but times changed, so that a write that says
/// nothing new leaves the object as it is.
pub fn keep_times(old: &Value, new: &mut Value) {
    let entries = |object: &Value| {
        object.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let without_time = |entry: &Value| {
        let mut entry = entry.clone();
        entry.as_object_mut().map(|fields| fields.remove("time"));
        entry
    };
    let (before, after) = (entries(old), entries(new));
    let same_entries =
        !after.is_empty() && before.iter().map(without_time).eq(after.iter().map(without_time));
    if !same_entries {
        return;
    }
    let (mut bare_old, mut bare_new) = (old.clone(), new.clone());
    strip(&mut bare_old);
    strip(&mut bare_new);
    if let Some(metadata) = metadata(new).filter(|_| bare_old == bare_new) {
        metadata.insert("managedFields".to_owned(), Value::Array(before));
    }
}
