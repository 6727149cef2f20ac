//! Storage events in any order.
