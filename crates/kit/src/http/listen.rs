//! Where a server listens, as flags spell it, and getting there.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted; as many as tokio lets wait elsewhere.
const BACKLOG: u32 = 1024;

/// Where to listen.
///
/// ```
/// # use koord_kit::http::Listen;
/// assert_eq!(":9316".parse(), Ok(Listen::Everywhere { port: 9316 }));
/// assert_eq!("[::1]:9316".parse::<Listen>().unwrap().to_string(), "[::1]:9316");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// On all addresses of both families; of IPv4 alone where the kernel has no IPv6.
    Everywhere {
        port: u16,
    },
    At(SocketAddr),
}

/// A text that names no place to listen at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address such as :8080, 127.0.0.1:8080 or [::1]:8080")]
pub struct BadAddress;

impl FromStr for Listen {
    type Err = BadAddress;

    /// `:9316`, as Go has it; `127.0.0.1:9316`, `[::1]:9316`, `localhost:9316`.
    fn from_str(text: &str) -> Result<Listen, BadAddress> {
        let port = |text: &str| text.parse::<u16>().map_err(|_| BadAddress);
        if let Some(text) = text.strip_prefix(':') {
            return Ok(Listen::Everywhere { port: port(text)? });
        }
        if let Some(text) = text.strip_prefix("localhost:") {
            return Ok(Listen::At((Ipv4Addr::LOCALHOST, port(text)?).into()));
        }
        text.parse().map(Listen::At).map_err(|_| BadAddress)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Everywhere { port } => write!(f, ":{port}"),
            Listen::At(address) => address.fmt(f),
        }
    }
}

impl Listen {
    pub async fn bind(self) -> io::Result<TcpListener> {
        match self {
            Listen::At(address) => TcpListener::bind(address).await,
            Listen::Everywhere { port } => match both_families(port) {
                Err(error) if is_without_ipv6(&error) => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
                }
                bound => bound,
            },
        }
    }
}

/// One socket for both.
fn both_families(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    // Said aloud, for net.ipv6.bindv6only may say otherwise.
    set_ipv6_v6only(&socket, false)?;
    // As tokio does elsewhere: a restart must not wait for connections of the last run.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv6Addr::UNSPECIFIED, port).into())?;
    socket.listen(BACKLOG)
}

/// Built without, or switched off. Any other failure, such as a port that is taken, is one of IPv4 as well.
fn is_without_ipv6(error: &io::Error) -> bool {
    let without = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| without.contains(&code))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn texts() {
        let at = |text: &str| Ok(Listen::At(text.parse().unwrap()));
        for (text, want) in [
            (":9316", Ok(Listen::Everywhere { port: 9316 })),
            (":0", Ok(Listen::Everywhere { port: 0 })),
            ("0.0.0.0:9316", at("0.0.0.0:9316")),
            ("127.0.0.1:9316", at("127.0.0.1:9316")),
            ("[::1]:9316", at("[::1]:9316")),
            ("[::]:9316", at("[::]:9316")),
            ("localhost:9316", at("127.0.0.1:9316")),
            ("", Err(BadAddress)),
            (":", Err(BadAddress)),
            (":http", Err(BadAddress)),
            (":70000", Err(BadAddress)),
            ("9316", Err(BadAddress)),
            ("::1:9316x", Err(BadAddress)),
            ("somewhere:9316", Err(BadAddress)),
        ] {
            assert_eq!(text.parse(), want, "{text:?}");
        }
        assert_eq!(Listen::Everywhere { port: 9316 }.to_string(), ":9316");
    }

    /// Who can be connected to, on sockets of this kernel.
    #[tokio::test]
    async fn who_is_reached() {
        let (v4, v6): (IpAddr, IpAddr) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        let has_ipv6 = TcpListener::bind((v6, 0)).await.is_ok();
        for (text, is_on_v4, is_on_v6) in [
            (":0", true, true),
            ("127.0.0.1:0", true, false),
            ("localhost:0", true, false),
            ("0.0.0.0:0", true, false),
            ("[::1]:0", false, true),
        ] {
            if !is_on_v4 && !has_ipv6 {
                continue;
            }
            let listener = text.parse::<Listen>().unwrap().bind().await.unwrap();
            let port = listener.local_addr().unwrap().port();
            assert_eq!(TcpStream::connect((v4, port)).await.is_ok(), is_on_v4, "{text} by IPv4");
            let is_reached = TcpStream::connect((v6, port)).await.is_ok();
            assert_eq!(is_reached, is_on_v6 && has_ipv6, "{text} by IPv6");
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_not_had() {
        let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = Listen::Everywhere { port }.bind().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn kernels_without_ipv6() {
        for (errno, is_without) in [
            (Errno::AFNOSUPPORT, true),
            (Errno::ADDRNOTAVAIL, true),
            (Errno::ADDRINUSE, false),
            (Errno::ACCESS, false),
        ] {
            assert_eq!(is_without_ipv6(&errno.into()), is_without, "{errno:?}");
        }
    }
}
