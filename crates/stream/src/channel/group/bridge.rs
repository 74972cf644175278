//! The bridge between a room and its multicast group, at the server. An epoch is the time during
//! which the members have the same keys; it gives each sender a number. A new epoch begins after a
//! member has left, or when the numbers are used up.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::multicast::Group;
use longhaul_net::sealing::keys::{Suite, has_fast_aes};
use longhaul_proto::channel::{Code, Cursor, MAX_SENDERS, Message, Mode, Taken};
use longhaul_proto::share::{Key, Prefix};
use longhaul_session::{Error, Kind, PeerId, random_u64, when};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::author::Author;
use super::ears::{Ears, Received};
use super::epoch::{Epoch, SERVER};
use super::voice::Voice;
use crate::channel::messages;
use crate::channel::outbound::until;
use crate::channel::rooms::{Charge, Published, Role, Rooms, Seat};
use crate::channel::stamp;
use crate::send::ethernet;

/// Delay of the new epoch after a member's goodbye. All members that leave meanwhile share one new
/// epoch.
const SOON: Duration = Duration::from_secs(1);
/// Delay of the new epoch after a member is lost without a goodbye: short, because the server may
/// have withdrawn the member's right. Also the minimum length of an epoch, unless its sender
/// numbers are used up.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Maximum number of sending members: an epoch has at least two numbers for each.
const SPEAKING: u32 = MAX_SENDERS / 2 - 1;
/// Maximum number of messages or datagrams handled in one direction before the other direction has
/// its turn.
const TURN: usize = 64;

pub(super) struct Sender {
    author: Author,
    origin: u64,
    /// Messages that the room has accepted.
    pub(super) taken: Cell<u64>,
    /// Messages dropped for lack of memory.
    dropped: Cell<u64>,
    /// Messages lost in all epochs.
    lost: Cell<u64>,
}

impl Sender {
    pub(super) fn new(author: Author, origin: u64) -> Sender {
        let (taken, dropped, lost) = Default::default();
        Sender { author, origin, taken, dropped, lost }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.get().saturating_add(self.lost.get())
    }
}

pub(crate) struct Bridge {
    group: Group,
    state: RefCell<State>,
    epochs: watch::Sender<u64>,
    /// Notifies that `due` has changed.
    ended: Notify,
}

struct State {
    epoch: Epoch,
    /// The number of the next sender; no epoch uses a number twice.
    next: u32,
    speaking: u32,
    /// Senders of this and the previous epoch, by epoch and number. The cell has the part
    /// of [`Sender::lost`] that was lost under this number.
    senders: BTreeMap<(u64, u32), (Rc<Sender>, Cell<u64>)>,
    began: Instant,
    due: Option<Instant>,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Bridge {
    pub(super) fn new(group: Group) -> Bridge {
        let aes = if has_fast_aes() { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 };
        let state = State {
            epoch: Epoch::new(1, aes),
            next: SERVER + 1,
            speaking: 0,
            senders: BTreeMap::new(),
            began: Instant::now(),
            due: None,
        };
        let (epochs, ended) = (watch::channel(1).0, Notify::new());
        Bridge { group, state: RefCell::new(state), epochs, ended }
    }

    pub(super) fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    /// Adds a member; `sender` if it sends.
    pub(super) fn admit(self: &Rc<Self>, sender: Option<Sender>) -> Result<Member, Error> {
        let mut state = self.state.borrow_mut();
        if sender.is_some() {
            if state.speaking >= SPEAKING {
                let what =
                    format!("the group of this room has {} senders, the maximum", state.speaking);
                return Err(Error::new(Kind::Unreachable, what)
                    .advise("use another mode, or try again later"));
            }
            state.speaking += 1;
        }
        let (bridge, sender) = (self.clone(), sender.map(Rc::new));
        Ok(Member { bridge, sender, has_left: Cell::new(false) })
    }

    /// Begins a new epoch, without the members that have left.
    pub(super) fn renew(&self) {
        let mut state = self.state.borrow_mut();
        let number = state.epoch.number + 1;
        state.epoch = Epoch::new(number, state.epoch.suite());
        (state.next, state.began, state.due) = (SERVER + 1, Instant::now(), None);
        state.senders.retain(|(epoch, _), _| *epoch + 1 >= number);
        drop(state);
        self.epochs.send_replace(number);
    }

    fn end_epoch(&self, within: Duration) {
        let mut state = self.state.borrow_mut();
        let due = (Instant::now() + within).max(state.began + AT_ONCE);
        state.due = Some(state.due.map_or(due, |before| before.min(due)));
        drop(state);
        self.ended.notify_one();
    }

    async fn due(&self) {
        loop {
            let due = self.state.borrow().due;
            tokio::select! {
                () = self.ended.notified() => {}
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await },
                    if due.is_some() => return,
            }
        }
    }

    fn received(&self, seat: &Seat, via: u64, received: Received) {
        let sender = self.state.borrow().senders.get(&received.sender).map(|(it, _)| it.clone());
        let Some(sender) = sender else { return };
        // Any subscriber could have sealed the message.
        if !sender.author.made(&received.signed, &received.code) {
            return;
        }
        let born = stamp() as i64;
        let message = Message { origin: sender.origin, hops: 0, via, born, ..received.message };
        let count = match seat.room.publish(message) {
            Published::New => &sender.taken,
            Published::Full => &sender.dropped,
            Published::Old => return,
        };
        count.set(count.get() + 1);
    }

