//! The server's side of remote procedure calls. A program of a client may use several connections,
//! one after the other.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use longhaul_proto::rpc::{CALLS, Room, STREAMS};
use longhaul_proto::share::Prefix;
use longhaul_session::{Error, Kind, Session};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::sleep;

use crate::convert::wrong;
use crate::ends::Ends;
use crate::handle::{Order, Rpc};
use crate::link;
use crate::messages::{Begin, Said, Say};
use crate::method::Methods;

/// Maximum number of programs of one client.
const PROGRAMS: usize = 8;
/// How long the server keeps the calls of a disconnected program.
const KEEP: Duration = Duration::from_secs(300);

/// The client and the random number of a program.
type Name = ([u8; 32], u64);

/// The methods of a server, and the programs that call them.
#[derive(Debug)]
pub struct Calls {
    methods: Methods,
    programs: RefCell<BTreeMap<Name, Rc<Program>>>,
}

#[derive(Debug)]
struct Program {
    state: Mutex<State>,
    /// The number of connections so far; the program's eviction counts as one. Each change ends the
    /// connection with the earlier number, or, if the program is disconnected, the task that keeps
    /// the program.
    connections: watch::Sender<u64>,
    /// Number of running methods, and how many of them exchange items.
    running: Cell<(usize, usize)>,
    /// When the program's last connection ended; `None` while the program is connected.
    left: Cell<Option<Instant>>,
}

struct State {
    ends: Ends,
    orders: mpsc::UnboundedReceiver<Order>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("State")
    }
}

impl Calls {
    /// Returns a server that answers calls of `methods`.
    pub fn new(methods: Methods) -> Rc<Calls> {
        Rc::new(Calls { methods, programs: RefCell::default() })
    }

    /// Answers the calls of a session until it ends, and says goodbye; `first` is the session's
    /// first message. The client may call the methods whose names `may` contains. Ends early with
    /// the reason that `stopped` returns.
    ///
    /// # Errors
    /// The session ended for any other reason than the client's goodbye.
    pub async fn serve(
        self: &Rc<Self>,
        session: Session,
        first: Say,
        may: Prefix,
        stopped: impl Future<Output = Error>,
    ) -> Result<(), Error> {
        let peer = session.peer;
        let (mut writer, mut reader) = session.split();
        let entered = match first.said {
            Some(Said::Begin(begin)) => self.enter(peer.0, &begin),
            _ => Err(wrong("the first message of a stream is not Begin")),
        };
        let ended = match entered {
            Err(error) => Err(error),
            Ok((name, program)) => {
                let mut connections = program.connections.subscribe();
                program.connections.send_modify(|count| *count += 1);
                let mine = *connections.borrow_and_update();
                program.left.set(None);
                let _away = Away(&program, mine);
                let work = async {
                    let State { ends, orders } = &mut *program.state.lock().await;
                    ends.connected(peer.to_string(), may);
                    let lost = Lost(&program, ends);
                    let room = || self.room(peer.0);
                    let noted = |ends: &Ends| program.running.set(ends.running());
                    link::run(&mut *lost.1, orders, &mut writer, &mut reader, room, noted).await
                };
                let ended = tokio::select! {
                    ended = work => ended,
                    why = stopped => Err(why),
                    _ = connections.wait_for(|count| *count != mine) => {
                        let why = "another connection of this program has replaced this one";
                        Err(Error::new(Kind::Lost, why))
                    }
                };
                match (&ended, program.connections.borrow().eq(&mine)) {
                    (Ok(()), true) => drop(self.programs.borrow_mut().remove(&name)),
                    (Err(_), true) => self.keep(name, program.clone(), mine),
                    // A newer connection uses the program.
                    (_, false) => {}
                }
                ended
            }
        };
        let _ = writer.close(reader, ended.as_ref().err().cloned()).await;
        ended
    }

    /// Returns the program that `begin` names, or creates it. At the limit of [`PROGRAMS`], evicts
    /// the client's program that disconnected first.
    ///
    /// # Errors
    /// The limit is reached, and all programs of the client are connected.
    fn enter(&self, client: [u8; 32], begin: &Begin) -> Result<(Name, Rc<Program>), Error> {
        let (name, mut programs) = ((client, begin.instance), self.programs.borrow_mut());
        if let Some(program) = programs.get(&name) {
            return Ok((name, program.clone()));
        }
        let of_client = (client, 0)..=(client, u64::MAX);
        if programs.range(of_client.clone()).count() >= PROGRAMS {
            let away = programs.range(of_client);
            let away = away.filter_map(|(name, program)| Some((program.left.get()?, *name)));
            let (_, oldest) = away.min().ok_or_else(|| {
                let what = format!("this client has {PROGRAMS} programs here, which is the limit");
                Error::new(Kind::Unreachable, what)
            })?;
            let evicted = programs.remove(&oldest);
            if let Some(program) = evicted {
                program.connections.send_modify(|count| *count += 1);
            }
        }
        let (order, orders) = mpsc::unbounded_channel();
        let ends = Ends::new(false, !begin.first, self.methods.clone(), Rpc::new(order));
        let state = Mutex::new(State { ends, orders });
        let (connections, running) = (watch::Sender::new(0), Cell::default());
        let program = Rc::new(Program { state, connections, running, left: Cell::new(None) });
        programs.insert(name, program.clone());
        Ok((name, program))
    }

    #[cfg(test)]
    pub(crate) fn programs(&self) -> usize {
        self.programs.borrow().len()
    }

    fn room(&self, client: [u8; 32]) -> Room {
        let programs = self.programs.borrow();
        let of_client = programs.range((client, 0)..=(client, u64::MAX));
        let running = of_client.map(|(_, program)| program.running.get());
        let (calls, streams) =
            running.fold((0, 0), |(calls, streams), (c, s)| (calls + c, streams + s));
        Room { calls: calls < 2 * CALLS, streams: streams < 2 * STREAMS }
    }

    /// Carries out the orders of a disconnected program. Removes the program if it has not
    /// reconnected within [`KEEP`], or as soon as the server has dropped every [`Rpc`] of the
    /// program and no call is open.
    fn keep(self: &Rc<Self>, name: Name, program: Rc<Program>, mine: u64) {
        let calls = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            let mut connections = program.connections.subscribe();
            let mut state = program.state.lock().await;
            let State { ends, orders } = &mut *state;
            tokio::select! {
                () = link::idle(ends, orders) => {}
                _ = connections.wait_for(|count| *count != mine) => {}
                () = sleep(KEEP) => {}
            }
            // The program may have reconnected, or been evicted, at the same moment.
            let is_away = *connections.borrow() == mine;
            if let Some(calls) = calls.upgrade().filter(|_| is_away) {
                calls.programs.borrow_mut().remove(&name);
            }
        });
    }
}

/// Notes when the program's last connection ended, however it ended. Has this connection's number.
struct Away<'a>(&'a Program, u64);

impl Drop for Away<'_> {
    fn drop(&mut self) {
        if self.0.connections.borrow().eq(&self.1) {
            self.0.left.set(Some(Instant::now()));
        }
    }
}

/// Marks the end of a connection, however it ends.
struct Lost<'a>(&'a Program, &'a mut Ends);

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        self.1.lost(false);
        self.0.running.set(self.1.running());
    }
}
