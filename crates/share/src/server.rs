//! The server's side of a shared tree of values: answers the streams of clients.

use std::cell::Cell;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use longhaul_proto::share::{
    By, Call, Key, Limits, Piece, Refusal, Right, WRITERS, Watcher, Writer,
};
use longhaul_session::{Error, FrameReader, FrameWriter, Kind, Session, random_u64};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::convert;
use crate::messages::{Answer, Ask, Asked, Begin, Begun, Get, Hold, Put, Tell, Told, Watch};
use crate::store::{Command, Failed, Made, Size, Store};
use crate::turns::Turns;

/// Maximum number of unanswered calls of one stream.
pub(crate) const CALLS: usize = 64;
/// Timeout for a client that does not read.
const UNREAD: Duration = Duration::from_secs(60);

/// A tree that clients share.
#[derive(Debug)]
pub struct Shared {
    store: Store,
    run: u64,
    streams: Cell<u64>,
    /// Limits the unanswered calls of each client.
    turns: Turns,
}

/// The writer of a stream. Its presences (values that vanish with the writer) end with the stream.
struct Writing<'a> {
    store: &'a Store,
    client: [u8; 32],
    stream: u64,
    by: Cell<Option<By>>,
    /// Whether the client has said goodbye; then this writer never returns.
    is_last: Cell<bool>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(by) = self.by.get() {
            self.store.order(Command::Ended(by, self.is_last.get()));
        }
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Told, Error>>>>;

impl Shared {
    /// Opens the tree in the file at `path`; creates it if missing.
    ///
    /// # Errors
    /// [`Kind::LocalFile`]: the file cannot be read or written, or another process has it open.
    pub fn open(path: &Path) -> Result<Rc<Shared>, Error> {
        let store = Store::open(path, Limits::default())?;
        // In a request, run 0 means a client without data.
        let run = random_u64().max(1);
        Ok(Rc::new(Shared { store, run, streams: Cell::new(0), turns: Turns::default() }))
    }

    /// Returns the size of the tree; `None` if the tree's thread has ended.
    pub fn size(&self) -> impl Future<Output = Option<Size>> + use<> {
        let size = self.store.ask(Command::Count);
        async { size.await.ok() }
    }

    /// Answers a stream to its end, and says goodbye; `first` is its first message. Ends early with
    /// the reason from `stopped`.
    ///
    /// # Errors
    /// The stream ended for any reason other than the client's goodbye.
    pub async fn serve(
        &self,
        session: Session,
        first: Ask,
        right: Right,
        stopped: impl Future<Output = Error>,
    ) -> Result<(), Error> {
        let client = session.peer.0;
        let (mut writer, mut reader) = session.split();
        let work = async {
            match first.asked {
                Some(Asked::Watch(watch)) => {
                    self.watch(&mut writer, &mut reader, watch, &right).await
                }
                _ => self.calls(&mut writer, &mut reader, first, client, &right).await,
            }
        };
        let ended = tokio::select! {
            ended = work => ended,
            why = stopped => Err(why),
        };
        let _ = writer.close(reader, ended.as_ref().err().cloned()).await;
        ended
    }

    async fn watch(
        &self,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
        watch: Watch,
        right: &Right,
    ) -> Result<(), Error> {
        let prefix = convert::prefix(&watch.prefix)?;
        if !right.read || !right.prefix.contains(prefix.as_str()) {
            return Err(forbidden("watch", prefix.as_str(), right));
        }
        let mut watcher = Watcher::new(prefix, (watch.run == self.run).then_some(watch.revision));
        let brings = async {
            let mut is_within = false;
            loop {
                let piece;
                (watcher, piece) = self.store.ask(|send| Command::Next(watcher, send)).await?;
                if let Piece::Snapshot { is_first, is_last, .. } = piece {
                    if is_first && is_within && !watch.anew {
                        return Err(Error::new(Kind::Lost, "the watch has fallen behind"));
                    }
                    is_within = !is_last;
                }
                send(writer, Told::Part(convert::part(self.run, piece))).await?;
            }
        };
        tokio::select! {
            ended = brings => ended,
            said = reader.read::<Ask>() => match said? {
                None => Ok(()),
                Some(_) => Err(Error::new(Kind::Usage, "a watch takes no further message")),
            },
        }
    }

