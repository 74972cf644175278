//! The shared tree, remote files, mounts, HTTP and remote calls under faults of the network, the
//! server and the client.
//!
//! A session ends after 30 s of silence, so it survives an outage of 20 s. A client of the shared
//! tree or of calls reconnects after some seconds of silence. One test runs all cases in parallel,
//! because they mostly wait.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ChildStdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_transfer::api::blocking::wait;
use longhaul_transfer::api::{
    Client, Edited, Identity as Key, RpcCall, RpcCode, RpcError, RpcOptions, Server as Methods,
    Share, Trust, access_list,
};
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};

use super::cat::{cat, is, of_pair};
use super::http::{Http, READER, WRITER};
use super::liar::block_on;
use super::mount::{Mounted, fuse};
use super::relay::Relay;
use super::{share, write_at};
use crate::rig::{Child, Ended, Pair, bytes, need, send_signal, side_by_side, wait_until, write};

const MEBI: usize = 1 << 20;
pub(super) const OUTAGE: Duration = Duration::from_secs(20);
/// Bytes of a file. A client requests 32 MiB in advance, so when a fault begins, the server still
/// has a part to send.
const LONG: usize = 36 * MEBI;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    Cut,
    FrozenServer,
    FrozenClient,
}

impl Fault {
    /// Begins the fault. `server` and `client` are process ids. The returned function waits until
    /// the fault has lasted for [`OUTAGE`], and then ends the fault.
    pub(super) fn begin(self, relay: &Relay, server: u32, client: u32) -> impl FnOnce() {
        let set = move |is_on| {
            let signal = if is_on { Signal::STOP } else { Signal::CONT };
            match self {
                Fault::Cut => relay.rules.cut.store(is_on, Ordering::Relaxed),
                Fault::FrozenServer => send_signal(server, signal),
                Fault::FrozenClient => send_signal(client, signal),
            }
        };
        set(true);
        let begun = Instant::now();
        move || {
            thread::sleep(OUTAGE.saturating_sub(begun.elapsed()));
            set(false);
        }
    }
}

fn put(share: &Share, value: &str) {
    let edited = wait(share.put("tree/far", value.as_bytes()).into_future());
    assert!(matches!(edited, Ok(Edited::Made(_))), "{value}: {edited:?}");
}

fn sees(watch: &mut Child, value: &str) {
    watch.event(|event| event["event"] == "value" && event["value"] == value);
}

/// Asserts that a watch got each version, or a snapshot in its place.
fn assert_no_gap(watch: &Ended, fault: Fault) {
    let (mut newest, mut of_snapshot) = (None, 0);
    for line in &watch.stdout {
        let event: Value = serde_json::from_str(line).expect("an event");
        if event["event"] == "snapshot" {
            of_snapshot = event["values"].as_u64().expect("a count");
            continue;
        }
        let version = event["version"].as_u64().expect("a version");
        if of_snapshot > 0 {
            of_snapshot -= 1;
            newest = newest.max(Some(version));
            continue;
        }
        assert!(newest.is_none_or(|before| version == before + 1), "{fault:?}: {watch}");
        newest = Some(version);
    }
}

fn share_continues(fault: Fault) {
    let mut sharing = share::pair("share=rw");
    let relay = Relay::new(&sharing.server);
    let server = sharing.pair.server.child().id();
    let (id, far) = (sharing.server.id.clone(), format!("lh://{}/", relay.address()));
    let words = ["share", "watch", "--json", &format!("--server-id={id}"), &far];
    let mut watch = Child::spawn(&mut sharing.client.command(words));
    watch.event(|event| event["event"] == "snapshot");
    let identity = Key::load_or_create(&sharing.client.config).expect("the client has one");
    let client = Client::builder().identity(identity).trust(Trust::only(id)).build().unwrap();
    let writer = wait(client.share(far).into_future()).expect("it answers");
    put(&writer, "before");
    sees(&mut watch, "before");
    let end = fault.begin(&relay, server, watch.id());
    thread::scope(|scope| {
        scope.spawn(|| put(&writer, "meanwhile"));
        if fault != Fault::FrozenServer {
            for value in ["1", "2", "3"] {
                share::share(&sharing, "put", "tree/near", &[value]).is(0, &[]);
            }
        }
        end();
    });
    put(&writer, "after");
    sees(&mut watch, "after");
    let found = wait(writer.snapshot("tree/far")).expect("it answers");
    assert_eq!(&*found[0].1.bytes, b"after", "{fault:?}");
    watch.signal(Signal::INT);
    assert_no_gap(&watch.end(), fault);
}

