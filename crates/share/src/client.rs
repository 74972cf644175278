//! The client's side: calls and watches over one connection after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_proto::share::{Answer, Edits, Entry, Key, Lie, News, Prefix, Replica, Wish};
use longhaul_session::retry::{again, silence};
use longhaul_session::{Connection, Error, FrameWriter, Kind, Session};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::convert;
use crate::messages::{self, Ask, Asked, Get, SERVICE, Tell, Told, VERSION, Watch};
use crate::server::CALLS;

/// Bytes of keys and values that a snapshot may have, at most: what a server's tree may have.
const MOST: usize = 1 << 30;

/// What a client is asked.
#[derive(Debug)]
pub enum Order {
    /// What a key has.
    Get(Key, oneshot::Sender<Result<Option<Entry>, Error>>),
    /// A change.
    Edit(Wish, oneshot::Sender<Result<Answer, Error>>),
    /// All that a prefix has, and its changes, until the receiver is dropped.
    Watch(Prefix, mpsc::Sender<Result<News, Error>>),
}

/// A connection, and its first stream, on which nothing was said yet.
pub type Connected = (Connection, Session);

fn lie(lie: Lie) -> Error {
    Error::new(Kind::Usage, format!("the server's answers make no sense: {}", lie.0))
        .advise("see that both ends run the same release")
}

/// Answers `orders` over the connection `first`, and over those that `connect` makes after it, each
/// within `retry_for` of the loss. Ends with `ends`, or when nobody can order and nothing is under
/// way.
pub async fn run(
    first: Connected,
    connect: impl AsyncFn() -> Result<Connected, Error>,
    retry_for: Duration,
    mut orders: mpsc::Receiver<Order>,
    ends: impl Future<Output = ()>,
) {
    tokio::pin!(ends);
    let mut client = Client::default();
    let mut next = Some(first);
    while let Some(connected) = next {
        let Err(error) = client.work(connected, &mut orders, &mut ends).await else { return };
        if error.kind != Kind::Lost {
            return client.fail(&error);
        }
        client.lost();
        let connected = tokio::select! {
            connected = again(&connect, retry_for) => connected,
            () = &mut ends => return,
        };
        next = match connected {
            Ok(connected) => Some(connected),
            Err(error) => return client.fail(&error),
        };
    }
}

/// A watch, and how far it is.
struct Watching {
    prefix: Prefix,
    replica: Replica,
    run: u64,
    tell: mpsc::Sender<Result<News, Error>>,
}

type Waiting<T> = oneshot::Sender<Result<T, Error>>;

#[derive(Default)]
struct Client {
    edits: Edits,
    tell: BTreeMap<u64, Waiting<Answer>>,
    gets: BTreeMap<u64, (Key, Waiting<Option<Entry>>)>,
    /// The number of the last read; they are even, those of edits odd.
    reads: u64,
    presence: BTreeMap<Key, Wish>,
    watches: Vec<Watching>,
    closed: bool,
}

impl Client {
    fn lost(&mut self) {
        self.edits.lost();
        for wish in self.presence.values() {
            self.edits.add(wish.clone());
        }
    }

