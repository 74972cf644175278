//! The machine's speed without a protocol: the bare pipeline, and a blaster for comparison.
//!
//! Sending: pread → hash → seal → one send of many datagrams (GSO). Receiving: one receive of many
//! datagrams (GRO) → open into a chunk buffer → hash → pwrite. There are no resends and no control
//! channel. `blaster` only sends and receives datagrams.
//!
//! ```text
//! pipeline run [to=ADDR] [netns=SENDER,RECEIVER] [dir=DIR] [size=MIB] [datagram=BYTES]
//! ```
//!
//! The command runs each variant between two processes, pinned to two cores. It prints each
//! variant's fastest run with less than 0.1 % of loss. `pipeline flood` measures the receiver's
//! cost of a datagram from an unknown sender.
//!
//! Before each run, the receiver touches and frees more memory than the file takes. On a virtual
//! machine, the first write to a page that the hypervisor has reclaimed is slow.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use longhaul_net::batch::Batch;
use longhaul_net::buffers::assembly::Assembly;
use longhaul_net::buffers::chunks::ChunkPool;
use longhaul_net::port::place::Placer;
use longhaul_net::port::scatter::{Scatter, ScatterCall};
use longhaul_net::port::{Datagrams, FlowSink, Port};
use longhaul_net::sealing::keys::{FlowKeys, Suite};
use longhaul_net::sealing::seal::{Sealer, data_overhead};
use longhaul_net::socket::{Path, SendOutcome, Socket};
use longhaul_net::{clock, wait};
use longhaul_proto::endpoint::{Arrival, FlowId};
use longhaul_proto::layout::Layout;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::header::Kind;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

mod table;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const FLOW: FlowId = FlowId(7);
const CHUNK: u64 = 1 << 20;
/// How long a receiver waits for more datagrams.
const IDLE: Span = Span::from_millis(300);

#[derive(Clone, Copy, PartialEq)]
struct Variant {
    name: &'static str,
    suite: Suite,
    /// Only datagrams: nothing is read, opened or kept.
    blast: bool,
    hash: bool,
    write: bool,
    /// Datagrams are opened and counted, but not kept.
    fake: bool,
    /// The kernel scatters payloads to their predicted places.
    scatter: bool,
}

const PLAIN: Variant = Variant {
    name: "none, kept in memory",
    suite: Suite::Plain,
    blast: false,
    hash: false,
    write: false,
    fake: false,
    scatter: false,
};
const SEALED: Variant = Variant { suite: Suite::Aes128Gcm, ..PLAIN };

const VARIANTS: [Variant; 12] = [
    Variant { name: "blaster", blast: true, ..PLAIN },
    PLAIN,
    Variant { name: "none, scatter, memory", scatter: true, ..PLAIN },
    Variant { name: "none, file", write: true, ..PLAIN },
    Variant { name: "none, scatter, file", scatter: true, write: true, ..PLAIN },
    Variant { name: "none, hash, file", hash: true, write: true, ..PLAIN },
    Variant { name: "sealed, fake", fake: true, ..SEALED },
    Variant { name: "sealed, kept in memory", ..SEALED },
    Variant { name: "sealed, file", write: true, ..SEALED },
    Variant { name: "sealed, hash, file", hash: true, write: true, ..SEALED },
    Variant {
        name: "sealed, scatter, hash, file",
        hash: true,
        write: true,
        scatter: true,
        ..SEALED
    },
    Variant {
        name: "chacha, hash, file",
        suite: Suite::ChaCha20Poly1305,
        hash: true,
        write: true,
        ..PLAIN
    },
];

struct Arguments(HashMap<String, String>);

impl Arguments {
    fn text(&self, key: &str, default: &str) -> String {
        self.0.get(key).cloned().unwrap_or_else(|| default.to_owned())
    }

    fn number(&self, key: &str, default: u64) -> Result<u64> {
        self.0.get(key).map_or(Ok(default), |text| Ok(text.parse()?))
    }

    fn variant(&self) -> Result<Variant> {
        VARIANTS.get(self.number("variant", 0)? as usize).copied().ok_or("no such variant".into())
    }

