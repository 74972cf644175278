//! Rooms under load.
//!
//! `LONGHAUL_ROOM_LOAD=1 cargo test … --test main net::room_load -- --nocapture` measures larger
//! loads, and the same loads on MQTT.

mod mqtt;

use std::cell::{Cell, RefCell};
use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use longhaul_stream::channel::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, Part, Publish, Subscribe,
};
use longhaul_transfer::session::Session;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::liar::meet;
use crate::rig::Pair;

/// Bytes of each message, except of [`END`].
const SIZE: usize = 100;
const SENDERS: u64 = 10;
/// The last message of a load.
const END: &[u8] = b"end";
/// Time limit of all loads on one room, including the same loads on MQTT.
const PATIENCE: Duration = Duration::from_secs(170);

/// A load: subscribers, messages a second of all senders together, and seconds.
#[derive(Clone, Copy)]
struct Load(usize, u64, u64);

/// What all subscribers received of a load.
#[derive(Default)]
struct Seen {
    /// The delay of each message, in microseconds.
    delays: RefCell<Vec<u32>>,
    lost: Cell<u64>,
}

fn ask(asked: ChannelAsked) -> ChannelAsk {
    ChannelAsk { asked: Some(asked) }
}

fn micros(base: Instant) -> u64 {
    base.elapsed().as_micros() as u64
}

/// Reads messages to the end of a load.
async fn subscribe(session: &mut Session, base: Instant, seen: &Seen) {
    loop {
        let told = session.read::<ChannelTell>().await.expect("nobody loses the session");
        match told.expect("the server does not end it").told {
            Some(ChannelTold::Lost(lost)) => seen.lost.set(seen.lost.get() + lost.count),
            Some(ChannelTold::Part(part)) if part.bytes == END => break,
            Some(ChannelTold::Part(part)) => {
                let at = part.bytes[..8].try_into().map_or(0, u64::from_be_bytes);
                let delay = micros(base).saturating_sub(at);
                seen.delays.borrow_mut().push(u32::try_from(delay).unwrap_or(u32::MAX));
            }
            _ => {}
        }
    }
}

/// Sends one sender's messages, and waits until the server has taken all of them.
async fn publish(pair: &Pair, run: u64, per_second: f64, seconds: u64, base: Instant) {
    let mut session = meet(pair, &pair.client).await;
    session.ask_for("channel", 1);
    let publish = Publish { name: "load".into(), run, ..Publish::default() };
    session.write(&ask(ChannelAsked::Publish(publish))).await.unwrap();
    let (mut writer, mut reader) = session.split();
    let (total, start) = ((per_second * seconds as f64) as u64, Instant::now());
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    let (mut sent, mut taken) = (0, 0);
    while taken < total {
        tokio::select! {
            _ = tick.tick(), if sent < total => {
                let due = (start.elapsed().as_secs_f64() * per_second) as u64;
                while sent < due.min(total) {
                    sent += 1;
                    let mut bytes = vec![0; SIZE];
                    bytes[..8].copy_from_slice(&micros(base).to_be_bytes());
                    let part = Part { number: sent, bytes, ..Part::default() };
                    writer.queue(&ask(ChannelAsked::Part(part))).unwrap();
                }
                writer.flush().await.unwrap();
            }
            told = reader.read::<ChannelTell>() => {
                if let Some(ChannelTold::Taken(word)) = told.unwrap().expect("it stays").told {
                    taken = word.count;
                }
            }
        }
    }
    writer.close(reader, None).await.unwrap();
}

async fn end(pair: &Pair, run: u64) {
    let mut session = meet(pair, &pair.client).await;
    session.ask_for("channel", 1);
    let publish = Publish { name: "load".into(), run, ..Publish::default() };
    session.write(&ask(ChannelAsked::Publish(publish))).await.unwrap();
    let part = Part { number: 1, bytes: END.to_vec(), ..Part::default() };
    session.write(&ask(ChannelAsked::Part(part))).await.unwrap();
    loop {
        match session.read::<ChannelTell>().await.unwrap().expect("it stays").told {
            Some(ChannelTold::Taken(_)) => return,
            _ => continue,
        }
    }
}

/// Seconds of processor time of a process.
pub(super) fn cpu(id: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    // The kernel counts 100 ticks a second.
    ticks as f64 / 100.0
}