    /// Updates each sender's losses in this and the previous epoch. The previous epoch's losses may
    /// change too, because its messages may still arrive.
    fn count(&self, ears: &Ears) {
        for (number, (sender, counted)) in &self.state.borrow().senders {
            if let Some(lost) = ears.lost_of(*number) {
                let others = sender.lost.get().saturating_sub(counted.replace(lost));
                sender.lost.set(others.saturating_add(lost));
            }
        }
    }
}

/// The server's record of a member. A new epoch begins soon after the record is dropped.
pub(super) struct Member {
    bridge: Rc<Bridge>,
    pub(super) sender: Option<Rc<Sender>>,
    has_left: Cell<bool>,
}

impl Member {
    /// Returns the group and the keys of the current epoch for this member. A sender gets a new
    /// number each time.
    pub(super) fn group(&self) -> messages::Group {
        let Bridge { group, state, .. } = &*self.bridge;
        let Some(sender) = &self.sender else {
            return state.borrow().epoch.for_subscriber(group);
        };
        if state.borrow().next >= MAX_SENDERS {
            self.bridge.renew();
        }
        let mut state = state.borrow_mut();
        let number = state.next;
        state.next += 1;
        let epoch = state.epoch.number;
        state.senders.insert((epoch, number), (sender.clone(), Cell::new(0)));
        state.epoch.for_sender(group, number, sender.origin)
    }

    pub(super) fn leave(&self) {
        self.has_left.set(true);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.bridge.state.borrow_mut();
        if let Some(own) = &self.sender {
            state.speaking -= 1;
            state.senders.retain(|_, (sender, _)| !Rc::ptr_eq(sender, own));
        }
        drop(state);
        self.bridge.end_epoch(if self.has_left.get() { SOON } else { AT_ONCE });
    }
}

/// A running bridge: its socket, and its two seats in the room.
pub(super) struct Running {
    bridge: Rc<Bridge>,
    from: Seat,
    to: Seat,
    socket: UdpSocket,
    charge: Box<dyn Charge>,
}

impl Running {
    /// Joins the group of `bridge` for the room `name`.
    pub(super) fn new(
        bridge: Rc<Bridge>,
        rooms: &Rc<Rooms>,
        me: PeerId,
        name: &Key,
    ) -> Result<Running, Error> {
        let failed = |what: String| Error::new(Kind::Unreachable, what);
        let socket = bridge.group.join();
        let socket = socket.map_err(|error| failed(error.to_string()))?;
        let socket = UdpSocket::from_std(socket).map_err(|error| failed(error.to_string()))?;
        let from = rooms.enter(name, me, Role::Subscriber)?;
        let to = rooms.enter(name, me, Role::Sender)?;
        Ok(Running { bridge, from, to, socket, charge: rooms.charge(me) })
    }

    /// Passes messages until the server ends.
    pub(super) async fn run(mut self) {
        let bridge = self.bridge.clone();
        let via = random_u64().max(1);
        let room = self.from.room.clone();
        let mut changes = room.changes();
        let mut cursor = room.read(|log| Cursor::at(log.next(), Mode::Reliable, Prefix::ALL, via));
        let mut epochs = bridge.epochs();
        let epoch = bridge.state.borrow().epoch.clone();
        let to: SocketAddr = bridge.group.address.address();
        let seal = epoch.of(SERVER).sealer();
        let mut voice = Voice::new(to, ethernet(None), Code::None, seal, None);
        let mut ears = Ears::new(epoch, Some(SERVER));
        let mut bytes = vec![0; u16::MAX.into()];
        loop {
            changes.mark_unchanged();
            let mut sent = 0;
            while sent < TURN
                && let Some(taken) = room.read(|log| cursor.take(log))
            {
                sent += 1;
                // Messages are lost if the group is slower than the room.
                if let Taken::Message(message) = taken {
                    voice.send(&self.socket, &message).await;
                }
            }
            tokio::select! {
                biased;
                // Cannot fail: this task keeps the bridge and the room.
                _ = epochs.changed() => {
                    let epoch = bridge.state.borrow().epoch.clone();
                    voice.renew(epoch.of(SERVER).sealer(), None, false);
                    // The bridge handles a new epoch before it reads the socket, so `ears` holds
                    // no datagrams of the new epoch.
                    ears.renew(clock::now(), epoch, &mut Vec::new());
                }
                () = bridge.due() => bridge.renew(),
                _ = self.socket.readable() => self.hear(&mut ears, via, &mut bytes),
                () = tokio::task::yield_now(), if sent == TURN => {}
                _ = changes.changed() => {}
                () = when(voice.next_wakeup().map(until)) => voice.flush(&self.socket).await,
            }
        }
    }

    /// Handles up to [`TURN`] waiting datagrams.
    fn hear(&mut self, ears: &mut Ears, via: u64, bytes: &mut [u8]) {
        let mut received = Vec::new();
        for _ in 0..TURN {
            let Ok(len) = self.socket.try_recv(bytes) else { break };
            ears.take(clock::now(), &bytes[..len], &mut received);
        }
        if !self.charge.set(ears.held()) {
            ears.clear();
        }
        for received in received {
            self.bridge.received(&self.to, via, received);
        }
        self.bridge.count(ears);
    }
}