    async fn calls(
        &self,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
        first: Ask,
        client: [u8; 32],
        right: &Right,
    ) -> Result<(), Error> {
        self.streams.set(self.streams.get() + 1);
        let stream = self.streams.get();
        let (by, is_last) = (Cell::new(None), Cell::new(false));
        let writing = Writing { store: &self.store, client, stream, by, is_last };
        let anew = self.store.anew();
        let turns = self.turns.of(client);
        let (queue, mut answers) = mpsc::channel(CALLS);
        let takes = async move |writing: &Writing<'_>| {
            let mut asked = Some(first);
            while let Some(ask) = asked {
                if let Some(asked) = ask.asked {
                    let turn = turns.clone().acquire_owned().await;
                    let turn = turn.expect("nobody closes it");
                    let answering = self.begin(asked, writing, right)?;
                    // The send fails only after an error of the writer, which reports this error.
                    let _ = queue.send((answering, turn)).await;
                }
                asked = reader.read::<Ask>().await?;
            }
            writing.is_last.set(true);
            Ok(())
        };
        let takes = async {
            // After either outcome, requests that were read are still answered.
            Ok::<_, Error>(tokio::select! {
                taken = takes(&writing) => taken,
                why = anew => Err(why),
            })
        };
        let answers = async {
            while let Some((answering, _turn)) = answers.recv().await {
                send(writer, answering.await?).await?;
            }
            Ok::<_, Error>(())
        };
        let (taken, ()) = tokio::try_join!(takes, answers)?;
        taken
    }

    /// Passes a call to the tree, in order; the answer comes later.
    fn begin(
        &self,
        asked: Asked,
        writing: &Writing<'_>,
        right: &Right,
    ) -> Result<Answering, Error> {
        let wrong = |what| Err(Error::new(Kind::Usage, what));
        match (asked, writing.by.get()) {
            (Asked::Get(get), _) => Ok(self.begin_get(get, right)),
            (Asked::Begin(begin), None) => Ok(self.begin_writer(&begin, writing)),
            (Asked::Put(put), Some(by)) => Ok(self.begin_put(put, by, right)),
            (Asked::Hold(hold), Some(by)) => Ok(self.begin_hold(hold, by, right)),
            (Asked::Watch(_), _) => wrong("a watch needs a separate stream"),
            (Asked::Begin(_), Some(_)) => wrong("a second Begin message on a stream"),
            (Asked::Put(_) | Asked::Hold(_), None) => wrong("an edit before the Begin message"),
        }
    }

    fn begin_writer(&self, begin: &Begin, writing: &Writing<'_>) -> Answering {
        let writer = Writer { client: writing.client, instance: begin.instance };
        let by = By { writer, stream: writing.stream };
        writing.by.set(Some(by));
        let (is_first, seen) = (begin.first, begin.seen);
        let begun = self.store.ask(move |send| Command::Begin(by, is_first, seen, send));
        Box::pin(async move {
            let failed = |failed| Error::new(Kind::Unreachable, why(&failed));
            Ok(Told::Begun(Begun { forgotten: begun.await?.map_err(failed)? }))
        })
    }

    fn begin_get(&self, get: Get, right: &Right) -> Answering {
        let id = get.id;
        let key = convert::key(&get.key).and_then(|key| {
            match right.read && right.prefix.contains(key.as_str()) {
                true => Ok(key),
                false => Err(forbidden("read", key.as_str(), right)),
            }
        });
        let key = match key {
            Ok(key) => key,
            Err(error) => return refused(id, &error.what),
        };
        let wanted = key.clone();
        let reading = self.store.ask(|send| Command::Read(wanted, send));
        Box::pin(async move {
            Ok(Told::Answer(match reading.await? {
                Ok((revision, entry)) => {
                    let item = entry.map(|entry| convert::item(&key, entry));
                    Answer { id, revision, item, ..Answer::default() }
                }
                Err(failed) => Answer { id, result: 2, why: why(&failed), ..Answer::default() },
            }))
        })
    }

    fn begin_put(&self, put: Put, by: By, right: &Right) -> Answering {
        let (id, again, is_presence) = (put.id, put.again, put.presence);
        let edit = match allowed(convert::edit(put), |edit| &edit.key, right) {
            Ok(edit) => edit,
            Err(error) => return refused(id, &error.what),
        };
        let (key, number) = (edit.key.clone(), id / 2);
        let call = Call { by, number, again, edit };
        let making = self.store.ask(move |send| Command::Edit(call, is_presence, send));
        answer(id, key, right.read, making)
    }

    fn begin_hold(&self, hold: Hold, by: By, right: &Right) -> Answering {
        let id = hold.id;
        let hold = match allowed(convert::hold(hold), |hold| &hold.key, right) {
            Ok(hold) => hold,
            Err(error) => return refused(id, &error.what),
        };
        let key = hold.key.clone();
        answer(id, key, right.read, self.store.ask(move |send| Command::Hold(by, hold, send)))
    }
}

