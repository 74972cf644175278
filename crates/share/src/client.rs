//! The client's side of the shared tree: calls and watches over successive connections. The server
//! deletes a presence (a value) when its writer disconnects.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_proto::share::{Answer, Edits, Entry, Key, Lie, Prefix, Replica, Wish};
use longhaul_session::retry::{Retries, silence};
use longhaul_session::{Connection, Error, FrameWriter, Kind, Session, random_u64};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::convert;
use crate::messages::{
    Answer as Reply, Ask, Asked, Begin, Get, SERVICE, Tell, Told, VERSION, Watch,
};
use crate::server::CALLS;
use crate::unread::{Held, Limit, Unread};

/// Maximum number of watches of a connection. Each watch has its own stream; one more stream
/// carries all other requests.
const WATCHES: usize = 15;
/// Limit on a snapshot in bytes, as for a server's tree.
const MOST: usize = 1 << 30;

/// A request of the program.
#[derive(Debug)]
pub enum Order {
    /// Reads a key.
    Get(Key, oneshot::Sender<Result<Option<Entry>, Error>>),
    /// Changes a key.
    Edit(Wish, oneshot::Sender<Result<Answer, Error>>),
    /// Waits until this client knows of no presence of its own at the key, then reports the key's
    /// value if known.
    Lost(Key, oneshot::Sender<Result<Option<Entry>, Error>>),
    /// Sends a prefix's entries, then its changes, until the receiver is dropped.
    Watch(Prefix, mpsc::Sender<Result<Unread, Error>>),
}

impl Order {
    fn refuse(self, error: &Error) {
        match self {
            Order::Get(_, tell) | Order::Lost(_, tell) => drop(tell.send(Err(error.clone()))),
            Order::Edit(_, tell) => drop(tell.send(Err(error.clone()))),
            Order::Watch(_, tell) => drop(tell.try_send(Err(error.clone()))),
        }
    }
}

/// A connection with its first, unused stream.
pub type Connected = (Connection, Session);

fn lie(lie: Lie) -> Error {
    Error::new(Kind::Usage, format!("the server's answers are invalid: {}", lie.0))
        .advise("check that both sides run the same release")
}

/// Serves `orders` over the connection `first`. When a connection is lost, calls `connect` until it
/// succeeds, fails permanently, or `retry_for` is over. Returns when `ends` completes, or when all
/// senders of `orders` are dropped and no order is pending. After a failure all further orders get
/// its reason.
pub async fn run(
    first: Connected,
    connect: impl AsyncFn() -> Result<Connected, Error>,
    retry_for: Duration,
    mut orders: mpsc::Receiver<Order>,
    ends: impl Future<Output = ()>,
) {
    tokio::pin!(ends);
    let mut client = Client { instance: random_u64(), ..Client::default() };
    let (mut next, mut retries) = (first, Retries::new(retry_for));
    let failed = loop {
        let Err(error) = client.work(next, &mut orders, &mut ends).await else { return };
        if error.kind != Kind::Lost {
            break error;
        }
        client.lost();
        let connected = tokio::select! {
            connected = retries.again(&connect) => connected,
            () = &mut ends => return,
        };
        next = match connected {
            Ok(connected) => connected,
            Err(error) => break error,
        };
    };
    client.fail(&failed);
    let refuse = async {
        while let Some(order) = orders.recv().await {
            order.refuse(&failed);
        }
    };
    tokio::select! {
        () = refuse => {}
        () = ends => {}
    }
}

struct Watching {
    prefix: Prefix,
    replica: Replica,
    run: u64,
    tell: mpsc::Sender<Result<Unread, Error>>,
    limit: Limit,
    /// The memory that is reserved for the incomplete snapshot.
    held: Held,
}

type Waiting<T> = oneshot::Sender<Result<T, Error>>;

