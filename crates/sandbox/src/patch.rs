//! The four ways to patch an object: JSON patch, merge, strategic merge, server-side apply.
//!
//! Pure functions from one tree to another. `json`, `merge` and `strategic` say what the object
//! becomes, and are shared with admission; `fieldset` and `managed` keep the record of who set which
//! field; `apply` is built on both.

pub mod apply;
pub mod fieldset;
pub mod managed;

mod typed;

pub use koord_api::patch::{PatchError, json, merge, strategic};

use crate::schema::Schema;

/// What strategic merge wants to know of a type.
impl strategic::Shape for Schema {
    fn field(&self, name: &str) -> Option<&Schema> {
        Schema::field(self.resolve(), name)
    }

    fn items(&self) -> Option<&Schema> {
        self.resolve().items.as_deref()
    }

    fn merges(&self) -> bool {
        self.patch.merge
    }

    fn replaces(&self) -> bool {
        self.patch.replace
    }

    fn merge_key(&self) -> &str {
        &self.patch.key
    }
}

#[cfg(test)]
mod tests {
    use koord_api::patch::strategic::Shape;
    use koord_api::patch::strategic::pod::{POD, PodShape};

    use super::*;
    use crate::schema::builtin;

    /// The table of admission for pods says what the built-in type says.
    #[test]
    fn pods_merge_alike_in_admission() {
        fn compare(path: &str, schema: &Schema, shape: Option<&PodShape>, depth: usize, seen: &mut usize) {
            assert!(depth < 24, "{path}: the type does not end");
            let ours = shape.map(|shape| (shape.merges(), shape.merge_key()));
            assert_eq!(ours.unwrap_or((false, "")), (schema.merges(), schema.merge_key()), "{path}");
            *seen += usize::from(schema.merges());
            if let Some(items) = schema.items() {
                compare(&format!("{path}[]"), items, shape.and_then(Shape::items), depth + 1, seen);
            }
            for name in schema.resolve().properties.keys() {
                let below = Shape::field(schema, name).unwrap();
                let ours = shape.and_then(|shape| Shape::field(shape, name));
                compare(&format!("{path}.{name}"), below, ours, depth + 1, seen);
            }
        }
        let mut seen = 0;
        let pod = builtin::by_name("io.k8s.api.core.v1.Pod").unwrap();
        compare("pod", pod, Some(&POD), 0, &mut seen);
        assert!(seen > 20, "{seen}");
    }
}
