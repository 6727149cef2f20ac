//! As much of gRPC as unary calls over unix sockets need: a path, a frame of five bytes before a message, a status behind it.

pub mod client;
pub(crate) mod server;

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderValue;
use prost::Message;

const FRAME_BYTES: usize = 5;
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// Why a call has no answer: a code of gRPC, and words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("code {code}: {text}")]
pub struct Refusal {
    code: u8,
    text: String,
}

impl Refusal {
    const UNIMPLEMENTED: u8 = 12;

    pub(crate) fn unknown(text: String) -> Refusal {
        Refusal { code: 2, text }
    }

    fn invalid(text: String) -> Refusal {
        Refusal { code: 3, text }
    }

    fn exhausted(text: String) -> Refusal {
        Refusal { code: 8, text }
    }

    pub(crate) fn unknown_method(path: &str) -> Refusal {
        Refusal { code: Refusal::UNIMPLEMENTED, text: format!("unknown method {path}") }
    }

    pub(crate) fn unavailable(text: String) -> Refusal {
        Refusal { code: 14, text }
    }

    /// Whether the other side does not have the method.
    pub(crate) fn is_unimplemented(&self) -> bool {
        self.code == Refusal::UNIMPLEMENTED
    }
}

pub(crate) fn decode<M: Message + Default>(message: &[u8]) -> Result<M, Refusal> {
    M::decode(message).map_err(|error| Refusal::invalid(format!("the message cannot be read: {error}")))
}

fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(FRAME_BYTES + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

/// The one message of a body.
fn unframed(body: &[u8]) -> Result<&[u8], Refusal> {
    let Some(([is_compressed, length @ ..], message)) = body.split_first_chunk::<FRAME_BYTES>() else {
        return Err(Refusal::invalid("the message broke off".to_owned()));
    };
    if *is_compressed != 0 {
        let text = "compressed messages are not read".to_owned();
        return Err(Refusal { code: Refusal::UNIMPLEMENTED, text });
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if message.len() != length {
        return Err(Refusal::invalid(format!("{length} bytes were announced, {} came", message.len())));
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        assert_eq!(frame(&[7, 8]), [0, 0, 0, 0, 2, 7, 8].as_slice());
        assert_eq!(unframed(&[0, 0, 0, 0, 2, 7, 8]), Ok(&[7, 8][..]));
        assert_eq!(unframed(&[0, 0, 0, 0, 0]), Ok(&[][..]));
        for (name, body, code) in [
            ("nothing", &[][..], 3),
            ("half a frame", &[0, 0, 0], 3),
            ("less than announced", &[0, 0, 0, 0, 2, 7], 3),
            ("more than announced", &[0, 0, 0, 0, 1, 7, 8], 3),
            ("compressed", &[1, 0, 0, 0, 1, 7], 12),
        ] {
            assert_eq!(unframed(body).map_err(|refusal| refusal.code), Err(code), "{name}");
        }
    }
}
