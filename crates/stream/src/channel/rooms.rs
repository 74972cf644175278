//! The rooms of a server: each message that a client sends to a room goes to all subscribers of the
//! room.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use longhaul_proto::channel::{Limits, Log, MAX_HOPS, Message, Seen};
use longhaul_proto::share::Key;
use longhaul_session::{Error, Kind, PeerId};
use tokio::sync::watch;

/// Maximum number of senders for which a room detects repeated messages.
const ORIGINS: usize = 4_096;
/// How long a room without clients keeps the last messages of its keys, if no new room needs its
/// place.
const IDLE: Duration = Duration::from_secs(600);

/// Limits of a server's rooms.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RoomLimits {
    /// Maximum number of rooms.
    pub rooms: usize,
    /// Maximum number of existing rooms that one id has created.
    pub rooms_of_id: usize,
    /// Maximum number of clients in one room.
    pub clients: usize,
    /// Maximum number of clients of one id, in all rooms.
    pub clients_of_id: usize,
    /// Maximum number of messages for slow subscribers of a room.
    pub messages: usize,
    /// Maximum bytes of the messages for slow subscribers.
    pub bytes: usize,
    /// Maximum number of keys with a last message for late subscribers.
    pub keys: usize,
    /// Maximum bytes of the messages for late subscribers.
    pub key_bytes: usize,
}

impl Default for RoomLimits {
    /// Returns the defaults: 256 rooms, 64 of them of one id; 2,048 clients in one room, and 2,048
    /// of one id in all rooms. A room keeps at most 4,096 messages and 32 MiB for slow subscribers,
    /// and the last messages of at most 4,096 keys (17 MiB) for late subscribers.
    fn default() -> RoomLimits {
        let Limits { messages, bytes, keys, key_bytes } = Limits::default();
        RoomLimits {
            rooms: 256,
            rooms_of_id: 64,
            clients: 2_048,
            clients_of_id: 2_048,
            messages,
            bytes,
            keys,
            key_bytes,
        }
    }
}

impl RoomLimits {
    fn log(&self) -> Limits {
        let RoomLimits { messages, bytes, keys, key_bytes, .. } = *self;
        Limits { messages, bytes, keys, key_bytes }
    }
}

/// The memory account of messages, released on drop.
pub trait Charge {
    /// Sets the account to `bytes`, if there is enough memory; returns whether there is.
    fn set(&mut self, bytes: usize) -> bool;
}

/// A memory account without memory.
#[cfg(test)]
pub(super) struct NoMemory;

#[cfg(test)]
impl Charge for NoMemory {
    fn set(&mut self, bytes: usize) -> bool {
        bytes == 0
    }
}

/// Creates a memory account for an id.
pub type Charges = Rc<dyn Fn(PeerId) -> Box<dyn Charge>>;

/// The current state of a room.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RoomListed {
    /// The room's name.
    pub name: String,
    /// Number of senders.
    pub senders: u64,
    /// Number of subscribers.
    pub subscribers: u64,
    /// Number of messages so far.
    pub messages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Sender,
    Subscriber,
}

pub(super) struct Room {
    /// A random number of this room. Positions in rooms with different numbers are not comparable.
    pub(super) run: u64,
    state: RefCell<State>,
    changed: watch::Sender<()>,
    messages: Rc<Cell<u64>>,
}

struct State {
    log: Log,
    seen: Seen,
    charge: Box<dyn Charge>,
    owner: PeerId,
    senders: usize,
    subscribers: usize,
    /// Since when the room has had no client.
    idle: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// The message is in the room.
    New,
    /// The message is a repetition, or has passed too many links.
    Old,
    /// There is no memory for the message.
    Full,
}

impl Room {
    pub(super) fn publish(&self, message: Message) -> Published {
        let state = &mut *self.state.borrow_mut();
        if message.hops > MAX_HOPS || state.seen.has(message.origin, message.number) {
            return Published::Old;
        }
        // The log keeps a message twice: among the newest, and as the last of its key.
        let cost = 2 * message.cost();
        if !state.charge.set(state.log.cost() + cost) {
            let fits = state.charge.set(cost);
            while fits && !state.charge.set(state.log.cost() + cost) {
                let now = state.log.cost();
                state.log.shrink(now / 2);
            }
            if !fits {
                return Published::Full;
            }
        }
        // Mark the message as known only now: after `Full` the sender may send it again.
        state.seen.is_new(message.origin, message.number);
        state.log.push(message);
        self.messages.update(|count| count + 1);
        state.charge.set(state.log.cost());
        self.changed.send_replace(());
        Published::New
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Log) -> T) -> T {
        read(&self.state.borrow().log)
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// A client's place in a room, until drop.
pub(super) struct Seat {
    rooms: Rc<Rooms>,
    pub(super) room: Rc<Room>,
    peer: PeerId,
    role: Role,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.room.state.borrow_mut();
        match self.role {
            Role::Sender => state.senders -= 1,
            Role::Subscriber => state.subscribers -= 1,
        }
        if state.senders + state.subscribers == 0 {
            state.idle = Some(Instant::now());
            // Without clients, keep only each key's last message.
            let kept = state.log.kept_cost();
            state.log.shrink(kept);
            let cost = state.log.cost();
            state.charge.set(cost);
        }
        let mut clients = self.rooms.clients.borrow_mut();
        if let Some(count) = clients.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.peer);
            }
        }
    }
}

