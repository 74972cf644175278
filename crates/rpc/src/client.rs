//! The client's side of remote procedure calls: a program's calls over successive connections.

use std::time::Duration;

use longhaul_proto::rpc::{Room, RpcCode, RpcError};
use longhaul_proto::share::Prefix;
use longhaul_session::retry::{Retries, silence};
use longhaul_session::{Connection, Error, Kind, Session, random_u64};
use tokio::sync::mpsc;

use crate::ends::Ends;
use crate::handle::{Order, Rpc};
use crate::link;
use crate::messages::{Begin, SERVICE, Said, Say, VERSION};
use crate::method::Methods;

/// A connection with its first, unused stream.
pub type Connected = (Connection, Session);

/// The calls of a program.
#[derive(Debug)]
pub struct Program {
    orders: mpsc::UnboundedReceiver<Order>,
    own: Rpc,
    methods: Methods,
}

impl Program {
    /// Returns the calls of a program that offers `methods` to its server.
    pub fn new(methods: Methods) -> Program {
        let (order, orders) = mpsc::unbounded_channel();
        Program { orders, own: Rpc::new(order), methods }
    }

    /// Returns the program's handle. The connection ends when the last clone is dropped and no call
    /// is pending.
    pub fn handle(&self) -> Rpc {
        self.own.holding()
    }

    /// Makes the calls over the connection `first`. After a loss, retries `connect` for at most
    /// `retry_for`. If `connect` fails for good, or a connection ends with another error than a
    /// loss, all pending and further calls return the reason. Returns when `ends` completes, or
    /// when the program holds no handle and no call is pending.
    pub async fn run(
        self,
        first: Connected,
        connect: impl AsyncFn() -> Result<Connected, Error>,
        retry_for: Duration,
        ends: impl Future<Output = ()>,
    ) {
        let Program { mut orders, methods, own } = self;
        let mut begin = Begin { instance: random_u64(), first: true };
        let mut calls = Ends::new(true, false, methods, own);
        let work = async {
            let (mut next, mut retries) = (first, Retries::new(retry_for));
            loop {
                let ended = work(next, &mut calls, &mut orders, &begin).await;
                begin.first = false;
                calls.lost(true);
                calls.restart();
                let Err(error) = ended else { return };
                if error.kind != Kind::Lost {
                    return refuse(RpcCode::Denied, &error, &mut calls, &mut orders).await;
                }
                let connected = tokio::select! {
                    connected = retries.again(&connect) => connected,
                    () = link::idle(&mut calls, &mut orders) => return,
                };
                next = match connected {
                    Ok(connected) => connected,
                    Err(error) => {
                        return refuse(RpcCode::Lost, &error, &mut calls, &mut orders).await;
                    }
                };
            }
        };
        tokio::select! {
            () = work => {}
            () = ends => {}
        }
    }
}

/// Answers all calls with the reason of a failure, until the program drops its handles.
async fn refuse(
    code: RpcCode,
    error: &Error,
    calls: &mut Ends,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) {
    let error = RpcError::new(code, error.to_string());
    calls.fail(&error);
    while !calls.is_released()
        && let Some(order) = orders.recv().await
    {
        calls.take(order);
        calls.fail(&error);
    }
}

async fn work(
    (connection, mut session): Connected,
    calls: &mut Ends,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    begin: &Begin,
) -> Result<(), Error> {
    session.ask_for(SERVICE, VERSION);
    calls.connected(session.peer.to_string(), Prefix::ALL);
    let silent = silence(session.rtt());
    let (mut writer, mut reader) = session.split();
    writer.queue(&Say { said: Some(Said::Begin(begin.clone())) })?;
    // A program has only one server, so only the limits of `longhaul_proto::rpc` apply.
    let room = || Room { calls: true, streams: true };
    let ended = tokio::select! {
        ended = link::run(calls, orders, &mut writer, &mut reader, room, |_| {}) => ended,
        error = silent => Err(error),
    };
    if ended.is_ok() && !calls.is_finished() {
        return Err(Error::new(Kind::Lost, "the server ended the session"));
    }
    if ended.is_ok() {
        let _ = writer.leave(reader).await;
        connection.close().await;
    }
    ended
}
