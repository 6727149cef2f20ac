//! Loops around the pure parts: keys of changed objects in, writes out. Spec: manager 1.5.
