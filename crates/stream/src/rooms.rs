//! The streams of a server. A room is a stream with its sender, if any, and its receivers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use longhaul_net::sealing::keys::Suite;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::fec::Losses;
use longhaul_proto::share::Key;
use longhaul_proto::stream::chain;
use longhaul_proto::time::Span;
use longhaul_proto::units::LossRatio;
use longhaul_session::{Error, Exporter, Kind, PeerId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::ingress::Came;
use crate::link::LeastRtt;
use crate::messages::{Again, State, Way};
use crate::place::Place;
use crate::relay::{Outlet, Work};
use crate::terms::{Seen, Terms, keys, micros, written};

/// Maximum receivers of one stream.
const RECEIVERS: usize = 256;
/// Maximum receivers of all streams of a server.
const ALL_RECEIVERS: usize = 1_024;
/// Maximum receivers of one id, in all streams.
const RECEIVERS_OF_ID: usize = 256;
/// Maximum number of streams with a sender.
const SENDERS: usize = 64;
/// Maximum number of streams that one id sends.
const SENDERS_OF_ID: usize = 16;

/// Maximum number of a receiver's requests for one frame.
const REQUESTS: u8 = 16;
/// A receiver may request only symbols (parts of a frame or repairs, one in each datagram) of this
/// many newest frames.
const RECENT: u32 = 256;

pub(crate) struct Live {
    pub(crate) peer: PeerId,
    pub(crate) run: u64,
    pub(crate) terms: Terms,
    pub(crate) relay: Sender<Work>,
    pub(crate) came: Arc<Came>,
    pub(crate) rtt: LeastRtt,
    pub(crate) requests: mpsc::Sender<Again>,
    /// Ends the stream of this sender when a newer sender replaces this sender.
    pub(crate) replaced: oneshot::Sender<()>,
}

pub(crate) struct Member {
    peer: PeerId,
    pub(crate) place: Arc<Place>,
    pub(crate) exporter: Exporter,
    pub(crate) suite: Suite,
    pub(crate) flow: FlowId,
    pub(crate) rtt: LeastRtt,
    pub(crate) seen: Option<Seen>,
    /// The number of the newest keys for the data to this member; 0 before its first sender.
    epoch: u64,
    /// The number of frames, if the stream ended while the receiver was in the room.
    ended: Option<u32>,
    /// Requests for each recent frame.
    requests: BTreeMap<u32, u8>,
}

impl Member {
    pub(crate) fn new(
        peer: PeerId,
        place: Arc<Place>,
        (exporter, suite, flow): (Exporter, Suite, FlowId),
        rtt: LeastRtt,
    ) -> Member {
        Member {
            peer,
            place,
            exporter,
            suite,
            flow,
            rtt,
            seen: None,
            epoch: 0,
            ended: None,
            requests: BTreeMap::new(),
        }
    }

    fn is_ready(&self) -> bool {
        self.epoch > 0 && self.place.epoch() == self.epoch
    }

    /// Makes the relay forward `live` to this member, under new keys.
    fn attach(&mut self, number: u64, live: &Live) {
        self.epoch += 1;
        self.ended = None;
        self.requests.clear();
        let keys = keys(&self.exporter, self.suite, self.epoch, self.flow);
        let (place, data) = (self.place.clone(), keys.sending_end().data);
        // Cannot fail: the relay's thread runs until `live.relay` is dropped.
        let _ =
            live.relay.send(Work::Add(number, Outlet { place, data, withheld: VecDeque::new() }));
    }
}

/// A stream in the status of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The stream's name.
    pub name: String,
    /// The id of the stream's sender, if there is one.
    pub sender: Option<PeerId>,
    /// Number of receivers, including those that wait for a sender.
    pub receivers: u64,
    /// Frames (or payloads) of the current sender so far.
    pub frames: u64,
    /// Datagrams that arrived from the current sender.
    pub datagrams: u64,
}

struct Room {
    live: Option<(u64, Live)>,
    members: BTreeMap<u64, Member>,
    changed: watch::Sender<()>,
}

