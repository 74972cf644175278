//! The server's side: answers the streams of clients out of one tree.

use std::cell::Cell;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use longhaul_proto::share::{Limits, Refusal, Right, Watcher};
use longhaul_session::{Error, FrameReader, FrameWriter, Kind, Session};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::convert;
use crate::messages::{Answer, Ask, Asked, Get, Put, Tell, Told, Watch};
use crate::store::{Command, Failed, Store};

/// Calls of one stream that are not answered yet, at most.
pub(crate) const CALLS: usize = 64;
/// How long a client may leave a message unread.
const UNREAD: Duration = Duration::from_secs(60);

/// A tree that clients share.
#[derive(Debug)]
pub struct Shared {
    store: Store,
    /// This run of the server.
    run: u64,
    clients: Cell<u64>,
}

/// A presence that ends with its stream.
struct Client<'a>(&'a Store, u64);

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.0.order(Command::Gone(self.1));
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Answer, Error>>>>;

impl Shared {
    /// Opens the tree in the file at `path`, which is made where it is not there.
    ///
    /// # Errors
    /// [`Kind::LocalFile`]: the file cannot be read or written, is no such file, or another process
    /// has it open.
    pub fn open(path: &Path) -> Result<Rc<Shared>, Error> {
        let mut run = [0; 8];
        aws_lc_rs::rand::fill(&mut run).expect("the system has randomness");
        let store = Store::open(path, Limits::default())?;
        // 0 is a client that has nothing.
        let run = u64::from_ne_bytes(run).max(1);
        Ok(Rc::new(Shared { store, run, clients: Cell::new(0) }))
    }

    /// Answers a stream to its end, and says goodbye; `first` is its first message. Ends with the
    /// reason that `stopped` gives.
    ///
    /// # Errors
    /// Why it ended, where that was not the client's own wish.
    pub async fn serve(
        &self,
        session: Session,
        first: Ask,
        right: Right,
        stopped: impl Future<Output = Error>,
    ) -> Result<(), Error> {
        let (mut writer, mut reader) = session.split();
        let work = async {
            match first.asked {
                Some(Asked::Watch(watch)) => {
                    self.watch(&mut writer, &mut reader, watch, &right).await
                }
                _ => self.calls(&mut writer, &mut reader, first, &right).await,
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
            loop {
                let piece;
                (watcher, piece) = self.store.next(watcher).await?;
                tell(writer, Told::Part(convert::part(self.run, piece))).await?;
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
        right: &Right,
    ) -> Result<(), Error> {
        self.clients.set(self.clients.get() + 1);
        let client = Client(&self.store, self.clients.get());
        let (queue, mut answers) = mpsc::channel::<Answering>(CALLS);
        let takes = async {
            let mut asked = Some(first);
            while let Some(ask) = asked {
                if let Some(asked) = ask.asked {
                    let answering = self.begin(asked, client.1, right)?;
                    // It fails only where the answers have failed.
                    let _ = queue.send(answering).await;
                }
                asked = reader.read::<Ask>().await?;
            }
            drop(queue);
            Ok(())
        };
        let answers = async {
            while let Some(answering) = answers.recv().await {
                tell(writer, Told::Answer(answering.await?)).await?;
            }
            Ok(())
        };
        tokio::try_join!(takes, answers).map(drop)
    }

    /// Gives a call to the tree, in the order of the calls; the answer comes later.
    fn begin(&self, asked: Asked, client: u64, right: &Right) -> Result<Answering, Error> {
        match asked {
            Asked::Get(get) => Ok(self.begin_get(get, right)),
            Asked::Put(put) => Ok(self.begin_put(put, client, right)),
            Asked::Watch(_) => Err(Error::new(Kind::Usage, "a watch needs a stream of its own")),
        }
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
        let reading = self.store.read(key.clone());
        Box::pin(async move {
            let (revision, entry) = reading.await?;
            let item = entry.map(|entry| convert::item(&key, entry));
            Ok(Answer { id, revision, item, ..Answer::default() })
        })
    }

    fn begin_put(&self, put: Put, client: u64, right: &Right) -> Answering {
        let id = put.id;
        let edit = convert::edit(put, client).and_then(|edit| {
            match right.write && right.prefix.contains(edit.key.as_str()) {
                true => Ok(edit),
                false => Err(forbidden("change", edit.key.as_str(), right)),
            }
        });
        let edit = match edit {
            Ok(edit) => edit,
            Err(error) => return refused(id, &error.what),
        };
        let (key, may_read) = (edit.key.clone(), right.read);
        let making = self.store.edit(edit);
        Box::pin(async move {
            let (revision, made) = making.await?;
            let answer = Answer { id, revision, ..Answer::default() };
            Ok(match made {
                Ok(version) => Answer { version, ..answer },
                Err(Failed::Refused(Refusal::Conflict(now))) => {
                    let now = now.filter(|_| may_read);
                    let item = now.map(|entry| convert::item(&key, entry));
                    Answer { result: 1, item, ..answer }
                }
                Err(failed) => Answer { result: 2, why: why(&failed), ..answer },
            })
        })
    }
}

fn why(failed: &Failed) -> String {
    match failed {
        Failed::Refused(Refusal::Full) => "the shared tree is full; delete keys".to_owned(),
        Failed::Refused(Refusal::Long) => "the value is too long".to_owned(),
        Failed::Refused(Refusal::Conflict(_)) => "the key has changed".to_owned(),
        Failed::Disk(why) => format!("the server cannot store it: {why}"),
    }
}

fn refused(id: u64, why: &str) -> Answering {
    let answer = Answer { id, result: 2, why: why.to_owned(), ..Answer::default() };
    Box::pin(async { Ok(answer) })
}

fn forbidden(verb: &str, key: &str, right: &Right) -> Error {
    let below = right.prefix.as_str();
    let what = format!("this client may not {verb} '{key}'; it has rights below '{below}'");
    Error::new(Kind::Unreachable, what).advise("ask who runs the server")
}

async fn tell(writer: &mut FrameWriter, told: Told) -> Result<(), Error> {
    let unread = |_| Error::new(Kind::Lost, "the client does not read what it asked for");
    timeout(UNREAD, writer.write(&Tell { told: Some(told) })).await.map_err(unread)?
}