#[derive(Default)]
struct Client {
    instance: u64,
    /// How often the server had discarded outcomes, according to the last `Begun` (the answer to
    /// `Begin`) that came while no edit was in doubt. An edit is in doubt if it was sent on a lost
    /// stream and not answered.
    seen: Option<u64>,
    has_begun: bool,
    edits: Edits,
    tell: BTreeMap<u64, Waiting<Answer>>,
    gets: BTreeMap<u64, (Key, Waiting<Option<Entry>>)>,
    /// Keys of presences in restoration, by call number.
    holds: BTreeMap<u64, Key>,
    /// Number of calls so far, without edits. The n-th call has the number 2n; edits have odd
    /// numbers.
    calls: u64,
    losses: BTreeMap<Key, Vec<Waiting<Option<Entry>>>>,
    watches: Vec<Watching>,
    /// The limit on unread data of all watches.
    unread: Limit,
    closed: bool,
}

impl Client {
    fn lost(&mut self) {
        self.edits.lost();
        self.holds.clear();
    }

    fn fail(mut self, error: &Error) {
        for tell in std::mem::take(&mut self.tell).into_values() {
            let _ = tell.send(Err(error.clone()));
        }
        for (_, tell) in std::mem::take(&mut self.gets).into_values() {
            let _ = tell.send(Err(error.clone()));
        }
        for tell in std::mem::take(&mut self.losses).into_values().flatten() {
            let _ = tell.send(Err(error.clone()));
        }
        for watching in self.watches {
            report(watching, error.clone());
        }
    }

    fn under_way(&self) -> usize {
        self.edits.len() + self.gets.len()
    }

