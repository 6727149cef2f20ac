//! preallocation
