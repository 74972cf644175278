//! The thread that owns a shared tree of values and its file. It executes all reads and changes,
//! one after the other, and commits waiting edits together before it answers them.
//!
//! After a failed commit, the thread reads the tree from the file again, and ends the streams of
//! all clients. The clients reconnect. For each writer the file records the outcomes of its last
//! edits; from these records the clients learn which edits were made.

use std::path::Path;
use std::thread;

use longhaul_proto::share::{
    By, Call, Calls, Change, Crowd, Entry, Hold, Key, Limits, Piece, Refusal, Watcher,
};
use longhaul_session::{Error, Kind, strict};
use tokio::sync::{mpsc, oneshot, watch};

use crate::disk::{Disk, Trouble, open_private};

/// Maximum number of commands in one batch.
const BATCH: usize = 1024;

/// Result of an edit: the tree's revision, and the key's version (0 if there was nothing to
/// delete).
pub(crate) type Made = Result<(u64, u64), Failed>;

#[derive(Clone, Debug)]
pub(crate) enum Failed {
    Refused(Refusal),
    /// Too many programs of this client.
    Crowd,
    /// The file could not store the edit.
    Disk(String),
    /// The file cannot be read, so the state is unknown.
    Closed(String),
}

type Reply<T> = oneshot::Sender<Result<T, Failed>>;

type Read = (u64, Option<Entry>);

/// The size of a tree, and the number of its watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Size {
    /// Keys that have a value.
    pub keys: u64,
    /// The revision of the tree: at least the number of changes in all runs. Each restart raises
    /// the revision by at most 4097 without a change.
    pub changes: u64,
    /// Watches that have received all changes.
    pub watches: u64,
}

pub(crate) enum Command {
    /// Starts a stream of a writer. The `bool` says whether it is the writer's first stream. The
    /// reply is a count: how often the store has discarded outcomes of this client. The optional
    /// number is the last such count that the writer got while none of its edits was in doubt (sent
    /// on a lost stream and not acknowledged).
    Begin(By, bool, Option<u64>, Reply<u64>),
    /// An edit, and whether its value is a presence (it ends with the writer's stream).
    Edit(Call, bool, Reply<(u64, u64)>),
    Hold(By, Hold, Reply<(u64, u64)>),
    Read(Key, Reply<Read>),
    Next(Watcher, oneshot::Sender<(Watcher, Piece)>),
    Count(oneshot::Sender<Size>),
    /// A stream has ended, and its presences with it. After a goodbye (the flag) the writer does
    /// not return.
    Ended(By, bool),
}

/// Sends commands to the thread, which ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    orders: mpsc::UnboundedSender<Command>,
    /// Notifies that a commit has failed; the tree is then read again.
    anew: watch::Receiver<()>,
}

/// Opens the file, also after a failed commit.
pub(crate) type Open = Box<dyn FnMut() -> Result<(Disk, Calls), Trouble> + Send>;

impl Store {
    pub(crate) fn open(path: &Path, limits: Limits) -> Result<Store, Error> {
        let trouble = |error: Trouble| {
            let what = format!("cannot open the shared tree in {}: {error}", path.display());
            let error = Error::new(Kind::LocalFile, what);
            error.advise("name a file that longhaul created and that no other server has open")
        };
        let opened = open_private(path).map_err(|error| trouble(redb::Error::Io(error)));
        strict::check(path, &opened?)?;
        let file = path.to_owned();
        let open = move || Disk::open(&file).and_then(|disk| Ok((disk.load(limits)?, disk)));
        let mut open: Open = Box::new(move || open().map(|(calls, disk)| (disk, calls)));
        let begun = open().map_err(trouble)?;
        Store::start(begun, open)
    }

    pub(crate) fn start((disk, calls): (Disk, Calls), open: Open) -> Result<Store, Error> {
        let (orders, taken) = mpsc::unbounded_channel();
        let (reopened, anew) = watch::channel(());
        let keeper = Keeper { open, disk: Some(disk), calls, waiting: Vec::new(), reopened };
        let started = thread::Builder::new().name("longhaul share".to_owned());
        let failed = |error| Error::new(Kind::Lost, format!("cannot start a thread: {error}"));
        started.spawn(move || keeper.run(taken)).map_err(failed)?;
        Ok(Store { orders, anew })
    }

    pub(crate) fn order(&self, command: Command) {
        // Cannot fail: the thread outlives every handle.
        let _ = self.orders.send(command);
    }

    pub(crate) fn ask<T, M: FnOnce(oneshot::Sender<T>) -> Command>(
        &self,
        make: M,
    ) -> impl Future<Output = Result<T, Error>> + use<T, M> {
        let (reply, told) = oneshot::channel();
        self.order(make(reply));
        async { told.await.map_err(|_| Error::new(Kind::Lost, "the shared tree has ended")) }
    }

    /// Completes when a commit has failed.
    pub(crate) fn anew(&self) -> impl Future<Output = Error> + use<> {
        let mut anew = self.anew.clone();
        anew.mark_unchanged();
        async move {
            let _ = anew.changed().await;
            Error::new(Kind::Lost, "the server reads its shared tree from the disk again")
        }
    }
}

struct Keeper {
    open: Open,
    /// `None` after a failed commit, until reopened.
    disk: Option<Disk>,
    calls: Calls,
    waiting: Vec<(Watcher, oneshot::Sender<(Watcher, Piece)>)>,
    reopened: watch::Sender<()>,
}

