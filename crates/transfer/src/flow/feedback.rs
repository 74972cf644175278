//! Sealed control messages to a sending flow. Challenges and messages for the core (the state
//! machine of the flow's protocol) go to the flow's thread, other messages to the session.
//!
//! The messages also show the receiver's address. If the address changes, because of the receiver's
//! network or a NAT, the flow sends to the new address after the new address has answered a
//! challenge.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use longhaul_net::port::address::{AddressRule, Advice, CHALLENGE_COST};
use longhaul_net::port::receipts::Receipts;
use longhaul_net::port::{Datagrams, FlowSink};
use longhaul_net::sealing::open::{OpenError, Opener};
use longhaul_net::socket::Path;
use longhaul_proto::time::Time;
use longhaul_proto::wire::header::Kind;
use prost::Message as _;
use tokio::sync::mpsc;

use super::send::SendCommand;
use crate::control::{Frame, Message};
use crate::counters::board::Board;
use crate::random::random_challenge;

/// Maximum number of answers about data that were sent before the session was open. Such answers
/// are limited because they are not authenticated, and because they queue up while the sending
/// thread is busy.
const MOST_ANSWERS: u32 = 256;

/// The part of a sending flow that runs on the thread of the port (the UDP socket that all flows
/// share).
pub(crate) struct Feedback {
    reports: Opener,
    commands: Sender<SendCommand>,
    inlet: mpsc::Sender<Message>,
    address: AddressRule,
    /// The questions about data that were sent before the session was open; `None` once answers no
    /// longer count.
    receipts: Option<Receipts>,
    /// How many more answers count.
    answers: u32,
    board: Arc<Board>,
    scratch: Box<[u8]>,
    /// Whether the sending thread was told that the forgery limit is reached.
    forged: bool,
}

impl Feedback {
    /// Passes challenges and messages for the core to `commands`, and all others to `inlet`.
    /// `address` decides whether data may go to the address from which a message came.
    pub(crate) fn new(
        reports: Opener,
        commands: Sender<SendCommand>,
        inlet: mpsc::Sender<Message>,
        address: AddressRule,
        board: Arc<Board>,
    ) -> Feedback {
        let scratch = vec![0; 1 << 16].into_boxed_slice();
        Feedback {
            reports,
            commands,
            inlet,
            address,
            receipts: None,
            answers: MOST_ANSWERS,
            board,
            scratch,
            forged: false,
        }
    }

    /// Also passes the answers to these questions to the sending thread.
    pub(crate) fn with_receipts(self, receipts: Option<Receipts>) -> Feedback {
        Feedback { receipts, ..self }
    }

    fn note_path(&mut self, now: Time, path: Path, len: usize) {
        let advice = self.address.on_genuine(now, path, len, CHALLENGE_COST, random_challenge);
        let _ = match advice {
            Advice::Nothing => return,
            Advice::Adopted => self.commands.send(SendCommand::Peer(path)),
            Advice::Send(challenge) => self.commands.send(SendCommand::Ask(path, challenge)),
        };
    }

    /// The content is the first `len` bytes of the buffer.
    fn take(&mut self, kind: Kind, path: Path, len: usize) {
        let content = &self.scratch[..len];
        match kind {
            Kind::Challenge => {
                let _ = self.commands.send(SendCommand::Challenge(path, content.to_vec()));
            }
            Kind::ChallengeAnswer => {
                if let Ok(echo) = content.try_into()
                    && self.address.on_echo(path, &echo)
                {
                    let _ = self.commands.send(SendCommand::Peer(path));
                }
            }
            _ => match Frame::decode(content).ok().and_then(|frame| frame.message) {
                Some(Message::Relay(relay)) => {
                    let _ = self.commands.send(SendCommand::Relay(relay));
                }
                Some(message) => {
                    // If the queue is full, the message is dropped: it also arrives over the
                    // session's stream.
                    let _ = self.inlet.try_send(message);
                }
                None => {}
            },
        }
    }
}

