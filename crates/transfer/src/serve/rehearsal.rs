//! A server's session without a network, for the fuzzer: the messages of one client, and the
//! answers.

use std::io::{Cursor, ErrorKind};
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use longhaul_net::port::Port;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;

use super::door::Door;
use super::{Server, dispatch};
use crate::error::Error;
use crate::options::ServeOptions;
use crate::reactor;
use crate::session::{PeerId, Session, listen};
use crate::write::budget::Budget;

/// Maximum bytes of all answers. A write beyond them fails, as if the client had disconnected.
const MOST_ANSWERS: usize = 1 << 20;

/// Runs the session of a client with the id `peer`, which sends `said` and hangs up. Returns the
/// server's answers.
///
/// # Errors
/// The root or a subfolder in `options` is not a folder, the list of clients contains an id twice,
/// the memory is too small, or no port is free.
#[doc(hidden)]
pub fn rehearse(options: &ServeOptions, peer: PeerId, said: &[u8]) -> Result<Vec<u8>, Error> {
    let answers = Answers::default();
    let (session, said) = (answers.clone(), Cursor::new(said.to_vec()));
    reactor::block_on("the rehearsal", async {
        let door = Door::open(options)?;
        let judge = door.admission();
        let port = Port::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let memory = Budget::new(options.memory)?;
        let server = Server::new(door, port.handle(), memory, Arc::new(|_| {}));
        let session = Session::over(peer, said, session);
        if let Some(session) = listen::judge_alone(session, judge).await {
            let server = Rc::new(server);
            let (ended, _) = mpsc::unbounded_channel();
            let view = dispatch::view(&server, None, options.rooms);
            let services = dispatch::services(&view, false, options.methods.clone(), ended);
            dispatch::answer(&server, &services, session).await;
        }
        Ok(())
    })?;
    Ok(answers.take())
}

#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<u8>>>);

impl Answers {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsyncWrite for Answers {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() + bytes.len() > MOST_ANSWERS {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        answers.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