#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
    answers: Vec<Pending>,
    begun: Vec<(Reply<u64>, Result<u64, Crowd>)>,
    reads: Vec<(Key, Reply<Read>)>,
}

struct Pending {
    reply: Reply<(u64, u64)>,
    made: Result<u64, Refusal>,
    edit: Option<(By, u64)>,
}

impl Keeper {
    fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        let mut batch = Vec::new();
        while orders.blocking_recv_many(&mut batch, BATCH) > 0 {
            match self.ready() {
                Ok(()) => self.take(batch.drain(..)),
                Err(why) => self.refuse(batch.drain(..), &why),
            }
        }
    }

    fn ready(&mut self) -> Result<(), String> {
        if self.disk.is_none() {
            let _ = self.reopened.send(());
            let (disk, calls) = (self.open)().map_err(|error| error.to_string())?;
            (self.disk, self.calls) = (Some(disk), calls);
        }
        Ok(())
    }

    /// Refuses `batch` while the file cannot be read. Watchers wait, because the tree in memory may
    /// hold changes that were not stored.
    fn refuse(&mut self, batch: impl Iterator<Item = Command>, why: &str) {
        let closed = || Failed::Closed(why.to_owned());
        for command in batch {
            match command {
                Command::Begin(.., reply) => drop(reply.send(Err(closed()))),
                Command::Edit(.., reply) | Command::Hold(.., reply) => {
                    drop(reply.send(Err(closed())));
                }
                Command::Read(_, reply) => drop(reply.send(Err(closed()))),
                Command::Next(watcher, reply) => self.waiting.push((watcher, reply)),
                Command::Count(reply) => drop(reply.send(self.size())),
                // A tree that is read again has no streams.
                Command::Ended(..) => {}
            }
        }
        self.waiting.retain(|(_, reply)| !reply.is_closed());
    }

    fn take(&mut self, batch: impl Iterator<Item = Command>) {
        let mut taken = Batch::default();
        for command in batch {
            self.take_one(command, &mut taken);
        }
        let Batch { changes, answers, begun, reads } = taken;
        let failed = self.commit(&changes).err();
        if self.disk.is_none() {
            // Values from before the failure may be wrong. The clients reconnect.
            return;
        }
        let revision = self.calls.tree().revision();
        for Pending { reply, made, edit } in answers {
            let known = || edit.and_then(|(by, number)| self.calls.known(by.writer, number));
            let answer = match (made, &failed) {
                // The refusal may be due to a change that was not stored.
                (
                    Ok(_) | Err(Refusal::Conflict(_) | Refusal::Full | Refusal::Unknown),
                    Some(why),
                ) => known().ok_or_else(|| Failed::Disk(why.clone())),
                (made, _) => made.map_err(Failed::Refused),
            };
            let _ = reply.send(answer.map(|version| (revision, version)));
        }
        // After a failed commit all streams end, new ones too: the client gets no reply, and
        // reconnects.
        for (reply, forgotten) in begun.into_iter().filter(|_| failed.is_none()) {
            let _ = reply.send(forgotten.map_err(|Crowd| Failed::Crowd));
        }
        for (key, reply) in reads {
            let _ = reply.send(Ok((revision, self.calls.tree().entry(key.as_str()).cloned())));
        }
        self.update_watchers();
    }

    fn take_one(&mut self, command: Command, taken: &mut Batch) {
        match command {
            Command::Begin(by, is_first, seen, reply) => {
                taken.begun.push((reply, self.calls.begin(by, is_first, seen)));
            }
            Command::Edit(call, is_presence, reply) => {
                let edit = Some((call.by, call.number));
                let made = self.calls.edit(call, is_presence);
                let made = made.map(|(version, change)| {
                    taken.changes.extend(change);
                    version
                });
                taken.answers.push(Pending { reply, made, edit });
            }
            Command::Hold(by, hold, reply) => {
                let made = self.calls.hold(by, hold).map(|(version, change)| {
                    taken.changes.extend(change);
                    version
                });
                taken.answers.push(Pending { reply, made, edit: None });
            }
            Command::Ended(by, is_last) => taken.changes.extend(self.calls.ended(by, is_last)),
            Command::Read(key, reply) => taken.reads.push((key, reply)),
            Command::Count(reply) => drop(reply.send(self.size())),
            Command::Next(watcher, reply) => self.waiting.push((watcher, reply)),
        }
    }

    fn size(&self) -> Size {
        let tree = self.calls.tree();
        let watches = self.waiting.iter().filter(|(_, reply)| !reply.is_closed()).count();
        Size { keys: tree.len() as u64, changes: tree.revision(), watches: watches as u64 }
    }

    fn update_watchers(&mut self) {
        for (mut watcher, reply) in std::mem::take(&mut self.waiting) {
            if reply.is_closed() {
                continue;
            }
            match watcher.next(self.calls.tree()) {
                Some(piece) => drop(reply.send((watcher, piece))),
                None => self.waiting.push((watcher, reply)),
            }
        }
    }

    /// Stores changes that the tree already has, and their outcomes. After a failure, reads the
    /// tree from the file again.
    fn commit(&mut self, changes: &[Change]) -> Result<(), String> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        if !disk.must_store(changes) && !self.calls.must_store() {
            return Ok(());
        }
        let rows = self.calls.take_rows();
        let Err(error) = disk.commit(changes, &rows) else { return Ok(()) };
        // Close the file before it is opened again. The next command retries a failed opening.
        self.disk = None;
        let _ = self.ready();
        Err(error.to_string())
    }
}