pub(super) struct Rooms {
    limits: RoomLimits,
    charges: Charges,
    rooms: RefCell<BTreeMap<Key, Rc<Room>>>,
    /// Senders and subscribers of each id.
    clients: RefCell<BTreeMap<PeerId, usize>>,
    messages: Rc<Cell<u64>>,
    random: fn() -> u64,
}

fn full(what: &str, advice: &str) -> Error {
    Error::new(Kind::Unreachable, what).advise(advice)
}

impl Rooms {
    pub(super) fn new(limits: RoomLimits, charges: Charges, random: fn() -> u64) -> Rc<Rooms> {
        let (rooms, clients, messages) = Default::default();
        Rc::new(Rooms { limits, charges, rooms, clients, messages, random })
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages.get()
    }

    pub(super) fn charge(&self, peer: PeerId) -> Box<dyn Charge> {
        (self.charges)(peer)
    }

    /// Enters the room `name`; creates it if missing.
    pub(super) fn enter(
        self: &Rc<Rooms>,
        name: &Key,
        peer: PeerId,
        role: Role,
    ) -> Result<Seat, Error> {
        let mut clients = self.clients.borrow_mut();
        let own = clients.get(&peer).copied().unwrap_or(0);
        if own >= self.limits.clients_of_id {
            let what = format!("this id has {own} channels at the server, which is the limit");
            return Err(full(&what, "close some of them"));
        }
        let room = self.find(name, peer)?;
        let mut state = room.state.borrow_mut();
        if state.senders + state.subscribers >= self.limits.clients {
            let what = format!("the room '{name}' already has {} clients", self.limits.clients);
            return Err(full(&what, "use another room"));
        }
        match role {
            Role::Sender => state.senders += 1,
            Role::Subscriber => state.subscribers += 1,
        }
        state.idle = None;
        drop(state);
        clients.insert(peer, own + 1);
        drop(clients);
        Ok(Seat { rooms: self.clone(), room, peer, role })
    }

    /// Drops the rooms that have had no client for [`IDLE`].
    pub(super) fn expire(&self, now: Instant) {
        let is_used = |since: Instant| now.saturating_duration_since(since) < IDLE;
        self.rooms.borrow_mut().retain(|_, room| room.state.borrow().idle.is_none_or(is_used));
    }

    fn find(&self, name: &Key, owner: PeerId) -> Result<Rc<Room>, Error> {
        self.expire(Instant::now());
        let mut rooms = self.rooms.borrow_mut();
        if let Some(room) = rooms.get(name) {
            return Ok(room.clone());
        }
        let owned = rooms.values().filter(|room| room.state.borrow().owner == owner).count();
        if owned >= self.limits.rooms_of_id {
            drop_idle(&mut rooms, Some(owner)).ok_or_else(|| {
                let what = format!("this id has created {owned} rooms, which is the limit");
                full(&what, "leave some of them")
            })?;
        }
        if rooms.len() >= self.limits.rooms {
            let what = "the server has reached its limit of rooms";
            drop_idle(&mut rooms, None).ok_or_else(|| full(what, "try again later"))?;
        }
        let state = RefCell::new(State {
            log: Log::new(self.limits.log()),
            seen: Seen::new(ORIGINS),
            charge: (self.charges)(owner),
            owner,
            senders: 0,
            subscribers: 0,
            idle: Some(Instant::now()),
        });
        let run = (self.random)().max(1);
        let (changed, messages) = (watch::channel(()).0, self.messages.clone());
        let room = Rc::new(Room { run, state, changed, messages });
        rooms.insert(name.clone(), room.clone());
        Ok(room)
    }

    pub(super) fn list(&self) -> Vec<RoomListed> {
        let rooms = self.rooms.borrow();
        let listed = rooms.iter().map(|(name, room)| {
            let state = room.state.borrow();
            RoomListed {
                name: name.as_str().to_owned(),
                senders: state.senders as u64,
                subscribers: state.subscribers as u64,
                messages: state.log.next(),
            }
        });
        listed.collect()
    }
}