impl Default for Room {
    fn default() -> Room {
        Room { live: None, members: BTreeMap::new(), changed: watch::channel(()).0 }
    }
}

#[derive(Default)]
pub(crate) struct Rooms {
    rooms: RefCell<BTreeMap<Key, Room>>,
    numbers: Cell<u64>,
}

fn full(what: &str) -> Error {
    Error::new(Kind::Unreachable, format!("the server's limit allows no further {what}"))
        .advise("try again later")
}

fn full_of_id(count: usize, what: &str) -> Error {
    let what = format!("this id has {count} {what} at the server, which is the limit");
    Error::new(Kind::Unreachable, what).advise("end some of them")
}

impl Rooms {
    fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// Checks that `peer` may start the stream `name`.
    pub(crate) fn may_begin(&self, name: &Key, peer: PeerId) -> Result<(), Error> {
        let rooms = self.rooms.borrow();
        if let Some((_, other)) = rooms.get(name).and_then(|room| room.live.as_ref()) {
            if other.peer == peer {
                return Ok(());
            }
            let what = format!("{} already sends the stream '{name}'", other.peer);
            return Err(Error::new(Kind::Unreachable, what).advise("send by another name"));
        }
        let senders = || rooms.values().filter_map(|room| room.live.as_ref());
        let own = senders().filter(|(_, live)| live.peer == peer).count();
        if own >= SENDERS_OF_ID {
            return Err(full_of_id(own, "streams"));
        }
        if senders().count() >= SENDERS {
            return Err(full("stream"));
        }
        Ok(())
    }

    /// Starts a stream, which [`Rooms::may_begin`] has admitted. Replaces an existing sender, which
    /// has the same id.
    pub(crate) fn begin(&self, name: &Key, live: Live) -> (u64, watch::Receiver<()>) {
        let mut rooms = self.rooms.borrow_mut();
        let room = rooms.entry(name.clone()).or_default();
        let number = self.number();
        for (member_number, member) in &mut room.members {
            member.attach(*member_number, &live);
        }
        if let Some((_, other)) = room.live.replace((number, live)) {
            let _ = other.replaced.send(());
        }
        room.changed.send_replace(());
        (number, room.changed.subscribe())
    }

    pub(crate) fn finish(&self, name: &Key, number: u64, frames: u32) {
        if let Some(room) = self.rooms.borrow_mut().get_mut(name)
            && room.live.as_ref().is_some_and(|(live, _)| *live == number)
        {
            room.members.values_mut().for_each(|member| member.ended = Some(frames));
            room.changed.send_replace(());
        }
    }

    pub(crate) fn remove_sender(&self, name: &Key, number: u64) {
        let mut rooms = self.rooms.borrow_mut();
        if let Some(room) = rooms.get_mut(name)
            && room.live.as_ref().is_some_and(|(live, _)| *live == number)
        {
            room.live = None;
            room.changed.send_replace(());
            tidy(&mut rooms, name);
        }
    }

    /// Adds a receiver to a stream, which may start later.
    pub(crate) fn join(
        &self,
        name: &Key,
        mut member: Member,
    ) -> Result<(u64, watch::Receiver<()>), Error> {
        let mut rooms = self.rooms.borrow_mut();
        let all = rooms.values().flat_map(|room| room.members.values());
        let (own, all) = all.fold((0, 0), |(own, all), other| {
            (own + usize::from(other.peer == member.peer), all + 1)
        });
        if own >= RECEIVERS_OF_ID {
            return Err(full_of_id(own, "receivers of streams"));
        }
        let room = rooms.entry(name.clone()).or_default();
        if room.members.len() >= RECEIVERS || all >= ALL_RECEIVERS {
            tidy(&mut rooms, name);
            return Err(full("receiver"));
        }
        let number = self.number();
        if let Some((_, live)) = &room.live {
            member.attach(number, live);
        }
        room.members.insert(number, member);
        room.changed.send_replace(());
        Ok((number, room.changed.subscribe()))
    }

