//! The process: command line, start and end. Spec: manager 1.3, 1.4.
