//! Pods as the manager keeps them: what they ask for and which class they are. Spec: manager 5.5, 6.1.