/// Prints a row. Its last two numbers are the CPU seconds of the server and of this process per
/// million delivered messages.
#[allow(clippy::print_stderr, reason = "the numbers are for results/")]
fn report(name: &str, subscribers: usize, rate: u64, seen: &Seen, cpus: (f64, f64)) {
    let mut delays = seen.delays.take();
    delays.sort_unstable();
    let at = |share: f64| {
        let place = (delays.len() as f64 * share) as usize;
        let delay = delays.get(place.min(delays.len().saturating_sub(1))).copied().unwrap_or(0);
        f64::from(delay) / 1e3
    };
    let (came, lost) = (delays.len() as u64, seen.lost.get());
    eprintln!(
        "| {name} | {subscribers} | {rate} | {came} | {:.2} % | {:.1} | {:.1} | {:.1} | {:.2} | \
         {:.2} |",
        lost as f64 * 100.0 / (came + lost).max(1) as f64,
        at(0.5),
        at(0.99),
        at(1.0),
        cpus.0 * 1e6 / came as f64,
        cpus.1 * 1e6 / came as f64,
    );
}

/// The subscribers of a room, which stay connected for several loads.
struct Audience {
    sessions: Vec<Session>,
    runs: u64,
}

impl Audience {
    async fn gather(pair: &Rc<Pair>, count: usize) -> Audience {
        let (turns, mut joining) = (Rc::new(Semaphore::new(16)), Vec::new());
        for _ in 0..count {
            let (pair, turns) = (pair.clone(), turns.clone());
            let joins: JoinHandle<Session> = spawn_local(async move {
                let _turn = turns.acquire().await;
                let mut session = meet(&pair, &pair.client).await;
                session.ask_for("channel", 1);
                let subscribe = Subscribe { name: "load".into(), ..Subscribe::default() };
                session.write(&ask(ChannelAsked::Subscribe(subscribe))).await.unwrap();
                let room = session.read::<ChannelTell>().await.unwrap().expect("it answers");
                assert!(matches!(room.told, Some(ChannelTold::Room(_))));
                session
            });
            joining.push(joins);
        }
        let mut sessions = Vec::new();
        for joins in joining {
            sessions.push(joins.await.expect("it joins"));
        }
        Audience { sessions, runs: 100 }
    }

    /// Puts a load on the room, and prints the results.
    async fn bear(&mut self, pair: &Rc<Pair>, server: u32, load: Load) {
        let Load(_, rate, seconds) = load;
        let (seen, base) = (Rc::new(Seen::default()), Instant::now());
        let before = (cpu(server), cpu(std::process::id()));
        let mut reading = Vec::new();
        for mut session in self.sessions.drain(..) {
            let seen = seen.clone();
            reading.push(spawn_local(async move {
                subscribe(&mut session, base, &seen).await;
                session
            }));
        }
        let mut sending = Vec::new();
        for sender in 0..SENDERS {
            let (pair, run) = (pair.clone(), self.runs + sender);
            let share = rate as f64 / SENDERS as f64;
            sending.push(spawn_local(async move {
                publish(&pair, run, share, seconds, base).await;
            }));
        }
        self.runs += SENDERS + 1;
        for sender in sending {
            sender.await.expect("it sends");
        }
        end(pair, self.runs - 1).await;
        for reader in reading {
            self.sessions.push(reader.await.expect("nobody loses the session"));
        }
        let used = (cpu(server) - before.0, cpu(std::process::id()) - before.1);
        let all = seen.delays.borrow().len() as u64 + seen.lost.get();
        report("longhaul", self.sessions.len(), rate, &seen, used);
        let sent = (rate as f64 / SENDERS as f64 * seconds as f64) as u64 * SENDERS;
        assert_eq!(all, sent * self.sessions.len() as u64, "each message came or counts as lost");
    }
}

fn run(loads: impl AsyncFnOnce(Rc<Pair>)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime for the test");
    let pair = Rc::new(Pair::with_rights(",channel=rw", &["--quiet"]));
    let all = async { tokio::time::timeout(PATIENCE, loads(pair)).await.expect("it ends") };
    LocalSet::new().block_on(&runtime, all);
}

#[test]
fn each_message_reaches_each_subscriber_or_is_counted_as_lost_and_overload_ends_no_session() {
    let is_measured = std::env::var_os("LONGHAUL_ROOM_LOAD").is_some();
    let loads: &[&[Load]] = match is_measured {
        true => &[
            &[Load(1_000, 100, 10)],
            &[Load(200, 1_000, 10), Load(200, 10_000, 5), Load(200, 100, 5)],
        ],
        false => &[&[Load(40, 200, 1), Load(40, 10_000, 1), Load(40, 100, 1)]],
    };
    for loads in loads {
        run(async |pair| {
            let server = pair.server.child.id();
            let mut audience = Audience::gather(&pair, loads[0].0).await;
            for load in *loads {
                audience.bear(&pair, server, *load).await;
            }
            assert_eq!(audience.sessions.len(), loads[0].0);
            drop(audience);
            if is_measured {
                mqtt::run(loads).await;
            }
        });
    }
}
