//! What every Koord process needs, and nothing that decides.
