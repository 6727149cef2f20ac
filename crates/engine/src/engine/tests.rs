//! Whole histories: events in, commands out.