    pub(crate) fn leave(&self, name: &Key, number: u64) {
        let mut rooms = self.rooms.borrow_mut();
        if let Some(room) = rooms.get_mut(name) {
            room.members.remove(&number);
            if let Some((_, live)) = &room.live {
                let _ = live.relay.send(Work::Remove(number));
            }
            room.changed.send_replace(());
            tidy(&mut rooms, name);
        }
    }

    /// Notifies a room of a receiver's first control datagram, or new keys.
    pub(crate) fn notify(&self, name: &Key) {
        if let Some(room) = self.rooms.borrow().get(name) {
            room.changed.send_replace(());
        }
    }

    /// Passes a receiver's request for lost symbols on to the sender, if [`may_request`] allows it.
    /// Drops the request if many wait; the receiver repeats it.
    pub(crate) fn request(&self, name: &Key, number: u64, again: Again) {
        let mut rooms = self.rooms.borrow_mut();
        let Some(Room { live: Some((_, live)), members, .. }) = rooms.get_mut(name) else { return };
        let member = members.get_mut(&number);
        let next = live.came.next();
        if member.is_some_and(|member| may_request(&mut member.requests, again.frame, next)) {
            let _ = live.requests.try_send(Again { receiver: number as u32, ..again });
        }
    }

    pub(crate) fn report(&self, name: &Key, number: u64, seen: Seen) {
        let mut rooms = self.rooms.borrow_mut();
        let member = rooms.get_mut(name).and_then(|room| room.members.get_mut(&number));
        if let Some(member) = member {
            member.seen = Some(seen);
        }
    }

    pub(crate) fn state(&self, name: &Key, number: u64) -> State {
        let rooms = self.rooms.borrow();
        let Some(room) = rooms.get(name) else { return State::default() };
        let Some(member) = room.members.get(&number) else { return State::default() };
        let state = State { withheld: member.place.withheld(), ..State::default() };
        match (&room.live, member.ended) {
            (_, Some(frames)) => State { phase: 2, frame: frames, ..state },
            (None, None) => state,
            // The receiver's address is not known yet, so the receiver must count no frames as
            // missed.
            (Some(_), None) if !member.place.is_known() => state,
            (Some((_, live)), None) => State {
                phase: 1,
                run: live.run,
                epoch: member.epoch,
                symbol: live.terms.symbol.into(),
                per_second_milli: (live.terms.per_second * 1_000.0).round() as u64,
                deadline_micros: micros(live.terms.deadline),
                group: live.terms.group,
                sender_micros: micros(live.rtt.now()),
                frame: live.came.next(),
                ..state
            },
        }
    }

    pub(crate) fn list(&self) -> Vec<Listed> {
        let rooms = self.rooms.borrow();
        let listed = rooms.iter().map(|(name, room)| {
            let live = room.live.as_ref().map(|(_, live)| live);
            Listed {
                name: name.as_str().to_owned(),
                sender: live.map(|live| live.peer),
                receivers: room.members.len() as u64,
                frames: live.map_or(0, |live| live.came.next().into()),
                datagrams: live.map_or(0, |live| live.came.datagrams()),
            }
        });
        listed.collect()
    }

    /// Returns the measurements of the path to all receivers, for the sender.
    pub(crate) fn way(&self, name: &Key, number: u64) -> Way {
        let rooms = self.rooms.borrow();
        let Some(room) = rooms.get(name) else { return Way::default() };
        let Some((_, live)) = room.live.as_ref().filter(|(live, _)| *live == number) else {
            return Way::default();
        };
        let ours = live.rtt.now();
        let trips: Vec<Span> = room.members.values().map(|member| member.rtt.now()).collect();
        let seen = || room.members.values().filter_map(|member| member.seen);
        let lossless = Losses::independent(LossRatio::new(0.0).expect("a share"));
        let worst = seen().fold(lossless, |worst, seen| {
            Losses::bursty(
                if seen.losses.ratio().get() > worst.ratio().get() {
                    seen.losses.ratio()
                } else {
                    worst.ratio()
                },
                worst.burst().max(seen.losses.burst()),
            )
        });
        let (loss_ppm, burst_milli) = written(chain(live.came.losses(), worst));
        Way {
            receivers: room.members.values().filter(|member| member.is_ready()).count() as u32,
            nearest_micros: micros(ours + trips.iter().min().copied().unwrap_or(Span::ZERO)),
            farthest_micros: micros(ours + trips.iter().max().copied().unwrap_or(Span::ZERO)),
            loss_ppm,
            burst_milli,
            jitter_micros: seen().map(|seen| micros(seen.jitter)).max().unwrap_or(0),
            came: live.came.datagrams(),
            on_time: seen().fold(0, |sum, seen| u64::saturating_add(sum, seen.on_time)),
            missed: seen().fold(0, |sum, seen| u64::saturating_add(sum, seen.missed)),
            carried_bps: live.came.carried().as_bps(),
        }
    }
}

