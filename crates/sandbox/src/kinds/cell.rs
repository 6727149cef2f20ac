//! Cells of server-side Tables: ages, counts, lists, as kubectl's readers know them.
