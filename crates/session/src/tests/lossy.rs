//! The control stream on a long path that loses packets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::net::UdpSocket as Udp;
use tokio::time::{sleep, sleep_until};

use super::*;

/// A path with the delay `delay` each way. It loses one packet in `one_in`, chosen by seeded random
/// numbers.
#[derive(Default)]
struct Path {
    delay: Duration,
    /// One packet in this many is lost; zero: none.
    one_in: u64,
    state: u64,
    dead: Arc<AtomicBool>,
    /// For each packet from the client: how many earlier packets of the client are in flight when
    /// the relay receives the packet.
    flying: Arc<Mutex<Vec<usize>>>,
}

impl Path {
    fn loses(&mut self) -> bool {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let lost = self.one_in > 0 && (z ^ (z >> 31)).is_multiple_of(self.one_in);
        lost || self.dead.load(Ordering::Relaxed)
    }

    /// Relays between clients and `server`; returns the address for clients.
    async fn relay(mut self, server: SocketAddr) -> SocketAddr {
        let near = Udp::bind((LOOPBACKS[0], 0)).await.expect("a free port");
        let far = Udp::bind((LOOPBACKS[0], 0)).await.expect("a free port");
        let address = near.local_addr().expect("bound");
        tokio::spawn(async move {
            let mut client = address;
            let mut flying: BTreeMap<(tokio::time::Instant, u64), (bool, Vec<u8>)> =
                BTreeMap::new();
            let (mut up, mut down) = ([0; 2048], [0; 2048]);
            for number in 0.. {
                let next = flying.first_key_value().map(|((due, _), _)| *due);
                let due = tokio::time::Instant::now() + self.delay;
                tokio::select! {
                    Ok((length, from)) = near.recv_from(&mut up) => {
                        client = from;
                        let others = flying.values().filter(|(upwards, _)| *upwards).count();
                        self.flying.lock().expect("no holder panics").push(others);
                        if !self.loses() {
                            flying.insert((due, number), (true, up[..length].to_vec()));
                        }
                    }
                    Ok((length, _)) = far.recv_from(&mut down) => {
                        if !self.loses() {
                            flying.insert((due, number), (false, down[..length].to_vec()));
                        }
                    }
                    () = sleep_until(next.unwrap_or(due)), if next.is_some() => {
                        if let Some((_, (upwards, packet))) = flying.pop_first() {
                            let _ = match upwards {
                                true => far.send_to(&packet, server).await,
                                false => near.send_to(&packet, client).await,
                            };
                        }
                    }
                }
            }
        });
        address
    }
}

/// Returns a client's session with an echo server behind `path`.
async fn echo(path: Path) -> Session {
    let server = Identity::generate();
    let mut listener = listen(LOOPBACKS[0], &server);
    let address = path.relay(listener.local_addr()).await;
    tokio::spawn(async move {
        let mut far = listener.accept().await;
        while let Ok(Some(text)) = far.read::<String>().await {
            far.write(&text).await.expect("open");
        }
    });
    let client = Client::pinned(Carriers::Quic, &server);
    client.connect(address).await.expect("it listens")
}

async fn answered(session: &mut Session) -> Duration {
    let begun = Instant::now();
    session.write(&"x".to_owned()).await.expect("open");
    assert_eq!(session.read().await, Ok(Some("x".to_owned())));
    begun.elapsed()
}

#[test]
fn at_12_percent_loss_sessions_open_and_four_fifths_of_answers_take_under_6_round_trips() {
    run(async {
        let delay = Duration::from_millis(25);
        let mut sessions = tokio::task::JoinSet::new();
        for seed in 0..24 {
            let path = Path { delay, one_in: 8, state: seed, ..Path::default() };
            sessions.spawn(async move {
                let mut session = echo(path).await;
                let mut took = Vec::new();
                for _ in 0..8 {
                    took.push(answered(&mut session).await);
                    sleep(Duration::from_millis(60)).await;
                }
                took
            });
        }
        let mut took = Vec::new();
        while let Some(times) = sessions.join_next().await {
            took.extend(times.expect("each session stays open"));
        }
        took.sort();
        let most = took[took.len() * 8 / 10];
        assert!(most < delay * 2 * 6, "a fifth of the answers took more than {most:?}");
    });
}

