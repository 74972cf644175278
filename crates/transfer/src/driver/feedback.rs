//! What comes back to a sending flow: sealed control messages, handed on to its thread.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use longhaul_proto::time::Time;
use longhaul_proto::wire::header::Kind;
use prost::Message as _;
use tokio::sync::mpsc::UnboundedSender;

use super::board::Board;
use super::send::Command;
use crate::control::{Frame, Message};
use crate::datapath::open::Opener;
use crate::datapath::port::{Datagrams, FlowSink};
use crate::datapath::socket::Path;

/// The port's side of a sending flow.
pub(crate) struct Feedback {
    reports: Opener,
    commands: Sender<Command>,
    inlet: UnboundedSender<Message>,
    /// The address that the session has proven; datagrams from elsewhere say nothing.
    peer: IpAddr,
    path: Option<Path>,
    board: Arc<Board>,
    scratch: Box<[u8]>,
}

impl Feedback {
    /// Hands core messages to `commands`, all others to `inlet`.
    pub(crate) fn new(
        reports: Opener,
        commands: Sender<Command>,
        inlet: UnboundedSender<Message>,
        peer: IpAddr,
        board: Arc<Board>,
    ) -> Feedback {
        let scratch = vec![0; 1 << 16].into_boxed_slice();
        Feedback { reports, commands, inlet, peer, path: None, board, scratch }
    }
}

impl FlowSink for Feedback {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        for datagram in datagrams {
            let from = datagram.path.remote.ip().to_canonical();
            if !matches!(datagram.header.kind, Kind::Control | Kind::Challenge) || from != self.peer
            {
                continue;
            }
            let opened =
                self.reports.open(now, &datagram.header, datagram.bytes, &mut self.scratch);
            let Ok(len) = opened else { continue };
            self.board.note_heard(now);
            if self.path != Some(datagram.path) {
                self.path = Some(datagram.path);
                let _ = self.commands.send(Command::Peer(datagram.path));
            }
            if datagram.header.kind == Kind::Challenge {
                let challenge = self.scratch[..len].to_vec();
                let _ = self.commands.send(Command::Challenge(datagram.path, challenge));
                continue;
            }
            let Ok(frame) = Frame::decode(&self.scratch[..len]) else { continue };
            match frame.message {
                Some(Message::Relay(relay)) => {
                    let _ = self.commands.send(Command::Relay(relay));
                }
                Some(message) => {
                    let _ = self.inlet.send(message);
                }
                None => {}
            }
        }
    }

    fn on_wake(&mut self, _now: Time) {}

    fn next_wakeup(&self) -> Option<Time> {
        None
    }

    fn on_port_closed(&mut self, _why: &str) {
        let _ = self.commands.send(Command::Stop);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use longhaul_proto::endpoint::FlowId;

    use super::*;
    use crate::datapath::keys::{FlowKeys, Suite};
    use crate::datapath::port::Port;
    use crate::datapath::socket::Socket;

    #[test]
    fn a_genuine_challenge_reaches_the_thread_that_answers_it() {
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let (port, receiver) = (Port::bind(loopback).unwrap(), Socket::bind(loopback).unwrap());
        let keys = |secret| FlowKeys::new(&[secret; 32], Suite::Aes128Gcm, 1, FlowId(4));
        let (commands, told) = channel();
        let (inlet, _messages) = tokio::sync::mpsc::unbounded_channel();
        let reports = keys(1).sending_end().reports;
        let board = Arc::new(Board::default());
        let feedback =
            Feedback::new(reports, commands, inlet, Ipv4Addr::LOCALHOST.into(), board.clone());
        port.register(FlowId(4), Box::new(feedback)).unwrap();
        // The first is forged.
        for (secret, challenge) in [(2, [8; 16]), (1, [9; 16])] {
            let mut sealed = vec![0; 100];
            let mut sealer = keys(secret).receiving_end().reports;
            let len = sealer.seal(Kind::Challenge, 0, &challenge, &mut sealed).unwrap();
            receiver.send(port.socket().local_addr().into(), &sealed[..len]).unwrap();
        }
        let mut told = std::iter::from_fn(|| told.recv_timeout(Duration::from_secs(10)).ok());
        let challenge = told.find_map(|command| match command {
            Command::Challenge(path, challenge) => Some((path.remote, challenge)),
            _ => None,
        });
        assert_eq!(challenge, Some((receiver.local_addr(), vec![9; 16])));
    }
}