fn presence_ends_with_its_frozen_client(_: Fault) {
    let sharing = share::pair("share=rw");
    let start = |verb, key, more: &[&str]| {
        Child::spawn(&mut sharing.client.command(share::words(&sharing, verb, key, more)))
    };
    let mut watch = start("watch", "", &["--json"]);
    watch.event(|event| event["event"] == "snapshot");
    let mut lock = start("put", "lock", &["me", "--presence", "--if-version=0"]);
    watch.event(|event| event["key"] == "lock");
    lock.line().expect("it holds the key");
    lock.signal(Signal::STOP);
    watch.event(|event| event["event"] == "deleted" && event["key"] == "lock");
    share::share(&sharing, "put", "lock", &["another's", "--if-version=0"]).is(0, &[]);
    lock.signal(Signal::CONT);
    lock.ended().is(1, &["the presence of lock is lost"]);
    assert_eq!(share::share(&sharing, "get", "lock", &[]).stdout, ["another's"]);
}

fn serve_long(len: usize) -> (Pair, Relay, Vec<u8>) {
    let pair = Pair::in_memory(&[]);
    let (relay, content) = (Relay::new(&pair.server), bytes(len, 1));
    write(&pair.there.join("long"), &content);
    (pair, relay, content)
}

/// Starts to read the file `long`. Returns the program, its output and the first bytes.
fn begin_cat(pair: &Pair, relay: &Relay) -> (std::process::Child, ChildStdout, Vec<u8>) {
    let far = format!("lh://{}/long", relay.address());
    let mut child = cat(&pair.client, &pair.server.id, &[&far]).spawn().expect("it starts");
    let mut out = child.stdout.take().expect("it is piped");
    let mut came = vec![0; MEBI];
    out.read_exact(&mut came).expect("the first bytes come");
    (child, out, came)
}

fn cat_continues(fault: Fault) {
    let (mut pair, relay, content) = serve_long(LONG);
    let (child, mut out, mut came) = begin_cat(&pair, &relay);
    let end = fault.begin(&relay, pair.server.child().id(), child.id());
    if fault != Fault::FrozenServer {
        is(&of_pair(&pair, &["--range=5-9"], "long"), &content[5..9]);
    }
    end();
    out.read_to_end(&mut came).expect("a pipe");
    is(&child.wait_with_output().expect("it ends"), b"");
    assert!(came == content, "{fault:?}: {} bytes", came.len());
}

fn cat_of_a_killed_server_ends_with_advice(_: Fault) {
    let (mut pair, relay, content) = serve_long(LONG);
    let (child, mut out, mut came) = begin_cat(&pair, &relay);
    pair.server.child().signal(Signal::KILL);
    out.read_to_end(&mut came).expect("a pipe");
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    // The session ends after 30 s, or the client stops waiting for its read.
    assert!(said.contains("was lost") || said.contains("was silent for 30 s"), "{said}");
    assert!(said.contains("and open the file again"), "{said}");
    assert!(content.starts_with(&came) && came.len() < content.len());
}