/// Counts a request for `frame`, and returns whether to pass it on. `next` is the stream's next
/// frame; `counts` has this receiver's requests for recent frames.
fn may_request(counts: &mut BTreeMap<u32, u8>, frame: u32, next: u32) -> bool {
    let oldest = next.saturating_sub(RECENT);
    *counts = counts.split_off(&oldest);
    if !(oldest..next).contains(&frame) {
        return false;
    }
    let count = counts.entry(frame).or_default();
    *count = count.saturating_add(1);
    *count <= REQUESTS
}

fn tidy(rooms: &mut BTreeMap<Key, Room>, name: &Key) {
    if rooms.get(name).is_some_and(|room| room.live.is_none() && room.members.is_empty()) {
        rooms.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use longhaul_session::RttWatch;

    use super::*;
    use crate::terms;

    fn live(peer: PeerId) -> Live {
        let terms = terms::terms(1_400, 1_000, 20_000, 100_000, 0).expect("they are valid");
        Live {
            peer,
            run: 1,
            terms,
            relay: std::sync::mpsc::channel().0,
            came: Arc::new(Came::new(&terms)),
            rtt: LeastRtt::new(RttWatch::once(None)),
            requests: mpsc::channel(1).0,
            replaced: oneshot::channel().0,
        }
    }

    #[test]
    fn one_id_may_send_a_quarter_of_all_streams_and_four_ids_may_send_all() {
        let (rooms, ids) = (Rooms::default(), [1, 2, 3, 4, 5].map(|id| PeerId([id; 32])));
        let name = |number: usize| Key::new(&format!("x/{number}")).expect("a key");
        let refused = |number, peer| {
            let refused = rooms.may_begin(&name(number), peer);
            refused.err().map(|error| error.what).unwrap_or_default()
        };
        for (number, peer) in (0..SENDERS).map(|number| (number, ids[number / SENDERS_OF_ID])) {
            assert_eq!(refused(number, peer), "");
            rooms.begin(&name(number), live(peer));
            if number + 1 == SENDERS_OF_ID {
                assert!(refused(number + 1, peer).contains("this id has 16 streams"));
                assert_eq!(refused(number, peer), "", "a takeover");
            }
        }
        assert!(refused(SENDERS, ids[4]).contains("allows no further stream"));
        rooms.remove_sender(&name(0), 1);
        assert_eq!([refused(SENDERS, ids[4]), refused(SENDERS, ids[0])], ["", ""]);
        assert!(refused(SENDERS, ids[1]).contains("this id has 16 streams"));
    }

    #[test]
    fn a_receiver_may_request_only_recent_frames_and_each_a_limited_number_of_times() {
        let mut requests = BTreeMap::new();
        let mut may = |frame, next| may_request(&mut requests, frame, next);
        assert!(!may(0, 0) && !may(10, 10) && !may(u32::MAX, 10));
        assert!((0..REQUESTS).all(|_| may(9, 10)) && !may(9, 10));
        assert!(may(10, 11) && !may(9, 11) && !may(10, 267) && !may(9, 1_000));
        assert!((0..1_000).all(|frame| may(frame, frame + 1)));
        assert_eq!(requests.len(), RECENT as usize);
    }
}