/// Drops the room that has had no client for the longest time: a room of `owner`, or of any id.
fn drop_idle(rooms: &mut BTreeMap<Key, Rc<Room>>, owner: Option<PeerId>) -> Option<()> {
    let idle = rooms.iter().filter_map(|(name, room)| {
        let state = room.state.borrow();
        let is_owned = owner.is_none_or(|owner| state.owner == owner);
        state.idle.filter(|_| is_owned).map(|since| (since, name.clone()))
    });
    let (_, name) = idle.min()?;
    rooms.remove(&name).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_proto::channel::{Cursor, Mode, Taken};
    use longhaul_proto::share::Prefix;

    use super::*;

    struct Memory(Rc<Cell<usize>>, usize);

    impl Charge for Memory {
        fn set(&mut self, bytes: usize) -> bool {
            let free = self.0.get() + self.1;
            if bytes > free {
                return false;
            }
            self.0.set(free - bytes);
            self.1 = bytes;
            true
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            self.set(0);
        }
    }

    fn rooms(limits: RoomLimits, memory: usize) -> (Rc<Rooms>, Rc<Cell<usize>>) {
        let free = Rc::new(Cell::new(memory));
        let charges = free.clone();
        let charges: Charges = Rc::new(move |_| Box::new(Memory(charges.clone(), 0)));
        (Rooms::new(limits, charges, || 5), free)
    }

    fn message(number: u64, key: &str, len: usize) -> Message {
        let (key, bytes) = (Key::new(key).ok(), Arc::from(vec![0; len]));
        Message { origin: 1, number, at: 0, born: 0, hops: 0, via: 0, key, bytes }
    }

    fn key(name: &str) -> Key {
        Key::new(name).expect("a key")
    }

    const ONE: PeerId = PeerId([1; 32]);
    const TWO: PeerId = PeerId([2; 32]);

    #[test]
    fn rooms_are_limited_in_all_and_per_id_and_clients_are_limited_per_room_and_per_id() {
        let limits = RoomLimits {
            rooms: 3,
            rooms_of_id: 2,
            clients: 2,
            clients_of_id: 3,
            ..RoomLimits::default()
        };
        let (rooms, _) = rooms(limits, 1 << 20);
        let enter = |name: &str, peer| rooms.enter(&key(name), peer, Role::Subscriber);
        let why = |refused: Result<Seat, Error>| {
            refused.err().map(|error| error.what).unwrap_or_default()
        };
        let (a, b) = (enter("a", ONE).unwrap(), enter("b", ONE).unwrap());
        assert!(why(enter("c", ONE)).contains("created 2 rooms"));
        let a2 = enter("a", TWO).unwrap();
        assert!(why(enter("a", TWO)).contains("already has 2 clients"));
        let (c, b2) = (enter("c", TWO).unwrap(), enter("b", TWO).unwrap());
        assert!(why(enter("c", TWO)).contains("has 3 channels"));
        drop((b2, a2));
        assert!(why(enter("d", TWO)).contains("limit of rooms"));
        drop(b);
        let d = enter("d", TWO).unwrap();
        let names: Vec<String> = rooms.list().into_iter().map(|room| room.name).collect();
        assert_eq!(names, ["a", "c", "d"]);
        drop((a, c, d));
    }

    #[test]
    fn full_memory_drops_the_oldest_messages_and_a_dropped_room_releases_all_its_memory() {
        let (rooms, free) = rooms(RoomLimits::default(), 100_000);
        let seat = rooms.enter(&key("a"), ONE, Role::Sender).unwrap();
        let room = seat.room.clone();
        let mut cursor = room.read(|log| Cursor::new(log, Mode::Reliable, Prefix::ALL, 0));
        for number in 1..=50 {
            assert_eq!(room.publish(message(number, "", 5_000)), Published::New);
        }
        assert_eq!(room.publish(message(50, "", 5_000)), Published::Old);
        assert_eq!(room.publish(message(51, "", 200_000)), Published::Full);
        assert_eq!(room.publish(message(51, "", 1)), Published::New, "it was refused before");
        assert_eq!(room.publish(Message { hops: 17, ..message(52, "", 1) }), Published::Old);
        let held = room.read(Log::cost);
        assert!(held <= 100_000 && free.get() == 100_000 - held);
        room.publish(message(53, "key", 10));
        let taken = room.read(|log| cursor.take(log));
        assert!(matches!(taken, Some(Taken::Lost(_))), "{taken:?}");
        drop(seat);
        // Without clients only the last messages stay: one with the key, and one without a key.
        assert_eq!(room.read(Log::keys), 2);
        assert!(free.get() > 90_000);
        rooms.rooms.borrow_mut().clear();
        drop(room);
        assert_eq!(free.get(), 100_000);
    }

    #[test]
    fn a_room_without_clients_is_dropped_after_ten_minutes_and_one_with_a_client_stays() {
        let (rooms, free) = rooms(RoomLimits::default(), 100_000);
        let enter = |name: &str| rooms.enter(&key(name), ONE, Role::Sender).unwrap();
        let (seat, _used) = (enter("a"), enter("b"));
        seat.room.publish(message(1, "key", 5_000));
        drop(seat);
        let listed = || rooms.list().into_iter().map(|room| room.name).collect::<Vec<_>>();
        let since = rooms.rooms.borrow()[&key("a")].state.borrow().idle.unwrap();
        rooms.expire(since + IDLE - Duration::from_nanos(1));
        assert_eq!(listed(), ["a", "b"]);
        assert!(free.get() < 100_000);
        rooms.expire(since + IDLE);
        assert_eq!((listed(), free.get()), (vec!["b".to_owned()], 100_000));
    }
}
