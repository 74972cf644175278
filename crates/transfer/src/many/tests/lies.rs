//! One of three sources violates the protocol, over real sockets. The copy excludes this source and
//! names it to the user.

use std::fs;
use std::sync::{Arc, LazyLock, Mutex};

use longhaul_proto::accounting::SenderAccounting;
use longhaul_proto::endpoint::{
    BlockRange, BoxedSender, Event, FlowId, Outgoing, PacketNumber, Sender, Setup, Wake,
};
use longhaul_proto::layout::{Block, Layout};
use longhaul_proto::registry::{self, Row};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Rate;
use longhaul_proto::wire::{Control, Request};

use super::{options, server};
use crate::copy::copy;
use crate::location::Location;
use crate::options::CopyOptions;
use crate::progress::{Cancel, Notice, Observer, Progress};
use crate::session::Identity;
use crate::summary::Summary;

/// How the liar answers each request for a block.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// It also sends nine blocks that were not requested.
    Unasked,
    /// It sends the block nine more times.
    Again,
    /// It sends the block once, but ten times faster than requested.
    Fast,
}

/// A sender whose messages are honest and whose blocks violate the protocol.
struct Liar {
    honest: BoxedSender,
    layout: Layout,
    lie: Lie,
    /// The number of the last block that was sent without a request. These numbers count down from
    /// the end to the middle, again and again.
    next: u64,
}

impl Liar {
    fn of(setup: &Setup, lie: Lie) -> BoxedSender {
        let (layout, next) = (setup.layout, setup.layout.blocks());
        // With `Lie::Fast`, the liar also ignores the user's rate.
        let free = Setup { rate: None, rate_limit: None, ..setup.clone() };
        let setup = if lie == Lie::Fast { &free } else { setup };
        Box::new(Liar { honest: (registry::of_many().sender)(setup), layout, lie, next })
    }
}

impl Sender for Liar {
    fn poll_transmit(&mut self, now: Time, next: PacketNumber, max: usize, out: &mut Vec<Block>) {
        let before = out.len();
        self.honest.poll_transmit(now, next, max, out);
        if self.lie == Lie::Fast {
            return;
        }
        let asked: Vec<Block> = out[before..].to_vec();
        for asked in asked {
            for _ in 0..9 {
                out.push(match self.lie {
                    Lie::Again | Lie::Fast => asked,
                    Lie::Unasked => {
                        let blocks = self.layout.blocks();
                        self.next = if self.next > blocks / 2 { self.next - 1 } else { blocks - 1 };
                        self.layout.block(self.next).expect("it is the object's")
                    }
                });
            }
        }
    }

    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        match control {
            Control::Request(asked) if self.lie == Lie::Fast => {
                let rate = Rate::from_bps(asked.rate().as_bps() * 10);
                let mut blocks = asked.blocks().iter().cloned().peekable();
                let (sequence, anew) = (asked.sequence(), asked.is_anew());
                let fast = Request::fill(sequence, rate, anew, &mut blocks);
                self.honest.on_control(now, flow, &Control::Request(fast));
            }
            _ => self.honest.on_control(now, flow, control),
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.honest.on_timeout(now);
    }

    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange) {
        self.honest.skip(now, flow, blocks);
    }

    fn poll_control(&mut self, now: Time) -> Option<Outgoing> {
        self.honest.poll_control(now)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.honest.poll_event()
    }

    fn next_wakeup(&self) -> Wake {
        self.honest.next_wakeup()
    }

    fn is_finished(&self) -> bool {
        self.honest.is_finished()
    }

    fn is_blocked_by_grant(&self) -> bool {
        self.honest.is_blocked_by_grant()
    }

    fn rate(&self) -> Rate {
        self.honest.rate()
    }

    fn rtt(&self) -> Span {
        self.honest.rtt()
    }

    fn accounting(&self) -> &SenderAccounting {
        self.honest.accounting()
    }
}

/// Returns the protocol of copies from several sources, with `sender` in place of its own sender.
fn row(sender: fn(&Setup) -> BoxedSender) -> Row {
    let Row { name, title, paper, summary, experiments, frugal, many, options, receiver, .. } =
        *registry::of_many();
    Row { name, title, paper, summary, experiments, frugal, many, options, sender, receiver }
}

static UNASKED: LazyLock<Row> = LazyLock::new(|| row(|setup| Liar::of(setup, Lie::Unasked)));
static FAST: LazyLock<Row> = LazyLock::new(|| row(|setup| Liar::of(setup, Lie::Fast)));
static AGAIN: LazyLock<Row> = LazyLock::new(|| row(|setup| Liar::of(setup, Lie::Again)));

#[derive(Default)]
struct Listener(Mutex<Vec<(String, String)>>);

impl Observer for Listener {
    fn progress(&self, _: &Progress) {}
    fn notice(&self, notice: Notice) {
        if let Notice::SourceFailed { source, error } = notice {
            self.0.lock().unwrap().push((source, error.what));
        }
    }
    fn trust_new_server(&self, _: &str, _: &str) -> bool {
        true
    }
}