impl FlowSink for Feedback {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        for datagram in datagrams {
            let kind = datagram.header.kind;
            let receipt = self.receipts.as_ref().filter(|_| kind == Kind::ProbeAnswer);
            if let Some(receipt) = receipt.and_then(|receipts| receipts.read(datagram.bytes)) {
                let _ = self.commands.send(SendCommand::Receipt(receipt));
                self.answers -= 1;
                self.receipts = self.receipts.filter(|_| self.answers > 0);
                continue;
            }
            if !matches!(kind, Kind::Control | Kind::Challenge | Kind::ChallengeAnswer) {
                continue;
            }
            let opened =
                self.reports.open(now, &datagram.header, datagram.bytes, &mut self.scratch);
            let len = match opened {
                Ok(len) => len,
                Err(error) => {
                    if error == OpenError::Ended && !std::mem::replace(&mut self.forged, true) {
                        let _ = self.commands.send(SendCommand::Forged);
                    }
                    continue;
                }
            };
            // Authenticated reports have begun.
            self.receipts = None;
            self.board.note_received(now);
            self.take(kind, datagram.path, len);
            self.note_path(now, datagram.path, datagram.bytes.len());
        }
    }

    fn on_wake(&mut self, _now: Time) {}

    fn next_wakeup(&self) -> Option<Time> {
        None
    }

    fn on_port_closed(&mut self, _why: &str) {
        let _ = self.commands.send(SendCommand::Stop);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use longhaul_net::port::Port;
    use longhaul_net::sealing::keys::{FlowKeys, Suite};
    use longhaul_net::sealing::seal::Sealer;
    use longhaul_net::socket::Socket;
    use longhaul_proto::endpoint::FlowId;
    use longhaul_proto::wire::header::Header;

    use super::*;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

    struct Rig {
        port: Port,
        command: Receiver<SendCommand>,
        /// The receiver's sealer, and an attacker's.
        seals: [Sealer; 2],
    }

    impl Rig {
        fn new(address: AddressRule) -> Rig {
            Rig::with_limit(address, u64::MAX)
        }

        fn with_limit(address: AddressRule, limit: u64) -> Rig {
            Rig::asking(address, limit, None)
        }

        fn asking(address: AddressRule, limit: u64, receipts: Option<Receipts>) -> Rig {
            let port = Port::bind((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
            let keys = |secret| FlowKeys::new(&[secret; 32], Suite::Aes128Gcm, 1, FlowId(4));
            let (commands, command) = channel();
            let (inlet, _) = tokio::sync::mpsc::channel(1);
            let reports = keys(1).sending_end().reports.limited_to(limit);
            let feedback = Feedback::new(reports, commands, inlet, address, Arc::default());
            let feedback = feedback.with_receipts(receipts);
            port.register(FlowId(4), Box::new(feedback)).unwrap();
            Rig { port, command, seals: [1, 2].map(|secret| keys(secret).receiving_end().reports) }
        }

        fn send(&mut self, from: &Socket, seal: usize, kind: Kind, content: &[u8]) {
            let mut sealed = vec![0; 100];
            let len = self.seals[seal].seal(kind, 0, content, &mut sealed).unwrap();
            from.send(self.address().into(), &sealed[..len]).unwrap();
        }

        fn address(&self) -> SocketAddr {
            SocketAddr::new(HOME, self.port.socket().local_addr().port())
        }

        fn command(&self) -> SendCommand {
            self.command.recv_timeout(Duration::from_secs(60)).expect("the thread is told")
        }

        /// Returns the address to which the flow moves. Skips repeated challenges.
        fn moved(&self) -> SocketAddr {
            loop {
                match self.command() {
                    SendCommand::Ask(..) => {}
                    SendCommand::Peer(path) => return path.remote,
                    _ => panic!("neither asked nor moved"),
                }
            }
        }
    }

    fn socket(ip: IpAddr) -> Socket {
        Socket::bind((ip, 0).into()).unwrap()
    }

    #[test]
    fn a_genuine_challenge_reaches_the_thread_that_answers_it() {
        let receiver = socket(HOME);
        let mut rig = Rig::new(AddressRule::contacted(receiver.local_addr()));
        rig.send(&receiver, 1, Kind::Challenge, &[8; 16]);
        rig.send(&receiver, 0, Kind::Challenge, &[9; 16]);
        let SendCommand::Challenge(path, challenge) = rig.command() else { panic!("no challenge") };
        assert_eq!((path.remote, challenge), (receiver.local_addr(), vec![9; 16]));
    }

    #[test]
    fn at_most_256_answers_reach_the_thread_and_none_after_an_authenticated_message() {
        let receiver = socket(HOME);
        for (genuine, expected) in [(0, MOST_ANSWERS), (1, 0)] {
            let receipts = Receipts::of(FlowId(4)).unwrap();
            let question = Header::decode(&receipts.question()).unwrap();
            let mut answer = [0; 44];
            let head = answer.first_chunk_mut().unwrap();
            Header { kind: Kind::ProbeAnswer, ..question }.encode(head);
            assert!(receipts.read(&answer).is_some());
            let rule = AddressRule::contacted(receiver.local_addr());
            let mut rig = Rig::asking(rule, u64::MAX, Some(receipts));
            let to = rig.address();
            for _ in 0..genuine {
                rig.send(&receiver, 0, Kind::Challenge, &[0; 16]);
                assert!(matches!(rig.command(), SendCommand::Challenge(..)));
            }
            for _ in 0..MOST_ANSWERS + 10 {
                receiver.send(to.into(), &answer).unwrap();
            }
            let mut receipts = 0;
            // A genuine message ends the count.
            rig.send(&receiver, 0, Kind::Challenge, &[9; 16]);
            while matches!(rig.command(), SendCommand::Receipt(_)) {
                receipts += 1;
            }
            assert_eq!(receipts, expected);
        }
    }

    #[test]
    fn forged_reports_end_the_flow_at_the_forgery_limit() {
        let receiver = socket(HOME);
        let mut rig = Rig::with_limit(AddressRule::contacted(receiver.local_addr()), 3);
        for _ in 0..2 {
            rig.send(&receiver, 1, Kind::Control, &[]);
        }
        rig.send(&receiver, 0, Kind::Challenge, &[9; 16]);
        assert!(matches!(rig.command(), SendCommand::Challenge(..)));
        for _ in 0..2 {
            rig.send(&receiver, 1, Kind::Control, &[]);
        }
        assert!(matches!(rig.command(), SendCommand::Forged));
    }

    #[test]
    fn data_follow_a_moved_receiver_after_it_echoes_the_challenge_but_never_a_stranger() {
        let (before, after, stranger) = (socket(HOME), socket(ELSEWHERE), socket(ELSEWHERE));
        let mut rig = Rig::new(AddressRule::waiting(HOME));
        rig.send(&before, 0, Kind::Control, &[]);
        assert_eq!(rig.moved(), before.local_addr());
        rig.send(&stranger, 1, Kind::Control, &[]);
        rig.send(&after, 0, Kind::Control, &[]);
        let SendCommand::Ask(path, challenge) = rig.command() else {
            panic!("it must prove itself")
        };
        assert_eq!(path.remote, after.local_addr());
        // An answer that is not an echo, or comes from another address, changes nothing.
        rig.send(&after, 0, Kind::ChallengeAnswer, &[0; 16]);
        rig.send(&stranger, 1, Kind::ChallengeAnswer, &challenge);
        rig.send(&before, 0, Kind::ChallengeAnswer, &challenge);
        rig.send(&after, 0, Kind::ChallengeAnswer, &challenge);
        assert_eq!(rig.moved(), after.local_addr());
    }
}
