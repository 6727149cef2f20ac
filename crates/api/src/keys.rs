//! Every label, annotation and domain name. Spec: api 1.1, 4, 5.
