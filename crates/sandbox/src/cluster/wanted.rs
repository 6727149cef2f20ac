//! Which nodes somebody wants, in the words they used: flags or a file.

use serde::{Deserialize, Serialize};

use crate::nodes::shape::{self, Koordlet, Pool, REAL_KOORDLETS_MAX};

/// As typed; travels as it is, so that both ends read it alike.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// How many.
    #[serde(default)]
    pub nodes: Option<u32>,
    /// Compact shapes, one for each pool.
    #[serde(default)]
    pub shapes: Vec<String>,
    /// The name and text of a file of pools.
    #[serde(default)]
    pub file: Option<(String, String)>,
}

impl Wanted {
    pub fn is_nothing(&self) -> bool {
        *self == Wanted::default()
    }

    /// The pools meant, or everything that is wrong with them.
    pub fn pools(&self) -> Result<Vec<Pool>, String> {
        if let Some((name, text)) = &self.file {
            return shape::read(name, text).map_err(|error| error.to_string());
        }
        let is_plain = self.shapes.is_empty() && self.nodes.is_some();
        let flags = self.shapes.iter().map(String::as_str).chain(is_plain.then_some(""));
        let pools = flags.map(shape::flag).collect::<Result<Vec<Pool>, _>>();
        let mut pools = pools.map_err(|error| error.to_string())?;
        match (self.nodes, pools.as_mut_slice()) {
            (None, _) => {}
            (Some(count), [pool]) if pool.shape.koordlet == Koordlet::Real && count > REAL_KOORDLETS_MAX => {
                return Err(format!(
                    "--nodes: {count} is not accepted, expected at most {REAL_KOORDLETS_MAX} nodes with koordlet=real"
                ));
            }
            (Some(count), [pool]) => pool.count = count,
            (Some(_), _) => {
                return Err(
                    "--nodes goes with one --node-shape; give each of several its own count=N".to_owned()
                );
            }
        }
        for (i, pool) in pools.iter().enumerate() {
            if pools[..i].iter().any(|known| known.name == pool.name) {
                return Err(format!(
                    "--node-shape: two pools are called {:?}; give each its own name=NAME",
                    pool.name
                ));
            }
        }
        Ok(pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(nodes: Option<u32>, shapes: &[&str]) -> Result<Vec<(String, u32)>, String> {
        let shapes = shapes.iter().map(|s| (*s).to_owned()).collect();
        let pools = Wanted { nodes, shapes, file: None }.pools()?;
        Ok(pools.into_iter().map(|pool| (pool.name, pool.count)).collect())
    }

    #[test]
    fn flags_become_pools() {
        let pool = |name: &str, count| (name.to_owned(), count);
        assert_eq!(wanted(None, &[]), Ok(vec![]));
        assert_eq!(wanted(Some(7), &[]), Ok(vec![pool("node", 7)]));
        assert_eq!(wanted(Some(7), &["name=a,cores=8"]), Ok(vec![pool("a", 7)]));
        let two = wanted(None, &["name=a,count=2", "name=b,count=3"]);
        assert_eq!(two, Ok(vec![pool("a", 2), pool("b", 3)]));
    }

    #[test]
    fn flags_that_contradict_are_refused() {
        for (nodes, shapes, want) in [
            (Some(1), &["name=a", "name=b"][..], "--nodes goes with one --node-shape"),
            (None, &["name=a", "name=a,cores=8"], "two pools are called \"a\""),
            (None, &["cores=many"], "many"),
            (Some(17), &["koordlet=real"], "--nodes: 17 is not accepted, expected at most 16"),
        ] {
            let error = wanted(nodes, shapes).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
