//! Hostile peers open a real session with the real binary, and send messages that a test chooses.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use longhaul_transfer::control::{Direction, Frame, Message, Offer, Request};
use longhaul_transfer::error::Error;
use longhaul_transfer::options::{ServerPin, Trust};
use longhaul_transfer::progress::{Notice, Observer, Progress};
use longhaul_transfer::session::trust::ask_nobody;
use longhaul_transfer::session::{Identity, Listener, Session, Settings, connect};
use tokio::sync::oneshot;

use crate::rig::{DEADLINE, Host, Pair};

pub(super) const FLOW: u32 = 7;

pub(super) struct Nobody;

impl Observer for Nobody {
    fn progress(&self, _: &Progress) {}

    fn notice(&self, _: Notice) {}

    fn trust_new_server(&self, _: &str, _: &str) -> bool {
        false
    }
}

/// Starts a server that reads a message of `service`, sends `lies` and hangs up. Calls `asks` with
/// a client, the server's id and a location on the server; returns the result of `asks`.
pub(super) fn lied<Asked: prost::Message + Default, Ended>(
    service: &'static str,
    lies: Vec<impl prost::Message + 'static>,
    asks: impl FnOnce(&Host, &str, OsString) -> Ended,
) -> Ended {
    lied_after(service, |_: &Asked| true, lies, asks)
}

/// Like [`lied`], but the server reads all messages up to the first for which `is_last` holds.
pub(super) fn lied_after<Asked: prost::Message + Default, Ended>(
    service: &'static str,
    is_last: impl Fn(&Asked) -> bool + Send + 'static,
    lies: Vec<impl prost::Message + 'static>,
    asks: impl FnOnce(&Host, &str, OsString) -> Ended,
) -> Ended {
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    let client = Host::new(scratch.path());
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = thread::spawn(move || {
        block_on(async {
            let identity = Identity::generate();
            let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
            let mut listener =
                Listener::bind(anywhere, &identity, &Settings::default()).expect("a free port");
            let _ = ready.send((listener.local_addr(), identity.id().to_string()));
            // The client's first stream requests the service.
            let mut session: Session = listener.accept().await;
            assert_eq!(session.asked().0, service);
            while let Ok(Some(asked)) = session.read::<Asked>().await
                && !is_last(&asked)
            {}
            for lie in lies {
                let _ = session.write(&lie).await;
            }
            let _ = session.close(None).await;
        });
    });
    let (address, id) = is_ready.recv().expect("it listens");
    let ended = asks(&client, &id, format!("lh://{address}/x").into());
    server.join().expect("no panic");
    ended
}

/// An honest request, which a test then changes.
pub(super) fn request(direction: Direction, path: &str) -> Request {
    Request {
        direction: direction as i32,
        paths: vec![path.into()],
        transfer: 1,
        flow: FLOW,
        recursive: true,
        protocol: "rbudp".into(),
        cipher: "aes-128-gcm".into(),
        datagram: 1200,
        rtt_nanos: 1_000_000,
        rate_bps: 20_000_000,
        ..Request::default()
    }
}

pub(super) fn offer(encoded: Vec<u8>, bytes: u64) -> Message {
    let manifest_digest = blake3::hash(&encoded).as_bytes().to_vec();
    let object_len = bytes;
    Message::Offer(Offer { manifest: encoded, manifest_digest, object_len, ..Offer::default() })
}

/// Runs `talk` to its end; panics after the deadline.
pub(super) fn block_on<T>(talk: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime for the test");
    runtime.block_on(async { tokio::time::timeout(DEADLINE, talk).await.expect("it ends") })
}

/// Sends `said` to the pair's server; returns the answers and the close reason.
pub(super) fn talk(
    pair: &Pair,
    said: impl IntoIterator<Item = Message>,
) -> (Vec<Message>, Option<Error>) {
    talk_as(pair, &pair.client, said)
}

/// Like [`talk`], as `client`, which the server may refuse.
pub(super) fn talk_as(
    pair: &Pair,
    client: &Host,
    said: impl IntoIterator<Item = Message>,
) -> (Vec<Message>, Option<Error>) {
    block_on(async {
        let mut session = meet(pair, client).await;
        for message in said {
            // The server may hang up before the last message.
            if session.write(&Frame::from(message)).await.is_err() {
                break;
            }
        }
        listen(&mut session, |message| matches!(message, Message::Outcome(_))).await
    })
}