    async fn work(
        &mut self,
        (connection, mut session): Connected,
        orders: &mut mpsc::Receiver<Order>,
        ends: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<(), Error> {
        session.ask_for(SERVICE, VERSION);
        let mut silence = Box::pin(silence(session.rtt()));
        let (writer, mut reader) = session.split();
        let (send, mut sending) = mpsc::unbounded_channel::<Asked>();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut watches = JoinSet::new();
        self.begin(&send);
        for watching in self.watches.drain(..) {
            watches.spawn_local(watch(connection.clone(), watching, stopped.clone()));
        }
        let (leave, leaves) = oneshot::channel();
        let writes = write(writer, &mut sending, leaves);
        tokio::pin!(writes);
        let ended = loop {
            self.send_edits(&send);
            if self.closed && self.under_way() == 0 && watches.is_empty() {
                break Ok(());
            }
            tokio::select! {
                () = &mut *ends => break Ok(()),
                error = &mut silence => break Err(error),
                ended = &mut writes => break ended.map(drop),
                told = reader.read::<Tell>() => {
                    if let Err(error) = told.and_then(|told| self.on_message(told)) {
                        break Err(error);
                    }
                }
                order = orders.recv(), if !self.closed && self.under_way() < CALLS => {
                    if let Some(watching) = self.take(order, &send, watches.len()) {
                        watches.spawn_local(watch(connection.clone(), watching, stopped.clone()));
                    }
                }
                Some(Ok((watching, ended))) = watches.join_next() => match ended {
                    Ok(()) => {}
                    Err(error) if error.kind == Kind::Lost => {
                        self.watches.push(watching);
                        break Err(error);
                    }
                    Err(error) => report(watching, error),
                },
            }
        };
        if ended.is_ok() {
            stop.send_replace(true);
            let _ = leave.send(());
            if let Ok(writer) = writes.await {
                let _ = writer.leave(reader).await;
            }
            while watches.join_next().await.is_some() {}
            connection.close().await;
            return Ok(());
        }
        // The watches continue over the next connection.
        drop((reader, connection, stop));
        while let Some(done) = watches.join_next().await {
            if let Ok((watching, Err(_))) = done {
                self.watches.push(watching);
            }
        }
        ended
    }

    /// Identifies the program on a new stream, and repeats pending requests.
    fn begin(&mut self, send: &mpsc::UnboundedSender<Asked>) {
        self.edits.connected();
        let begin = Begin { instance: self.instance, first: !self.has_begun, seen: self.seen };
        self.has_begun = true;
        let _ = send.send(Asked::Begin(begin));
        for (id, (key, _)) in &self.gets {
            let _ = send.send(Asked::Get(Get { id: *id, key: key.as_str().to_owned() }));
        }
    }

    fn send_edits(&mut self, send: &mpsc::UnboundedSender<Asked>) {
        while let Some(sent) = self.edits.poll() {
            let _ = send.send(Asked::Put(convert::put(sent)));
        }
        while self.holds.len() < CALLS
            && let Some(hold) = self.edits.poll_hold()
        {
            self.calls += 1;
            let id = self.calls * 2;
            self.holds.insert(id, hold.key.clone());
            let _ = send.send(Asked::Hold(convert::held(id, hold)));
        }
    }

    /// Handles an order. Returns a new watch to start; `watches` is the number of running watches.
    fn take(
        &mut self,
        order: Option<Order>,
        send: &mpsc::UnboundedSender<Asked>,
        watches: usize,
    ) -> Option<Watching> {
        match order {
            None => self.closed = true,
            Some(Order::Edit(wish, tell)) => {
                let id = self.edits.add(wish);
                self.tell.insert(id, tell);
            }
            Some(Order::Get(key, tell)) => {
                self.calls += 1;
                let id = self.calls * 2;
                let _ = send.send(Asked::Get(Get { id, key: key.as_str().to_owned() }));
                self.gets.insert(id, (key, tell));
            }
            Some(Order::Lost(key, tell)) if !self.edits.holds(&key) => drop(tell.send(Ok(None))),
            Some(Order::Lost(key, tell)) => {
                let tells = self.losses.entry(key).or_default();
                tells.retain(|tell| !tell.is_closed());
                tells.push(tell);
            }
            Some(Order::Watch(prefix, tell)) => {
                let replica = Replica::new(prefix.clone(), MOST);
                let (limit, held) = (self.unread.clone(), self.unread.hold());
                let watching = Watching { prefix, replica, run: 0, tell, limit, held };
                if watches < WATCHES {
                    return Some(watching);
                }
                let what = format!("at most {WATCHES} watches at a time");
                let error = Error::new(Kind::Usage, what);
                report(watching, error.advise("end a watch, or watch a common prefix"));
            }
        }
        None
    }

    fn on_message(&mut self, told: Option<Tell>) -> Result<(), Error> {
        let ended = || Error::new(Kind::Lost, "the server ended the session");
        let answer = match told.ok_or_else(ended)?.told {
            Some(Told::Answer(answer)) => answer,
            Some(Told::Begun(begun)) => {
                if !self.edits.is_in_doubt() {
                    self.seen = Some(begun.forgotten);
                }
                return Ok(());
            }
            _ => return Err(lie(Lie("an answer is malformed"))),
        };
        let refused = (answer.result == 2).then(|| {
            let why: String = answer.why.chars().filter(|c| !c.is_control()).take(500).collect();
            Error::new(Kind::Unreachable, format!("the server refuses: {why}"))
        });
        self.edits.note_revision(answer.revision);
        match answer.id % 2 {
            0 => self.on_call_answered(&answer, refused),
            _ => self.on_edit_answered(&answer, refused),
        }
    }

    /// Handles the answer to a read, or to a restored presence.
    fn on_call_answered(&mut self, answer: &Reply, refused: Option<Error>) -> Result<(), Error> {
        if let Some(key) = self.holds.remove(&answer.id) {
            let now = convert::answered(answer, &key)?;
            if self.edits.hold_answered(&key, &come_to(answer, now.clone())) {
                self.lose(&key, &refused.map_or(Ok(now), Err));
            }
            return Ok(());
        }
        let none = || lie(Lie("an answer belongs to no call"));
        let (key, tell) = self.gets.remove(&answer.id).ok_or_else(none)?;
        let entry = refused.map_or_else(|| convert::answered(answer, &key), Err);
        let _ = tell.send(entry);
        Ok(())
    }

    fn on_edit_answered(&mut self, answer: &Reply, refused: Option<Error>) -> Result<(), Error> {
        let number = answer.id / 2;
        let none = || lie(Lie("an answer belongs to no edit"));
        let key = self.edits.key(number).cloned().ok_or_else(none)?;
        let made = come_to(answer, convert::answered(answer, &key)?);
        self.edits.answered(number, &made).map_err(lie)?;
        if !self.edits.holds(&key) {
            // The program itself has changed the value.
            self.lose(&key, &Ok(None));
        }
        if let Some(tell) = self.tell.remove(&number) {
            let _ = tell.send(refused.map_or(Ok(made), Err));
        }
        Ok(())
    }

    fn lose(&mut self, key: &Key, now: &Result<Option<Entry>, Error>) {
        for tell in self.losses.remove(key).into_iter().flatten() {
            let _ = tell.send(now.clone());
        }
    }
}

fn come_to(answer: &Reply, now: Option<Entry>) -> Answer {
    match answer.result {
        0 => Answer::Made(answer.version),
        1 => Answer::Conflict(now),
        2 => Answer::Refused,
        _ => Answer::Unknown,
    }
}

/// Ends a watch. The program gets the error, unless its queue of events is full.
fn report(watching: Watching, error: Error) {
    let _ = watching.tell.try_send(Err(error));
}

async fn write(
    mut writer: FrameWriter,
    sending: &mut mpsc::UnboundedReceiver<Asked>,
    mut leaves: oneshot::Receiver<()>,
) -> Result<FrameWriter, Error> {
    // An empty message begins the stream. It gets no answer, unless the server refuses the stream.
    writer.write(&Ask::default()).await?;
    loop {
        tokio::select! {
            Some(asked) = sending.recv() => writer.write(&Ask { asked: Some(asked) }).await?,
            _ = &mut leaves => return Ok(writer),
        }
    }
}

/// Runs a watch until it fails, the program drops its receiver, or `stopped` is true. If the watch
/// has not failed and its stream is open, tells the server that the watch ends.
async fn watch(
    connection: Connection,
    mut watching: Watching,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) -> (Watching, Result<(), Error>) {
    let tell = watching.tell.clone();
    let ends = async {
        tokio::select! {
            () = tell.closed() => Ok(()),
            stops = stopped.wait_for(|is_stopped| *is_stopped) => match stops {
                Ok(_) => Ok(()),
                Err(_) => Err(Error::new(Kind::Lost, "the connection is lost")),
            },
        }
    };
    tokio::pin!(ends);
    let opened = tokio::select! {
        opened = connection.open(SERVICE, VERSION) => opened,
        ended = &mut ends => return (watching, ended),
    };
    drop(connection);
    let mut session = match opened {
        Ok(session) => session,
        Err(error) => return (watching, Err(error)),
    };
    let ended = tokio::select! {
        ended = bring(&mut session, &mut watching) => ended,
        ended = &mut ends => ended,
    };
    if ended.is_ok() {
        let _ = session.leave().await;
    }
    (watching, ended)
}

async fn bring(session: &mut Session, watching: &mut Watching) -> Result<(), Error> {
    watching.replica.reconnected(false);
    watching.held.set(0)?;
    let (revision, run) = match watching.replica.revision() {
        Some(revision) => (revision, watching.run),
        None => (0, 0),
    };
    let prefix = watching.prefix.as_str().to_owned();
    let watch = Watch { prefix, revision, run, anew: true };
    session.write(&Ask { asked: Some(Asked::Watch(watch)) }).await?;
    loop {
        let ended = || Error::new(Kind::Lost, "the server ended the watch");
        let Some(Told::Part(part)) = session.read::<Tell>().await?.ok_or_else(ended)?.told else {
            return Err(lie(Lie("a watch got a message of another kind")));
        };
        if part.run != watching.run {
            watching.replica.reconnected(true);
            watching.run = part.run;
        }
        let news = watching.replica.take(convert::piece(part)?).map_err(lie)?;
        watching.held.set(watching.replica.bytes())?;
        if let Some(news) = news {
            let news = watching.limit.unread(news)?;
            // This fails if the program has dropped its receiver; then `watch` returns.
            let _ = watching.tell.send(Ok(news)).await;
        }
    }
}
