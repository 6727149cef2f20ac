//! A request refused: the status of the answer, and why.

/// Why a request is refused. The text is what the user of `kubectl` reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    /// HTTP status inside the answer.
    pub code: u16,
    pub message: String,
}

impl Denial {
    /// The object cannot be as it is.
    pub fn bad_request(message: impl Into<String>) -> Denial {
        Denial { code: 400, message: message.into() }
    }

    /// The user may not do this.
    pub fn forbidden(message: impl Into<String>) -> Denial {
        Denial { code: 403, message: message.into() }
    }
}