    fn layout(&self, variant: Variant) -> Result<Layout> {
        let object = Bytes::mebi(self.number("size", 1024)?);
        let block = self.number("datagram", 1472)? as u32 - data_overhead(variant.suite) as u32;
        Layout::new(object, Bytes::ZERO, Bytes::new(CHUNK), block)
            .map_err(|why| format!("{why:?}").into())
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let pairs = words.iter().filter_map(|word| word.split_once('='));
    let arguments = Arguments(pairs.map(|(key, value)| (key.into(), value.into())).collect());
    match words.first().map(String::as_str) {
        Some("run") => table::run(&arguments),
        Some("send") => send(&arguments),
        Some("receive") => receive(&arguments),
        Some("flood") => flood(),
        _ => {
            Err("usage: pipeline run [to=ADDR] [netns=A,B] [dir=DIR] [size=MIB] [datagram=N]"
                .into())
        }
    }
}

fn keys(variant: Variant) -> FlowKeys {
    FlowKeys::new(&[0x51; 32], variant.suite, 1, FLOW)
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    // With a single core, both processes share it.
    let _ = sched_setaffinity(None, &cores);
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn touch(mebi: u64) {
    let mut memory = vec![0u8; (mebi << 20) as usize];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

fn send(arguments: &Arguments) -> Result<()> {
    let variant = arguments.variant()?;
    let to: SocketAddr = arguments.text("to", "127.0.0.1:7000").parse()?;
    let layout = arguments.layout(variant)?;
    let rate = Rate::from_mbps(arguments.number("mbps", 1000)?);
    let source = File::open(arguments.text("file", "source"))?;
    pin(0);
    wait::be_punctual();
    let local: SocketAddr = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let mut pacer = Pacer::new(Socket::bind(local)?, to.into(), rate);
    let mut sealer = keys(variant).sending_end().data;
    let mut batch = Batch::new(arguments.number("datagram", 1472)? as u16);
    if variant.blast {
        let blocks = layout.blocks();
        let busy = cpu();
        pacer.blast(blocks, &mut batch, &mut sealer, layout.block_size())?;
        pacer.report(cpu() - busy);
        return Ok(());
    }
    let mut chunk = vec![0; CHUNK as usize];
    let busy = cpu();
    pacer.start = clock::now();
    for index in 0..layout.chunks() {
        source.read_exact_at(&mut chunk, index * CHUNK)?;
        if variant.hash {
            std::hint::black_box(blake3::hash(&chunk));
        }
        let (first, count) = layout.blocks_of_chunk(index);
        for (n, payload) in chunk.chunks(layout.block_size() as usize).enumerate() {
            let number = layout.number(first) + n as u64;
            batch.push(&mut sealer, Kind::Data, number, payload)?;
            if batch.room() == 0 || n + 1 == count as usize && index + 1 == layout.chunks() {
                pacer.send(&mut batch)?;
            }
        }
    }
    pacer.report(cpu() - busy);
    Ok(())
}

struct Pacer {
    socket: Socket,
    path: Path,
    rate: Rate,
    start: Time,
    sent: Bytes,
    spun: Span,
    lost: u64,
    /// Never gets a message, so a wait ends only by its timeout.
    silence: (Sender<()>, std::sync::mpsc::Receiver<()>),
}

impl Pacer {
    fn new(socket: Socket, path: Path, rate: Rate) -> Pacer {
        let (start, sent, spun) = (Time::ZERO, Bytes::ZERO, Span::ZERO);
        Pacer { socket, path, rate, start, sent, spun, lost: 0, silence: channel() }
    }

    /// Sends one train (batch of sealed datagrams) repeatedly, until `count` datagrams have been
    /// sent.
    fn blast(
        &mut self,
        count: u64,
        batch: &mut Batch,
        sealer: &mut Sealer,
        len: u32,
    ) -> Result<()> {
        let mut train = Vec::new();
        let payload = vec![0x5a; len as usize];
        let size = payload.len() + sealer.overhead();
        for _ in 0..batch.capacity() {
            let start = train.len();
            train.resize(start + size, 0);
            sealer.seal(Kind::Data, 0, &payload, &mut train[start..])?;
        }
        self.start = clock::now();
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(batch.capacity());
            self.wait(now * size);
            self.socket.send_train(self.path, &train[..now * size], size)?;
            left -= now;
        }
        Ok(())
    }

    fn report(&self, busy: Duration) {
        let busy = busy.as_secs_f64() - self.spun.as_secs_f64();
        let took = clock::now().since(self.start).as_secs_f64();
        println!("cpu={busy} seconds={took} lost={}", self.lost);
    }

    fn wait(&mut self, bytes: usize) {
        let due = self.start + self.sent / self.rate;
        let left = due.since(clock::now());
        wait::until(&self.silence.1, due);
        self.spun = self.spun + left.min(Span::from_micros(50));
        self.sent += Bytes::new(bytes as u64);
    }

    fn send(&mut self, batch: &mut Batch) -> Result<()> {
        self.wait(batch.bytes());
        if let SendOutcome::Lost(_) = batch.send(&self.socket, self.path)? {
            self.lost += 1;
        }
        Ok(())
    }
}

fn receive(arguments: &Arguments) -> Result<()> {
    let variant = arguments.variant()?;
    let layout = arguments.layout(variant)?;
    let name = arguments.text("file", "copy");
    pin(1);
    touch(arguments.number("size", 1024)? * 5 / 4 + 64);
    let port = Port::bind(arguments.text("listen", "127.0.0.1:0").parse()?)?;
    let pool = ChunkPool::new(Bytes::new(CHUNK), Bytes::mebi(64));
    // Touch eight of the pool's buffers now, so that their allocation is not measured.
    let warm: Vec<_> =
        (0..8).filter_map(|_| pool.take()).map(|mut buffer| buffer.fill(1)).collect();
    drop(warm);
    let opener = keys(variant).receiving_end().data;
    let (sender, receiver) = channel();
    let file = if variant.write { Some(File::create(name)?) } else { None };
    let kept = if variant.fake { 0 } else { u64::MAX };
    let sink = Sink {
        variant,
        scatter: Scatter::new(FLOW),
        placer: Placer::new(opener, Assembly::new(layout, pool), kept),
        file,
        arrivals: Vec::new(),
        came: 0,
        whole: 0,
        first: None,
        last: clock::now(),
        blocks: layout.blocks(),
        sender: Some(sender),
    };
    let busy = cpu();
    port.register(FLOW, Box::new(sink))?;
    println!("ready={}", port.socket().local_addr().port());
    let (came, whole, took) = receiver.recv()?;
    let busy = (cpu() - busy).as_secs_f64();
    let drops = port.statistics().kernel_drops;
    let buffer = port.socket().receive_buffer();
    println!(
        "cpu={busy} seconds={} came={came} blocks={} whole={whole} drops={drops} buffer={buffer}",
        took.as_secs_f64(),
        layout.blocks(),
    );
    Ok(())
}

struct Sink {
    variant: Variant,
    scatter: Scatter,
    placer: Placer,
    file: Option<File>,
    arrivals: Vec<longhaul_proto::endpoint::Arrival>,
    came: u64,
    whole: u64,
    first: Option<Time>,
    last: Time,
    blocks: u64,
    sender: Option<Sender<(u64, u64, Span)>>,
}

impl Sink {
    fn store(&mut self) {
        while let Some(whole) = self.placer.assembly().pop_whole() {
            if self.variant.hash {
                std::hint::black_box(blake3::hash(&whole.buffer[..whole.len]));
            }
            if let Some(file) = &self.file {
                let written = file.write_all_at(&whole.buffer[..whole.len], whole.chunk * CHUNK);
                written.expect("room for the copy");
            }
            self.whole += 1;
        }
        self.last = clock::now();
        if self.came == self.blocks {
            self.finish();
        }
    }

    fn finish(&mut self) {
        let took = self.last.since(self.first.unwrap_or(self.last));
        if let Some(sender) = self.sender.take() {
            let _ = sender.send((self.came, self.whole, took));
        }
    }
}

impl FlowSink for Sink {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        self.first.get_or_insert(now);
        if self.variant.blast {
            self.came += datagrams.len() as u64;
        } else {
            self.arrivals.clear();
            for datagram in datagrams {
                let Ok(placed) = self.placer.place(now, &datagram) else { continue };
                let number = datagram.header.number;
                self.arrivals.extend(placed.map(|block| Arrival { number, block, at: now }));
            }
            self.came += self.arrivals.len() as u64;
        }
        self.store();
    }

    fn receive(&mut self, call: &mut ScatterCall<'_>) -> std::io::Result<bool> {
        if self.variant.scatter {
            self.arrivals.clear();
            self.scatter.receive(call, &mut self.placer, &mut self.arrivals)?;
            self.first.get_or_insert_with(clock::now);
            self.came += self.arrivals.len() as u64;
            self.store();
        }
        Ok(self.variant.scatter)
    }

    fn on_wake(&mut self, now: Time) {
        if self.next_wakeup().is_some_and(|time| time <= now) {
            self.finish();
        }
    }

    fn next_wakeup(&self) -> Option<Time> {
        let patience = if self.first.is_some() { IDLE } else { Span::from_secs(10) };
        Some(self.last + patience)
    }

    fn is_closed(&self) -> bool {
        self.sender.is_none()
    }

    fn on_port_closed(&mut self, _: &str) {}
}

/// Sends single datagrams of an unknown sender, 50,000 a second, to a port without flows.
fn flood() -> Result<()> {
    const COUNT: u64 = 100_000;
    let port = Port::bind("127.0.0.1:0".parse()?)?;
    let path = Path::from(port.socket().local_addr());
    let mut pacer = Pacer::new(Socket::bind("127.0.0.1:0".parse()?)?, path, Rate::from_mbps(100));
    let mut datagram = [1; 250];
    pacer.start = clock::now();
    let before = (cpu(), clock_gettime(ClockId::ThreadCPUTime));
    for n in 0..COUNT {
        datagram[1..9].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        pacer.wait(datagram.len());
        pacer.socket.send(path, &datagram)?;
    }
    let own = clock_gettime(ClockId::ThreadCPUTime) - before.1;
    let all = cpu() - before.0;
    let own = Duration::new(own.tv_sec as u64, own.tv_nsec as u32);
    let each = all.saturating_sub(own) / COUNT as u32;
    let seconds = clock::now().since(pacer.start).as_secs_f64();
    let (rate, share) = (COUNT as f64 / seconds, each.as_secs_f64() * 50_000.0);
    println!("{rate:.0} a second, {each:?} each; 50,000 take {:.1} % of a core", share * 100.0);
    println!("{:?}", port.statistics());
    Ok(())
}
