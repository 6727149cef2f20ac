//! Writing an object back without losing fields that we do not know.
