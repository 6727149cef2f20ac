//! Schemas of the Kubernetes types that our objects embed. Spec: crds 0.

use schemars::{Schema, SchemaGenerator, json_schema};

/// `metadata`: the API server knows its schema.
pub(crate) fn object_meta(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

/// An object whose contents the API server leaves alone.
pub(crate) fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Anything at all, kept as it is.
pub(crate) fn any(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// An integer or a string.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "x-kubernetes-int-or-string": true,
    })
}

/// A selector over labels.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "description": "Requirements that must all hold.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "The label.", "type": "string" },
                        "operator": { "description": "In, NotIn, Exists or DoesNotExist.", "type": "string" },
                        "values": {
                            "description": "For In and NotIn.",
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string" },
                        },
                    },
                },
            },
            "matchLabels": {
                "description": "Labels that must all be there with these values.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
        },
    })
}

/// A reference to another object.
pub(crate) fn object_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": { "type": "string" },
            "fieldPath": { "type": "string" },
            "kind": { "type": "string" },
            "name": { "type": "string" },
            "namespace": { "type": "string" },
            "resourceVersion": { "type": "string" },
            "uid": { "type": "string" },
        },
    })
}

/// References to other objects.
pub(crate) fn object_references(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": object_reference(generator) })
}

/// A name, after a domain and a slash or not.
const CONDITION_TYPE: &str = concat!(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
);

/// Conditions in the form that Kubernetes recommends.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": { "description": "Details for people.", "type": "string", "maxLength": 32768 },
                "observedGeneration": {
                    "description": "The generation of the object that this describes.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "reason": {
                    "description": "Why the status last changed, in one word.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {
                    "description": "Whether the condition holds.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "type": {
                    "description": "What the condition is about.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": CONDITION_TYPE,
                },
            },
        },
    })
}

/// Taints.
pub(crate) fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["effect", "key"],
            "properties": {
                "effect": { "description": "NoSchedule, PreferNoSchedule or NoExecute.", "type": "string" },
                "key": { "description": "The taint.", "type": "string" },
                "timeAdded": { "description": "When it was added.", "type": "string", "format": "date-time" },
                "value": { "description": "Told apart by tolerations.", "type": "string" },
            },
        },
    })
}

/// How an object is deleted.
pub(crate) fn delete_options(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "apiVersion": { "type": "string" },
            "dryRun": {
                "description": "All: do everything but store.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": { "type": "string" },
            },
            "gracePeriodSeconds": {
                "description": "Time to stop in; 0 is at once.",
                "type": "integer",
                "format": "int64",
            },
            "ignoreStoreReadErrorWithClusterBreakingPotential": {
                "description": "Delete even what cannot be read from the store.",
                "type": "boolean",
            },
            "kind": { "type": "string" },
            "orphanDependents": {
                "description": "Replaced by propagationPolicy.",
                "type": "boolean",
            },
            "preconditions": {
                "description": "Delete only the object with this identity.",
                "type": "object",
                "properties": {
                    "resourceVersion": { "type": "string" },
                    "uid": { "type": "string" },
                },
            },
            "propagationPolicy": {
                "description": "Orphan, Background or Foreground.",
                "type": "string",
            },
        },
    })
}
