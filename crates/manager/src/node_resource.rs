//! What a node may lend: batch, mid, normalised, amplified and device resources. Spec: manager 5 to 11.