fn answer(
    id: u64,
    key: Key,
    may_read: bool,
    making: impl Future<Output = Result<Made, Error>> + 'static,
) -> Answering {
    Box::pin(async move {
        let answer = Answer { id, ..Answer::default() };
        Ok(Told::Answer(match making.await? {
            Ok((revision, version)) => Answer { revision, version, ..answer },
            Err(Failed::Refused(Refusal::Conflict(now))) => {
                let now = now.filter(|_| may_read);
                let item = now.map(|entry| convert::item(&key, entry));
                Answer { result: 1, item, ..answer }
            }
            Err(Failed::Refused(Refusal::Unknown)) => Answer { result: 3, ..answer },
            Err(failed @ Failed::Refused(Refusal::Replaced)) => {
                return Err(Error::new(Kind::Lost, why(&failed)));
            }
            Err(failed) => Answer { result: 2, why: why(&failed), ..answer },
        }))
    })
}

fn why(failed: &Failed) -> String {
    match failed {
        Failed::Refused(Refusal::Full) => "the shared tree is full; delete keys".to_owned(),
        Failed::Refused(Refusal::Long) => "the value is too long".to_owned(),
        Failed::Refused(Refusal::Conflict(_)) => "the key has changed".to_owned(),
        Failed::Refused(Refusal::Unknown) => {
            "the server has discarded the outcome of the edit".to_owned()
        }
        Failed::Refused(Refusal::Replaced) => {
            "another connection of this program has replaced this one".to_owned()
        }
        Failed::Crowd => {
            format!("this client has {WRITERS} programs at the shared tree, which is the limit")
        }
        Failed::Disk(why) => format!("the server cannot store the edit: {why}"),
        Failed::Closed(why) => format!("the server cannot read its shared tree: {why}"),
    }
}

fn refused(id: u64, why: &str) -> Answering {
    let answer = Answer { id, result: 2, why: why.to_owned(), ..Answer::default() };
    Box::pin(async { Ok(Told::Answer(answer)) })
}

fn allowed<T>(
    wanted: Result<T, Error>,
    key: impl Fn(&T) -> &Key,
    right: &Right,
) -> Result<T, Error> {
    let wanted = wanted?;
    match right.write && right.prefix.contains(key(&wanted).as_str()) {
        true => Ok(wanted),
        false => Err(forbidden("change", key(&wanted).as_str(), right)),
    }
}

fn forbidden(verb: &str, key: &str, right: &Right) -> Error {
    Error::new(Kind::Unreachable, right.refuses(verb, key)).advise("ask the server's administrator")
}

async fn send(writer: &mut FrameWriter, told: Told) -> Result<(), Error> {
    let unread = |_| Error::new(Kind::Lost, "the client does not read the data that it requested");
    timeout(UNREAD, writer.write(&Tell { told: Some(told) })).await.map_err(unread)?
}