    fn fail(mut self, error: &Error) {
        for tell in std::mem::take(&mut self.tell).into_values() {
            let _ = tell.send(Err(error.clone()));
        }
        for (_, tell) in std::mem::take(&mut self.gets).into_values() {
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
        let (stop, stopped) = tokio::sync::watch::channel(());
        let mut watches = JoinSet::new();
        self.edits.connected();
        for watching in self.watches.drain(..) {
            watches.spawn_local(watch(connection.clone(), watching, stopped.clone()));
        }
        for (id, (key, _)) in &self.gets {
            let _ = send.send(Asked::Get(Get { id: *id, key: key.as_str().to_owned() }));
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
                    if let Err(error) = told.and_then(|told| self.heard(told)) {
                        break Err(error);
                    }
                }
                order = orders.recv(), if !self.closed && self.under_way() < CALLS => {
                    if let Some(watching) = self.take(order, &send) {
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
            // The writer gives itself back.
            let _ = leave.send(());
            if let Ok(writer) = writes.await {
                let _ = writer.leave(reader).await;
            }
            watches.shutdown().await;
            connection.close().await;
            return Ok(());
        }
        // The watches go on over the next connection.
        drop((reader, connection, stop));
        while let Some(done) = watches.join_next().await {
            if let Ok((watching, Err(_))) = done {
                self.watches.push(watching);
            }
        }
        ended
    }

    fn send_edits(&mut self, send: &mpsc::UnboundedSender<Asked>) {
        while let Some(sent) = self.edits.poll() {
            let mut put = convert::put(sent);
            put.id = put.id * 2 + 1;
            let _ = send.send(Asked::Put(put));
        }
    }

    /// Takes an order; returns a watch that is to begin.
    fn take(
        &mut self,
        order: Option<Order>,
        send: &mpsc::UnboundedSender<Asked>,
    ) -> Option<Watching> {
        match order {
            None => self.closed = true,
            Some(Order::Edit(wish, tell)) => {
                let id = self.edits.add(wish);
                self.tell.insert(id, tell);
            }
            Some(Order::Get(key, tell)) => {
                self.reads += 1;
                let id = self.reads * 2;
                let _ = send.send(Asked::Get(Get { id, key: key.as_str().to_owned() }));
                self.gets.insert(id, (key, tell));
            }
            Some(Order::Watch(prefix, tell)) => {
                let replica = Replica::new(prefix.clone(), MOST);
                return Some(Watching { prefix, replica, run: 0, tell });
            }
        }
        None
    }

    /// Takes what the server says.
    fn heard(&mut self, told: Option<Tell>) -> Result<(), Error> {
        let ended = || Error::new(Kind::Lost, "the server ended the session");
        let Some(Told::Answer(answer)) = told.ok_or_else(ended)?.told else {
            return Err(lie(Lie("an answer is none")));
        };
        let refused = (answer.result == 2).then(|| {
            let why: String = answer.why.chars().filter(|c| !c.is_control()).take(500).collect();
            Error::new(Kind::Unreachable, format!("the server refuses: {why}"))
        });
        self.edits.heard(answer.revision);
        if answer.id % 2 == 0 {
            let none = || lie(Lie("an answer is to no call"));
            let (key, tell) = self.gets.remove(&answer.id).ok_or_else(none)?;
            let entry = refused.map_or_else(|| convert::answered(&answer, &key), Err);
            let _ = tell.send(entry);
            return Ok(());
        }
        let id = answer.id / 2;
        let made = match answer.result {
            0 => Answer::Made(answer.version),
            1 => Answer::Conflict(self.now(id, &answer)?),
            _ => Answer::Conflict(None),
        };
        let (wish, made) = self.edits.answered(id, made).map_err(lie)?;
        match (&made, wish.presence && wish.value.is_some()) {
            (Answer::Made(_), true) => drop(self.presence.insert(wish.key.clone(), wish)),
            (Answer::Made(_), false) => drop(self.presence.remove(&wish.key)),
            (Answer::Conflict(_), _) => {}
        }
        if let Some(tell) = self.tell.remove(&id) {
            let _ = tell.send(refused.map_or(Ok(made), Err));
        }
        Ok(())
    }

    fn now(&self, id: u64, answer: &messages::Answer) -> Result<Option<Entry>, Error> {
        let none = || lie(Lie("an answer is to no call"));
        let key = self.edits.key(id).ok_or_else(none)?;
        convert::answered(answer, key)
    }
}

/// Ends a watch with an error. A program that does not read it sees the end alone.
fn report(watching: Watching, error: Error) {
    let _ = watching.tell.try_send(Err(error));
}

/// Writes what is to be sent, until `leaves` says that nothing more is.
async fn write(
    mut writer: FrameWriter,
    sending: &mut mpsc::UnboundedReceiver<Asked>,
    mut leaves: oneshot::Receiver<()>,
) -> Result<FrameWriter, Error> {
    // The server answers the stream from now on, and says why if it does not.
    writer.write(&Ask::default()).await?;
    loop {
        tokio::select! {
            Some(asked) = sending.recv() => writer.write(&Ask { asked: Some(asked) }).await?,
            _ = &mut leaves => return Ok(writer),
        }
    }
}

/// Brings what is watched until the connection is lost or nobody listens.
async fn watch(
    connection: Connection,
    mut watching: Watching,
    mut stopped: tokio::sync::watch::Receiver<()>,
) -> (Watching, Result<(), Error>) {
    let tell = watching.tell.clone();
    let ended = tokio::select! {
        ended = bring(connection, &mut watching) => ended,
        () = tell.closed() => Ok(()),
        _ = stopped.changed() => Err(Error::new(Kind::Lost, "the connection is lost")),
    };
    (watching, ended)
}

async fn bring(connection: Connection, watching: &mut Watching) -> Result<(), Error> {
    let mut session = connection.open(SERVICE, VERSION).await?;
    drop(connection);
    watching.replica.reconnected(false);
    let (revision, run) = match watching.replica.revision() {
        Some(revision) => (revision, watching.run),
        None => (0, 0),
    };
    let watch = Watch { prefix: watching.prefix.as_str().to_owned(), revision, run };
    session.write(&Ask { asked: Some(Asked::Watch(watch)) }).await?;
    loop {
        let ended = || Error::new(Kind::Lost, "the server ended the watch");
        let Some(Told::Part(part)) = session.read::<Tell>().await?.ok_or_else(ended)?.told else {
            return Err(lie(Lie("a watch brings something else")));
        };
        if part.run != watching.run {
            watching.replica.reconnected(true);
            watching.run = part.run;
        }
        if let Some(news) = watching.replica.take(convert::piece(part)?).map_err(lie)? {
            // Nobody listens: `watch` ends.
            let _ = watching.tell.send(Ok(news)).await;
        }
    }
}
