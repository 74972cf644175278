//! The thread that has the tree and its file. It alone reads and changes them, so all calls have
//! one order. Edits that wait together are one commit; an edit is answered, and watchers see it,
//! after the commit.

use std::path::{Path, PathBuf};
use std::thread;

use longhaul_proto::share::{Change, Edit, Entry, Key, Limits, Piece, Refusal, Tree, Watcher};
use longhaul_session::{Error, Kind};
use tokio::sync::{mpsc, oneshot};

use crate::disk::{Disk, Trouble};

/// Commands that are taken at once, at most.
const BATCH: usize = 1024;

/// What an edit came to: its version, 0 where there was nothing to delete.
pub(crate) type Made = Result<u64, Failed>;

/// Why an edit was not made.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    Refused(Refusal),
    /// The file could not take it. Nobody knows whether it is in it.
    Disk(String),
}

pub(crate) enum Command {
    Edit(Edit, oneshot::Sender<(u64, Made)>),
    Read(Key, oneshot::Sender<(u64, Option<Entry>)>),
    /// The next piece for a watcher, once there is one.
    Next(Watcher, oneshot::Sender<(Watcher, Piece)>),
    /// A client has gone, and its presence with it.
    Gone(u64),
}

/// What gives commands to the thread. The thread ends with the last of its clones.
#[derive(Clone, Debug)]
pub(crate) struct Store(mpsc::UnboundedSender<Command>);

impl Store {
    /// Opens the file at `path` and starts the thread.
    pub(crate) fn open(path: &Path, limits: Limits) -> Result<Store, Error> {
        let trouble = |error: Trouble| {
            let what = format!("cannot open the shared tree in {}: {error}", path.display());
            let error = Error::new(Kind::LocalFile, what);
            error.advise("name a file that longhaul made, on a disk with room, for one server only")
        };
        let disk = Disk::open(path).map_err(trouble)?;
        let tree = disk.load(limits).map_err(trouble)?;
        let (orders, taken) = mpsc::unbounded_channel();
        let path = path.to_owned();
        let keeper = Keeper { path, limits, disk: Some(disk), tree, waiting: Vec::new() };
        let started = thread::Builder::new().name("longhaul share".to_owned());
        let failed = |error| Error::new(Kind::Lost, format!("cannot start a thread: {error}"));
        started.spawn(move || keeper.run(taken)).map_err(failed)?;
        Ok(Store(orders))
    }

    pub(crate) fn order(&self, command: Command) {
        // The thread outlives every handle.
        let _ = self.0.send(command);
    }

    /// Gives a command at once; its answer comes later.
    fn ask<T, M: FnOnce(oneshot::Sender<T>) -> Command>(
        &self,
        make: M,
    ) -> impl Future<Output = Result<T, Error>> + use<T, M> {
        let (tell, told) = oneshot::channel();
        self.order(make(tell));
        async { told.await.map_err(|_| Error::new(Kind::Lost, "the shared tree has ended")) }
    }

    pub(crate) fn read(
        &self,
        key: Key,
    ) -> impl Future<Output = Result<(u64, Option<Entry>), Error>> + use<> {
        self.ask(|tell| Command::Read(key, tell))
    }

    pub(crate) fn edit(
        &self,
        edit: Edit,
    ) -> impl Future<Output = Result<(u64, Made), Error>> + use<> {
        self.ask(|tell| Command::Edit(edit, tell))
    }

    pub(crate) fn next(
        &self,
        watcher: Watcher,
    ) -> impl Future<Output = Result<(Watcher, Piece), Error>> + use<> {
        self.ask(|tell| Command::Next(watcher, tell))
    }
}

struct Keeper {
    path: PathBuf,
    limits: Limits,
    /// Nothing after a failed commit, until the file is open again.
    disk: Option<Disk>,
    tree: Tree,
    waiting: Vec<(Watcher, oneshot::Sender<(Watcher, Piece)>)>,
}

impl Keeper {
    fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        let mut batch = Vec::new();
        while orders.blocking_recv_many(&mut batch, BATCH) > 0 {
            self.take(batch.drain(..));
        }
    }

    fn take(&mut self, batch: impl Iterator<Item = Command>) {
        let (mut changes, mut answers, mut reads) = (Vec::new(), Vec::new(), Vec::new());
        for command in batch {
            match command {
                Command::Edit(edit, tell) => {
                    let made = self.tree.apply(edit).map_err(Failed::Refused);
                    let version =
                        |change: &Option<Change>| change.as_ref().map_or(0, |c| c.version);
                    let answer = made.as_ref().map(version).map_err(Clone::clone);
                    changes.extend(made.ok().flatten());
                    answers.push((tell, answer));
                }
                Command::Gone(owner) => changes.extend(self.tree.vanish(owner)),
                Command::Read(key, tell) => reads.push((key, tell)),
                Command::Next(watcher, tell) => self.waiting.push((watcher, tell)),
            }
        }
        let failed = self.commit(&changes).err();
        let revision = self.tree.revision();
        for (tell, answer) in answers {
            let answer = match &failed {
                Some(why) if answer.is_ok() => Err(Failed::Disk(why.clone())),
                _ => answer,
            };
            // A client that has gone needs no answer.
            let _ = tell.send((revision, answer));
        }
        for (key, tell) in reads {
            let _ = tell.send((revision, self.tree.entry(key.as_str()).cloned()));
        }
        self.tell_watchers();
    }

    fn tell_watchers(&mut self) {
        for (mut watcher, tell) in std::mem::take(&mut self.waiting) {
            match watcher.next(&self.tree) {
                _ if tell.is_closed() => {}
                Some(piece) => drop(tell.send((watcher, piece))),
                None => self.waiting.push((watcher, tell)),
            }
        }
    }

    /// Stores changes that the tree has already. If that fails, the tree is read from the file
    /// again: only the file knows what it has.
    fn commit(&mut self, changes: &[Change]) -> Result<(), String> {
        if changes.is_empty() {
            return Ok(());
        }
        let commit = |disk: &mut Disk| disk.commit(changes).map_err(|error| error.to_string());
        let closed = || Err("the file could not be opened again".to_owned());
        let ended = self.disk.as_mut().map_or_else(closed, commit);
        if ended.is_err() {
            // It is closed before it is opened again.
            self.disk = None;
            let opened =
                Disk::open(&self.path).and_then(|disk| Ok((disk.load(self.limits)?, disk)));
            if let Ok((tree, disk)) = opened {
                self.tree = tree;
                self.disk = Some(disk);
            }
        }
        ended
    }
}