fn writes_continue(fault: Fault) {
    let (mut pair, relay, _) = serve_long(MEBI);
    let server = pair.server.child().id();
    let (made, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let made_now = || made.load(Ordering::Relaxed);
    let writes = async {
        let url = format!("lh://{}/", relay.address());
        let connection = write_at::connect(&pair.client, &pair.server.id, url).await;
        let file = connection.open_file_to_write("new").await.expect("it opens");
        while !is_over.load(Ordering::Relaxed) {
            let number = made_now();
            file.write_at(number * 8, &number.to_le_bytes()).await.expect("it continues");
            made.fetch_add(1, Ordering::Relaxed);
        }
        file.sync().await.expect("it continues");
    };
    let assert_there = |count: u64| {
        let found = fs::read(pair.there.join("new")).expect("it is there");
        let (numbers, _) = found.as_chunks::<8>();
        let right = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).zip(0..count);
        assert_eq!(right.filter(|(found, number)| found == number).count() as u64, count);
    };
    thread::scope(|scope| {
        let writer = scope.spawn(|| block_on(writes));
        wait_until("some writes are made", || made_now() > 10);
        let end = fault.begin(&relay, server, 0);
        assert_there(made_now());
        if fault == Fault::Cut {
            of_pair(&pair, &["--range=5-9"], "long");
        }
        end();
        let before = made_now();
        wait_until("further writes are made", || made_now() > before + 10 || writer.is_finished());
        is_over.store(true, Ordering::Relaxed);
    });
    assert_there(made_now());
}

fn mount_continues(fault: Fault) {
    need!(fuse());
    let (mut pair, relay, content) = serve_long(16 * MEBI);
    // The file is larger than the cache, so the client still requests data during the fault.
    let mounted = Mounted::of(&pair, &["--cache=8Mi"], format!("lh://{}/", relay.address()));
    let mut file = fs::File::open(mounted.at.join("long")).expect("it is there");
    let mut came = vec![0; MEBI];
    file.read_exact(&mut came).expect("the first bytes come");
    let end = fault.begin(&relay, pair.server.child().id(), mounted.child.id());
    thread::scope(|scope| {
        scope.spawn(|| file.read_to_end(&mut came).expect("it continues"));
        end();
    });
    assert!(came == content, "{fault:?}: {} bytes", came.len());
    drop(file);
    mounted.child.signal(Signal::TERM);
    mounted.child.end().is(0, &[]);
}

fn http_continues(fault: Fault) {
    let mut http = Http::new(&[]);
    let content = bytes(16 * MEBI, 2);
    write(&http.data.join("long"), &content);
    write(&http.data.join("small"), b"small");
    let address = http.address();
    let relay = Relay::to(address, address);
    let begin = |head: String| {
        let mut stream = TcpStream::connect(relay.address()).expect("it listens");
        stream.write_all(head.replace('\n', "\r\n").as_bytes()).expect("a socket");
        stream
    };
    let auth = |token| format!("Host: h\nConnection: close\nAuthorization: Bearer {token}\n");
    let mut get = begin(format!("GET /long HTTP/1.1\n{}\n", auth(READER)));
    let length = format!("Content-Length: {}\n\n", content.len());
    let mut put = begin(format!("PUT /new HTTP/1.1\n{}{length}", auth(WRITER)));
    let (first, rest) = content.split_at(MEBI);
    put.write_all(first).expect("a socket");
    let mut came = vec![0; MEBI];
    get.read_exact(&mut came).expect("the first bytes come");
    let server = http.server.child().id();
    // This process is the client, so a pause of its reads and writes stands for a freeze.
    let end: Box<dyn FnOnce()> = match fault {
        Fault::FrozenClient => Box::new(|| thread::sleep(OUTAGE)),
        fault => Box::new(fault.begin(&relay, server, 0)),
    };
    if fault != Fault::FrozenServer {
        (0..20).for_each(|_| assert!(http.ask(READER, "GET", "/small", "").ends_with("small")));
        assert!(!http.data.join("in/new").exists(), "it is not whole");
    }
    end();
    put.write_all(rest).expect("the server reads on");
    let mut reply = String::new();
    put.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 201 "), "{fault:?}: {reply}");
    assert!(fs::read(http.data.join("in/new")).expect("it was put") == content);
    get.read_to_end(&mut came).expect("the rest");
    assert!(came.ends_with(&content), "{fault:?}: {} bytes", came.len());
}

