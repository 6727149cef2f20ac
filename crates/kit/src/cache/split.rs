//! A list taken apart as it comes in, so that one in a single piece is never in memory as a whole. Pure.

/// The objects of a list one by one, and what is around them.
#[derive(Default)]
pub(super) struct Splitter {
    /// The list without its objects: a list of none.
    around: Vec<u8>,
    /// The object that is coming in.
    object: Vec<u8>,
    /// Brackets that are open.
    depth: usize,
    is_in_text: bool,
    is_escaped: bool,
    is_in_items: bool,
    /// Where the last text of the outermost object begins in `around`.
    text_at: usize,
    /// That text is `items`, and what follows is its value.
    are_items_next: bool,
}

/// Brackets around the list of objects.
const LIST_DEPTH: usize = 2;

impl Splitter {
    /// Takes in the next bytes; `take` is handed every object that is complete.
    pub(super) fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) {
        for byte in bytes {
            self.step(*byte, &mut take);
        }
    }

    /// The list without its objects, when all of it has come in.
    pub(super) fn around(&self) -> &[u8] {
        &self.around
    }

    fn step(&mut self, byte: u8, take: &mut impl FnMut(&[u8])) {
        let was_in_object = self.is_in_items && self.depth > LIST_DEPTH;
        if self.is_in_text {
            self.in_text(byte);
        } else {
            self.outside_text(byte);
        }
        let is_in_object = self.is_in_items && self.depth > LIST_DEPTH;
        if was_in_object || is_in_object {
            self.object.push(byte);
            if !is_in_object {
                take(&self.object);
                self.object.clear();
            }
        } else if !(self.is_in_items && self.depth == LIST_DEPTH && byte == b',') {
            self.around.push(byte);
        }
    }

    fn in_text(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.is_in_text = false,
            _ => {}
        }
    }

    fn outside_text(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.is_in_text = true;
                if self.depth == 1 {
                    self.text_at = self.around.len();
                }
            }
            b':' if self.depth == 1 => {
                self.are_items_next = self.around[self.text_at..].trim_ascii_end() == b"\"items\"";
            }
            b',' if self.depth == 1 => self.are_items_next = false,
            b'{' | b'[' => {
                self.is_in_items |= byte == b'[' && self.depth == 1 && self.are_items_next;
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.is_in_items &= self.depth >= LIST_DEPTH;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A list in pieces of this size: its objects, and the rest.
    fn split(text: &str, size: usize) -> (Vec<Value>, Value) {
        let (mut splitter, mut objects) = (Splitter::default(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            splitter.feed(piece, |object| objects.push(serde_json::from_slice(object).unwrap()));
        }
        (objects, serde_json::from_slice(splitter.around()).unwrap())
    }

    #[test]
    fn a_list_is_the_same_in_pieces() {
        let objects = json!([
            {"metadata": {"name": "a", "annotations": {"items": "[{\"x\": \"}\"}]"}}, "items": [{"b": [1]}]},
            {"metadata": {"name": "quote \" and backslash \\", "labels": {}}},
            {},
            {"text": "é ← 你好"},
        ]);
        let lists = [
            json!({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": objects}),
            json!({"items": objects, "metadata": {"items": [{"no": "object"}], "resourceVersion": "7"}}),
            json!({"metadata": {"resourceVersion": "7", "continue": "x"}, "items": []}),
            json!({"metadata": {"resourceVersion": "items"}, "items": null}),
            json!({"metadata": {}}),
        ];
        for list in lists {
            let mut around = list.clone();
            let mut want = Vec::new();
            if let Some(items) = around.get_mut("items").and_then(Value::as_array_mut) {
                want.append(items);
            }
            for text in [list.to_string(), serde_json::to_string_pretty(&list).unwrap()] {
                for size in [1, 2, 3, 7, 64, text.len()] {
                    assert_eq!(split(&text, size), (want.clone(), around.clone()), "{size} of {text}");
                }
            }
        }
    }

    #[test]
    fn nonsense_is_survived() {
        for text in ["", "]]]]", "{{{[[", "\"", "\"items\":[{}]", "{\"items\":[1,2,\"x\",{}", "}{:,\\"] {
            let mut objects = 0;
            Splitter::default().feed(text.as_bytes(), |_| objects += 1);
            assert!(objects <= 1, "{text}");
        }
    }
}
