//! Tests: if the other end sends more than it was granted, other transfers still get their memory,
//! and the excess is reported.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::buffers::chunks::ChunkBuffer;
use longhaul_net::clock;
use longhaul_net::port::{Mailbox, Port};
use longhaul_net::sealing::keys::{FlowKeys, Suite};
use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::Socket;
use longhaul_proto::endpoint::{FlowId, Setup};
use longhaul_proto::layout::Layout;
use longhaul_proto::registry;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use longhaul_proto::wire::header::{Header, Kind};

use crate::counters::Counters;
use crate::counters::board::Board;
use crate::flow::outbox::Outbox;
use crate::flow::receive::{ReceiveCommand, ReceivePass, Receiving};
use crate::write::budget::EARLY_GRANT;
use crate::write::budget::{Budget, MemoryPart, MessageCharge};
use crate::write::chunk::{Arrived, Content, Drained};
use crate::write::jobs::{Job, JobInbox, Jobs};
use longhaul_files::CHUNK;

const FLOW: FlowId = FlowId(7);
/// Block size in bytes: large, so a chunk has few datagrams.
const BLOCK: u32 = 60_000;
const OBJECT: Bytes = Bytes::mebi(100);
/// Memory of each of two transfers that share 64 MiB: in MiB, and also in chunks, because a chunk
/// has 1 MiB.
const HELD: u64 = 32;
const SOON: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

fn layout() -> Layout {
    Layout::new(OBJECT, Bytes::ZERO, Bytes::new(CHUNK), BLOCK).unwrap()
}

fn part(budget: &Budget) -> MemoryPart {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(budget.enter()).expect("there is memory")
}

/// A receiving flow with a sender that ignores grants; the test takes the place of the writer.
struct Greedy {
    port: Port,
    sender: Socket,
    sealer: Sealer,
    layout: Layout,
    board: Arc<Board>,
    jobs: JobInbox,
    mailbox: Mailbox<ReceiveCommand>,
}

impl Greedy {
    fn new(memory: Arc<MemoryPart>) -> Greedy {
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let (port, sender) = (Port::bind(loopback).unwrap(), Socket::bind(loopback).unwrap());
        let keys = || FlowKeys::new(&[1; 32], Suite::Aes128Gcm, 1, FLOW);
        let receiving = keys().receiving_end();
        let (writer, jobs) = Jobs::new();
        let (inlet, _) = tokio::sync::mpsc::channel(1);
        let (mailbox, commands) = port.mailbox(FLOW);
        let (board, drained) = (Arc::new(Board::default()), Arc::new(Drained::default()));
        let setup = Setup {
            flow: FLOW,
            layout: layout(),
            overhead: Bytes::new(SEALED_OVERHEAD as u64),
            rtt: Span::from_millis(1),
            rate: None,
            rate_limit: None,
            remembered: None,
            card: None,
            law: longhaul_proto::law::Law::default(),
            weight: longhaul_proto::law::Weight::default(),
            grant: EARLY_GRANT,
            settings: Settings::default(),
        };
        let pass = ReceivePass {
            flow: FLOW,
            setup,
            core: (registry::all()[0].receiver)(),
            data: receiving.data,
            control: receiving.control,
            reports: receiving.reports,
            peer: Ipv4Addr::LOCALHOST.into(),
            contact: None,
            port: port.handle(),
            memory,
            kept: None,
            outbox: Outbox::new(MessageCharge::alone()).0,
            inlet,
            writer,
            drained,
            board: board.clone(),
            earlier: Counters::default(),
            commands,
        };
        port.register(FLOW, Box::new(Receiving::new(clock::now(), pass))).unwrap();
        let sealer = keys().sending_end().data;
        Greedy { port, sender, sealer, layout: layout(), board, jobs, mailbox }
    }

    fn to(&self) -> SocketAddr {
        self.port.socket().local_addr()
    }

    fn send(&mut self, chunk: u64, count: u32) {
        let (first, blocks) = self.layout.blocks_of_chunk(chunk);
        for number in (self.layout.number(first)..).take(count.min(blocks) as usize) {
            let sealed = self.seal(number);
            self.sender.send(self.to().into(), &sealed).unwrap();
        }
    }

    fn seal(&mut self, number: u64) -> Vec<u8> {
        let block = self.layout.block(number).expect("the object has it");
        let payload = vec![7; self.layout.extent(block).len as usize];
        let mut sealed = vec![0; payload.len() + SEALED_OVERHEAD];
        let len = self.sealer.seal(Kind::Data, number, &payload, &mut sealed).unwrap();
        sealed.truncate(len);
        sealed
    }

    fn fill(&mut self, chunk: u64) -> Arrived {
        loop {
            self.send(chunk, u32::MAX);
            // If the kernel dropped a datagram, no chunk comes, and the outer loop sends all again.
            while let Ok((_, job)) = self.jobs.recv_timeout(10 * SOON) {
                if let Job::Chunk(arrived) = job
                    && arrived.chunk == chunk
                {
                    return arrived;
                }
            }
        }
    }

    /// Waits until the flow reports `count` datagrams that were dropped for lack of memory.
    fn lost(&self, count: u64) {
        let begun = std::time::Instant::now();
        while self.board.mine().receiver.memory_lost != count {
            assert!(begun.elapsed() < LONG, "{:?}", self.board.mine());
            self.mailbox.post(ReceiveCommand::Drained);
            // The flow reports ten times a second.
            assert!(self.jobs.recv_timeout(SOON).is_err(), "no chunk is whole");
        }
    }
}

#[test]
fn data_beyond_a_grant_are_counted_and_take_no_memory_from_others() {
    let budget = Budget::new(Bytes::mebi(2 * HELD)).unwrap();
    let (memory, other) = (Arc::new(part(&budget)), part(&budget));
    let mut greedy = Greedy::new(memory.clone());
    // The writer holds all granted data.
    let mut waiting: Vec<Arrived> = (0..HELD).map(|chunk| greedy.fill(chunk)).collect();
    for chunk in HELD..HELD + 5 {
        greedy.send(chunk, 1);
    }
    greedy.lost(5);
    assert_eq!(memory.pool().lent() as u64, HELD);
    let others: Vec<ChunkBuffer> = std::iter::from_fn(|| other.pool().take()).collect();
    assert_eq!(others.len() as u64, HELD);
    Content::Datagrams(waiting.remove(0)).release(CHUNK as usize);
    let next = greedy.fill(HELD);
    assert_eq!((next.chunk, memory.pool().lent() as u64), (HELD, HELD));
    greedy.send(HELD + 1, 1);
    greedy.lost(6);
}

#[test]
fn the_new_address_of_a_sender_is_challenged_also_while_the_memory_is_full() {
    let budget = Budget::new(Bytes::mebi(2 * HELD)).unwrap();
    let mut greedy = Greedy::new(Arc::new(part(&budget)));
    let _waiting: Vec<Arrived> = (0..HELD).map(|chunk| greedy.fill(chunk)).collect();
    let moved = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    moved.set_read_timeout(Some(LONG)).unwrap();
    let number = greedy.layout.number(greedy.layout.blocks_of_chunk(HELD).0);
    let sealed = greedy.seal(number);
    moved.send_to(&sealed, greedy.to()).unwrap();
    let mut challenge = [0; 2_000];
    let len = moved.recv(&mut challenge).expect("the receiver answers");
    assert_eq!(Header::decode(&challenge[..len]).unwrap().kind, Kind::Challenge);
}