/// Bytes of the object that three sources have. A third of these bytes is enough to judge a source,
/// even if much of the flood is lost.
const LEN: u64 = 90_000_000;
/// Bytes of an honest source's object, if each source has a different one.
const LEN_OF_PART: u64 = 36_000_000;
/// The liar's object is this many times as long, so the liar is still sending when it is detected.
const LONGER: usize = 4;
/// Maximum bytes that may arrive from a liar with its own object before it is excluded: half of
/// this object.
const OF_ITS_OWN: u64 = LEN_OF_PART * LONGER as u64 / 2;
/// Maximum bytes that may arrive from a lying replica before it is excluded: half of one source's
/// third of the object.
const OF_A_THIRD: u64 = LEN / 6;

/// Copies one object from three replicas, or a different object from each of three servers. The
/// first server lies. Checks that this server is excluded for the reason `of` before more than
/// `most` of its bytes have arrived.
fn copy_with_liar(
    lies: fn(&str) -> Option<&'static Row>,
    replicas: bool,
    of: &str,
    most: u64,
) -> Summary {
    let scratch = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let path = scratch.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (here, client) = (folder("here"), folder("client"));
    let id = Identity::load_or_create(&client).unwrap().id().to_string();
    let len = if replicas { LEN } else { LEN_OF_PART };
    let content: Vec<u8> = (0..len).map(|at| ((at * at) >> 9) as u8).collect();
    let mut handles = Vec::new();
    let start = |number: usize| {
        let root = folder(&format!("root{number}"));
        let name = if replicas { "x".to_owned() } else { format!("x{number}") };
        let is_longer = number == 0 && !replicas;
        let longer = if is_longer { content.repeat(LONGER) } else { Vec::new() };
        fs::write(root.join(&name), if is_longer { &longer } else { &content }).unwrap();
        let config = folder(&format!("server{number}"));
        let protocols = if number == 0 { lies } else { registry::find };
        let (port, handle) = server(protocols, &root, &config, id.clone());
        handles.push(handle);
        Location::Daemon { host: "127.0.0.1".into(), port, path: name.into() }
    };
    let sources: Vec<Location> = (0..3).map(start).collect();
    let liar = sources[0].to_string();
    let destination = if replicas { here.join("x") } else { here.clone() };
    let options = CopyOptions {
        replicas,
        rate: Some(Rate::from_mbps(60)),
        ..options(&client, sources, &destination)
    };
    let listener = Arc::new(Listener::default());
    let summary = copy(options, listener.clone(), Cancel::default()).unwrap();
    drop(handles);
    for name in if replicas { &["x"][..] } else { &["x1", "x2"] } {
        assert!(fs::read(here.join(name)).unwrap() == content, "{name} differs");
    }
    let excluded = listener.0.lock().unwrap().clone();
    let [(named, why)] = &excluded[..] else { panic!("{excluded:?}") };
    assert!(*named == liar && why.contains(of), "{excluded:?}");
    assert_eq!(summary.failed_sources, 1);
    assert!(summary.sources[1..].iter().all(|row| row.refused == 0), "{:?}", summary.sources);
    assert_eq!(summary.receiver.refused, summary.sources[0].refused);
    // The liar was excluded before it had sent everything, and the other sources sent the rest.
    let brought: Vec<u64> = summary.sources.iter().map(|row| row.received_bytes).collect();
    assert!(brought[0] <= most, "{brought:?}");
    // Chunks of the excluded source that still waited for the writer are in no source's
    // `received_bytes`, so the others need not have delivered all that the liar had not.
    let due = if replicas { LEN - most } else { 2 * LEN_OF_PART };
    assert!(brought[1..].iter().sum::<u64>() >= due, "{brought:?}");
    summary
}

fn unasked(name: &str) -> Option<&'static Row> {
    (name == UNASKED.name).then_some(&*UNASKED)
}

#[test]
fn a_sender_of_unrequested_blocks_is_named_and_excluded_and_the_blocks_are_counted() {
    let summary = copy_with_liar(unasked, false, "useless data", OF_ITS_OWN);
    assert!(summary.sources[0].refused > 1_500, "{:?}", summary.sources);
}

#[test]
fn a_replica_that_sends_other_sources_blocks_is_excluded_and_the_others_deliver_them() {
    copy_with_liar(unasked, true, "useless data", OF_A_THIRD);
}

#[test]
fn a_replica_that_sends_each_block_ten_times_is_excluded_and_the_copy_succeeds() {
    let again = |name: &str| (name == AGAIN.name).then_some(&*AGAIN);
    copy_with_liar(again, true, "useless data", OF_A_THIRD);
}

#[test]
fn a_sender_at_ten_times_the_requested_rate_is_named_and_excluded() {
    // If it were not excluded, the fast replica would send most of the object.
    for (replicas, most) in [(false, OF_ITS_OWN), (true, LEN * 2 / 3)] {
        let fast = |name: &str| (name == FAST.name).then_some(&*FAST);
        copy_with_liar(fast, replicas, "faster than this host requests", most);
    }
}
