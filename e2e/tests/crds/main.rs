//! Our CRDs in a real API server: what it accepts, fills in, refuses and prints.

mod acceptance;
mod cluster;
mod printing;
mod schemas;
