//! A client's session without a network, for the fuzzer: runs one copy against a server's recorded
//! messages.

use std::io::Cursor;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use longhaul_net::port::Port;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::attempt::Attempt;
use super::summing;
use crate::error::{Error, ErrorKind};
use crate::many::part::CopyPart;
use crate::options::CopyOptions;
use crate::progress::{Cancel, Observer};
use crate::reach::Reached;
use crate::reach::route::Route;
use crate::reach::transport::first_transport;
use crate::reactor;
use crate::roles::wire::End;
use crate::session::{PeerId, Session};
use crate::summary::Summary;
use crate::write::budget::Budget;

const SERVER: PeerId = PeerId([3; 32]);
/// The data port of the recorded server: the port of the discard protocol (RFC 863), so nothing
/// answers.
const DISCARD: u16 = 9;

/// Runs one attempt at a copy against a server that sends `said`, starting with its hello. The
/// server then hangs up or, with `stays`, stays silent until the copy ends.
///
/// # Errors
/// As [`copy`](super::copy()), with [`ErrorKind::Unfinished`] if the session was lost, the server
/// is busy, or datagrams do not pass.
#[doc(hidden)]
pub fn rehearse(
    options: &CopyOptions,
    observer: Arc<dyn Observer>,
    said: &[u8],
    stays: bool,
) -> Result<Summary, Error> {
    let routes = Route::all(options)?;
    let said = Cursor::new(said.to_vec());
    reactor::block_on("the rehearsal", async {
        let session = match stays {
            true => Session::over(SERVER, said.chain(Silence), tokio::io::sink()),
            false => Session::over(SERVER, said, tokio::io::sink()),
        };
        let local = Ipv4Addr::LOCALHOST;
        let reached = Reached {
            session,
            data: Rc::new(Port::bind((local, 0).into())?),
            contact: SocketAddr::from((local, DISCARD)),
            datagram: None,
        };
        let part = CopyPart::alone(Budget::new(options.memory)?, None);
        part.reached.replace(Some(reached));
        let mut attempt = Attempt::new(options, &routes[0], observer, Cancel::default(), part)?;
        match attempt.run(first_transport(options)).await {
            Ok(finished) => summing::summary(options, &attempt, finished),
            Err(End::Fatal(error)) => Err(error),
            Err(End::Lost(why) | End::Busy(why)) => Err(Error::new(ErrorKind::Unfinished, why)),
            Err(End::NoDatagrams) => {
                Err(Error::new(ErrorKind::Unfinished, "datagrams do not pass"))
            }
        }
    })
}

struct Silence;

impl AsyncRead for Silence {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}
