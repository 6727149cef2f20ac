//! Roots of quota trees made from ElasticQuotaProfiles. Spec: manager 13.