pub(super) async fn meet(pair: &Pair, client: &Host) -> Session {
    let identity = Identity::load_or_create(&client.config).expect("the client has one");
    let trust = Trust {
        config_dir: client.config.clone(),
        pins: vec![ServerPin { server: None, id: pair.server.id.clone() }],
        accept_new: false,
    };
    let address: SocketAddr = pair.server.address.parse().expect("a server's address");
    let (host, settings) = (address.ip().to_string(), Settings::default());
    connect(&host, address.port(), &identity, &trust, &ask_nobody, &settings)
        .await
        .expect("it answers")
}

/// Sends `asks` on one stream to this version of `service`. Reads answers until the stream ends or
/// `most` + 1 answers have arrived. Returns the first `most` answers, and the reason if the server
/// ends the stream with an error.
pub(super) fn told<Tell: prost::Message + Default>(
    pair: &Pair,
    (service, version): (&str, u32),
    asks: Vec<impl prost::Message>,
    most: usize,
) -> (Vec<Tell>, Option<String>) {
    block_on(async {
        let mut session = meet(pair, &pair.client).await;
        session.ask_for(service, version);
        for ask in asks {
            if session.write(&ask).await.is_err() {
                break;
            }
        }
        let mut heard = Vec::new();
        loop {
            match session.read::<Tell>().await {
                Ok(Some(tell)) if heard.len() < most => heard.push(tell),
                Ok(_) => return (heard, None),
                Err(error) => return (heard, Some(error.what)),
            }
        }
    })
}

/// Reads messages until `is_last` holds for a message or the session ends. Returns the messages,
/// and the close reason if the session ends with an error.
async fn listen(
    session: &mut Session,
    is_last: impl Fn(&Message) -> bool,
) -> (Vec<Message>, Option<Error>) {
    let mut heard = Vec::new();
    loop {
        match session.read::<Frame>().await {
            Ok(Some(frame)) => {
                let Some(message) = frame.message else { continue };
                let last = is_last(&message);
                heard.push(message);
                if last {
                    return (heard, None);
                }
            }
            Ok(None) => return (heard, None),
            Err(error) => return (heard, Some(error.into())),
        }
    }
}

/// A server that answers every request with lies.
pub(super) struct LyingServer {
    pub(super) address: SocketAddr,
    pub(super) id: String,
    _over: oneshot::Sender<()>,
}

impl LyingServer {
    /// Answers a request with the messages that `lie` returns, then waits for the client to hang
    /// up.
    pub(super) fn start(lie: impl Fn(&Request) -> Vec<Message> + Send + 'static) -> LyingServer {
        LyingServer::answering(move |_, heard| match heard {
            Message::Request(request) => Some(lie(request)),
            _ => Some(Vec::new()),
        })
    }

    /// Calls `lie` with the number of the session, from 0, and each message. Answers with the
    /// messages that `lie` returns; on `None` drops the session.
    pub(super) fn answering(
        mut lie: impl FnMut(usize, &Message) -> Option<Vec<Message>> + Send + 'static,
    ) -> LyingServer {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (over, mut is_over) = oneshot::channel::<()>();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime for the test");
            runtime.block_on(async {
                let identity = Identity::generate();
                let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
                let mut listener =
                    Listener::bind(anywhere, &identity, &Settings::default()).expect("a free port");
                let _ = ready.send((listener.local_addr(), identity.id().to_string()));
                for number in 0.. {
                    let session = tokio::select! {
                        session = listener.accept() => session,
                        _ = &mut is_over => return,
                    };
                    let hung_up = answer(session, |heard| lie(number, heard));
                    tokio::select! {
                        () = hung_up => {}
                        _ = &mut is_over => return,
                    }
                }
            });
        });
        let (address, id) = is_ready.recv_timeout(DEADLINE).expect("it listens");
        LyingServer { address, id, _over: over }
    }

    pub(super) fn at(&self, path: &str) -> String {
        format!("lh://{}/{path}", self.address)
    }
}

async fn answer(mut session: Session, mut lie: impl FnMut(&Message) -> Option<Vec<Message>>) {
    while let Ok(Some(Frame { message: Some(heard) })) = session.read().await {
        let Some(said) = lie(&heard) else { return };
        for message in said {
            if session.write(&Frame::from(message)).await.is_err() {
                return;
            }
        }
    }
}