/// Client and server run in this process, which a signal would freeze as a whole. So the network is
/// cut instead.
fn calls_continue(_: Fault) {
    let (host, me) = (Key::generate(), Key::generate());
    let (runs, begun, may_end) = (AtomicU32::new(0), Notify::new(), Semaphore::new(0));
    let gate = Arc::new((runs, begun, may_end));
    let method = gate.clone();
    let wait_at_gate = move |(): (), _: RpcCall| {
        let gate = method.clone();
        async move {
            let (runs, begun, may_end) = &*gate;
            let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
            begun.notify_one();
            let _ = may_end.acquire().await;
            Ok::<u32, RpcError>(run)
        }
    };
    let right = access_list::parse(&format!("{},rpc=/", me.id())).expect("an entry");
    let server = Methods::builder(host.clone()).rooms_only().allow_all([right]);
    let server = server.rpc("wait", wait_at_gate).listen("127.0.0.1:0");
    let server = server.rpc("echo", async |number: u64, _: RpcCall| Ok::<_, RpcError>(number));
    let trust = Trust::only(host.id().to_string());
    let client = Client::builder().identity(me).trust(trust).build().expect("it has an identity");
    let options = RpcOptions::default();
    block_on(async {
        let server = server.start().await.expect("it listens");
        let data = (server.address().ip(), server.data_port()).into();
        let relay = Relay::to(server.address(), data);
        let far = client.rpc(format!("lh://{}", relay.address())).await.expect("it answers");
        let near = client.rpc(format!("lh://{}", server.address())).await.expect("it answers");
        let spawned = |rpc: &longhaul_transfer::api::Rpc| {
            let rpc = rpc.clone();
            tokio::spawn(async move { rpc.call::<u32>("wait", &(), options).await })
        };
        let answered = spawned(&far);
        gate.1.notified().await;
        let with_items = far.open("wait", &(), options).expect("it is short");
        gate.1.notified().await;
        relay.rules.cut.store(true, Ordering::Relaxed);
        let repaired = tokio::time::sleep(OUTAGE);
        let short = RpcOptions::within(Duration::from_secs(1));
        let late = far.call::<u64>("echo", &1_u64, short).await.expect_err("nobody answers");
        assert_eq!(late.code, RpcCode::Deadline);
        let lost = with_items.answer::<u32>().await.expect_err("nobody answers");
        assert_eq!(lost.code, RpcCode::Lost, "{lost}");
        assert_eq!(near.call::<u64>("echo", &2_u64, options).await, Ok(2));
        // Now `wait` ends, and the first answer to the call `answered` is lost.
        gate.2.add_permits(8);
        let sent = tokio::spawn({
            let far = far.clone();
            async move { far.call::<u64>("echo", &3_u64, options).await }
        });
        repaired.await;
        relay.rules.cut.store(false, Ordering::Relaxed);
        assert_eq!(answered.await.expect("no panic"), Ok(1), "it ran once");
        assert_eq!(sent.await.expect("no panic"), Ok(3));
        assert_eq!(gate.0.load(Ordering::Relaxed), 2, "each call ran once");
        far.close().await;
        near.close().await;
    });
}

#[test]
fn every_service_survives_20_s_without_peer_or_network_and_delays_no_other_client() {
    let all = [Fault::Cut, Fault::FrozenServer, Fault::FrozenClient];
    let services: [fn(Fault); 4] =
        [share_continues, cat_continues, mount_continues, http_continues];
    let each = services.into_iter().flat_map(|service| all.map(|fault| (service, fault)));
    let others: [(fn(Fault), Fault); 5] = [
        (writes_continue, Fault::Cut),
        (writes_continue, Fault::FrozenServer),
        (calls_continue, Fault::Cut),
        (presence_ends_with_its_frozen_client, Fault::FrozenClient),
        (cat_of_a_killed_server_ends_with_advice, Fault::FrozenServer),
    ];
    side_by_side(each.chain(others), |(service, fault)| service(fault));
}