/// With CUBIC only about three packets would be in flight at this loss (RFC 9438, section 5).
#[test]
fn at_12_percent_loss_a_long_message_has_8_or_more_packets_in_flight_half_of_the_time() {
    run(async {
        let flying = Arc::new(Mutex::default());
        let delay = Duration::from_millis(50);
        let path = Path { delay, one_in: 8, state: 7, flying: flying.clone(), ..Path::default() };
        let mut session = echo(path).await;
        let much = "m".repeat(400_000);
        session.write(&much).await.expect("open");
        assert_eq!(session.read().await, Ok(Some(much)));
        let mut flying: Vec<usize> = flying.lock().expect("no holder panics").clone();
        // A packet has at most 1,200 bytes, so the message needs more than `told` packets. The
        // second half of the first `told` packets is sent long after the first losses, and before
        // the acknowledgements of the echo.
        let told = 400_000 / 1400;
        assert!(flying.len() > told, "{} packets", flying.len());
        let mut late = flying.drain(told / 2..told).collect::<Vec<_>>();
        late.sort_unstable();
        let median = late[late.len() / 2];
        assert!(median >= 8, "half of the time {median} packets or fewer were on their way");
    });
}

#[test]
fn expecting_much_data_on_both_sides_raises_the_data_in_flight_above_500_kb() {
    const PACKET: usize = 1_200;
    let most_flying = |much: bool, one_in| {
        let flying: Arc<Mutex<Vec<usize>>> = Arc::default();
        let seen = flying.clone();
        run(async move {
            let delay = Duration::from_millis(60);
            let path = Path { delay, one_in, state: 3, flying, ..Path::default() };
            let server = Identity::generate();
            let mut listener = listen(LOOPBACKS[0], &server);
            let address = path.relay(listener.local_addr()).await;
            let read = tokio::spawn(async move {
                let (_writer, mut reader) = listener.accept().await.split();
                if much {
                    reader.expect_much();
                }
                for _ in 0..6 {
                    let told: Option<String> = reader.read().await.expect("open");
                    assert_eq!(told.map(|told| told.len()), Some(900_000));
                }
            });
            let client = Client::pinned(Carriers::Quic, &server);
            let (mut writer, reader) = client.connect(address).await.expect("it listens").split();
            if much {
                reader.expect_much();
            }
            for _ in 0..6 {
                writer.write(&"l".repeat(900_000)).await.expect("open");
            }
            read.await.expect("all of it comes");
        });
        let flying = seen.lock().expect("no holder panics");
        flying.iter().max().map_or(0, |most| most * PACKET)
    };
    for one_in in [0, 100] {
        let little = most_flying(false, one_in);
        assert!(little < 400_000, "{little} bytes in flight, but no side expects much");
        // A stalled machine delays packets as a queue does, which shrinks the window. So one good
        // try of six suffices.
        let grew = (0..6).any(|_| most_flying(true, one_in) > 500_000);
        assert!(grew, "never more than 500 kB in flight; one packet in {one_in} is lost");
    }
}

#[test]
fn a_session_continues_soon_after_an_outage() {
    run(async {
        let dead = Arc::new(AtomicBool::new(false));
        let path = Path { delay: Duration::from_millis(5), dead: dead.clone(), ..Path::default() };
        let mut session = echo(path).await;
        answered(&mut session).await;
        dead.store(true, Ordering::Relaxed);
        session.write(&"into nothing".to_owned()).await.expect("open");
        sleep(Duration::from_secs(3)).await;
        dead.store(false, Ordering::Relaxed);
        let begun = Instant::now();
        assert_eq!(session.read().await, Ok(Some("into nothing".to_owned())));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    });
}
