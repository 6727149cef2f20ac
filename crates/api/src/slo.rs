//! slo-controller-config: strategies, defaults, merging, admission. Spec: api 7.
