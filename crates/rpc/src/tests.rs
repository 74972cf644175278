//! The server's side of remote procedure calls, against clients that send arbitrary messages.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_proto::rpc::{CALLS, MAX_BODY, RpcCode};
use longhaul_proto::share::Prefix;
use longhaul_session::{Error, Kind, PeerId, Session};
use tokio::io::duplex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinHandle, LocalSet};

use crate::handle::RpcOptions;
use crate::messages::{Answer, Begin, Call, Cancel, Credit, Finish, Have, Item, Said, Say};
use crate::method::{Methods, RpcCall};
use crate::server::Calls;

const CLIENT: PeerId = PeerId([1; 32]);
const SERVER: PeerId = PeerId([2; 32]);

fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.expect("a runtime for the test"), work);
}

fn say(said: Said) -> Say {
    Say { said: Some(said) }
}

fn call(id: u64, method: &str) -> Call {
    Call { id, method: method.to_owned(), ..Call::default() }
}

/// Begins a stream of the program `instance`. Returns the client's end of the stream, and the task
/// that serves the stream.
async fn begin(
    calls: &Rc<Calls>,
    instance: u64,
    first: bool,
) -> (Session, JoinHandle<Result<(), Error>>) {
    let (here, there) = (duplex(1 << 20), duplex(1 << 20));
    let mut client = Session::over(SERVER, here.0, there.0);
    let mut server = Session::over(CLIENT, there.1, here.1);
    let calls = calls.clone();
    client.write(&say(Said::Begin(Begin { instance, first }))).await.expect("it is read");
    let serving = tokio::task::spawn_local(async move {
        let begin = server.first::<Say>().await.expect("it came").expect("a message");
        calls.serve(server, begin, Prefix::ALL, std::future::pending()).await
    });
    (client, serving)
}

async fn answer(session: &mut Session) -> Answer {
    let say = session.read::<Say>().await.expect("a message").expect("no goodbye");
    match say.said {
        Some(Said::Answer(answer)) => answer,
        said => panic!("not an answer: {said:?}"),
    }
}

/// A method that waits until the test releases it, and counts its runs.
#[derive(Clone, Default)]
struct Gate {
    runs: Arc<AtomicU32>,
    begun: Arc<Notify>,
    open: Arc<Notify>,
}

impl Gate {
    fn methods(&self) -> Methods {
        let mut methods = Methods::default();
        let gate = self.clone();
        let wait = move |(): (), _: RpcCall| {
            let gate = gate.clone();
            async move {
                let run = gate.runs.fetch_add(1, Ordering::Relaxed) + 1;
                gate.begun.notify_one();
                gate.open.notified().await;
                Ok(run)
            }
        };
        methods.add("wait", wait).expect("a name");
        methods
    }
}

#[test]
fn a_call_over_a_lost_connection_runs_once_and_keeps_its_first_answer() {
    block_on(async {
        let gate = Gate::default();
        let calls = Calls::new(gate.methods());
        let (mut client, serving) = begin(&calls, 7, true).await;
        client.write(&say(Said::Call(call(1, "wait")))).await.expect("it is read");
        gate.begun.notified().await;
        // The connection is lost twice: while the method runs, and after its answer.
        drop(client);
        assert_eq!(serving.await.expect("no panic").unwrap_err().kind, Kind::Lost);
        let again = say(Said::Call(Call { again: true, ..call(1, "wait") }));
        let (mut client, serving) = begin(&calls, 7, false).await;
        client.write(&again).await.expect("it is read");
        gate.open.notify_one();
        let first = answer(&mut client).await;
        assert_eq!((first.id, first.code), (1, 0));
        drop(client);
        let _ = serving.await;
        let (mut client, _serving) = begin(&calls, 7, false).await;
        client.write(&again).await.expect("it is read");
        assert_eq!(answer(&mut client).await, first);
        let (mut other, _serving) = begin(&calls, 8, true).await;
        other.write(&say(Said::Call(call(1, "wait")))).await.expect("it is read");
        gate.open.notify_one();
        assert_ne!(answer(&mut other).await.body, first.body);
        assert_eq!(gate.runs.load(Ordering::Relaxed), 2);
        // The server does not know program 9, so the outcome of its repeated call is unknown.
        let (mut late, _serving) = begin(&calls, 9, false).await;
        late.write(&again).await.expect("it is read");
        assert_eq!(answer(&mut late).await.code, RpcCode::Unknown.number());
        assert_eq!(gate.runs.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn items_of_two_simultaneous_callbacks_travel_with_the_right_call() {
    block_on(async {
        let open = Arc::new(Semaphore::new(0));
        let (mut methods, gate) = (Methods::default(), open.clone());
        let back = move |number: u64, called: RpcCall| {
            let gate = gate.clone();
            async move {
                let stream = called.caller().open("there", &number, RpcOptions::default())?;
                gate.acquire().await.expect("it is open").forget();
                stream.send(&number).await?;
                std::future::pending().await
            }
        };
        methods.add::<u64, u64, _>("back", back).expect("a name");
        let (mut client, _serving) = begin(&Calls::new(methods), 7, true).await;
        for (id, number) in [(1, 10_u64), (3, 20)] {
            let body = prost::Message::encode_to_vec(&number);
            client.write(&say(Said::Call(Call { body, ..call(id, "back") }))).await.expect("read");
        }
        let mut came = [Vec::new(), Vec::new()];
        while came[1].len() < 2 {
            match client.read::<Say>().await.expect("a message").expect("no goodbye").said {
                Some(Said::Call(call)) => came[0].push((call.id, call.body)),
                Some(Said::Item(item)) => came[1].push((item.id, item.body)),
                _ => {}
            }
            if came[0].len() == 2 && came[1].is_empty() {
                open.add_permits(2);
            }
        }
        came[1].sort();
        assert_eq!(came[0], came[1]);
    });
}

#[test]
fn a_second_connection_of_a_program_ends_the_first_and_a_goodbye_forgets_the_program() {
    block_on(async {
        let calls = Calls::new(Gate::default().methods());
        let (mut first, serving) = begin(&calls, 7, true).await;
        let (second, served) = begin(&calls, 7, false).await;
        first.read::<Say>().await.expect_err("the reason comes");
        drop(first);
        let replaced = serving.await.expect("no panic").unwrap_err();
        assert!(replaced.what.contains("has replaced this one"), "{replaced}");
        assert_eq!(calls.programs(), 1);
        second.close(None).await.expect("it is read");
        assert_eq!(served.await.expect("no panic"), Ok(()));
        assert_eq!(calls.programs(), 0);
    });
}

#[test]
fn a_goodbye_of_a_replaced_connection_does_not_forget_the_program() {
    block_on(async {
        let calls = Calls::new(Gate::default().methods());
        // The server takes two simultaneous events in random order; 64 turns try both orders.
        for instance in 0..64 {
            let (mut first, serving) = begin(&calls, instance, true).await;
            first.write(&say(Said::Call(call(1, "none")))).await.expect("it is read");
            answer(&mut first).await;
            // No await here lets the server run, so it gets the goodbye and the connection at once.
            let (second, served) = begin(&calls, instance, false).await;
            let _ = tokio::join!(first.close(None), serving);
            assert_eq!(calls.programs(), 1);
            second.close(None).await.expect("it is read");
            assert_eq!(served.await.expect("no panic"), Ok(()));
            assert_eq!(calls.programs(), 0);
        }
    });
}

#[test]
fn a_program_that_is_just_reconnecting_is_not_evicted() {
    block_on(async {
        let calls = Calls::new(Gate::default().methods());
        let mut open = Vec::new();
        for instance in 0..8 {
            let (mut client, serving) = begin(&calls, instance, true).await;
            client.write(&say(Said::Call(call(1, "none")))).await.expect("it is read");
            answer(&mut client).await;
            open.push((client, serving));
        }
        let (client, serving) = open.remove(0);
        drop(client);
        let _ = serving.await;
        // Nothing here waits, so the server gets both `Begin` messages at the same time.
        let (mut client, _serving) = begin(&calls, 0, false).await;
        let (other, refused) = begin(&calls, 8, true).await;
        let again = Call { again: true, ..call(1, "none") };
        client.write(&say(Said::Call(again))).await.expect("it is read");
        assert_eq!(answer(&mut client).await.code, RpcCode::NoMethod.number());
        drop(other);
        let refused = refused.await.expect("no panic").unwrap_err();
        assert!(refused.what.contains("has 8 programs"), "{refused}");
    });
}

#[test]
fn the_program_that_disconnected_first_is_evicted_at_the_limit_of_a_client() {
    block_on(async {
        let gate = Gate::default();
        let calls = Calls::new(gate.methods());
        let mut open = Vec::new();
        for instance in 0..8 {
            open.push(begin(&calls, instance, true).await);
        }
        // An answer proves that the server has registered the program.
        for (client, _) in &mut open {
            client.write(&say(Said::Call(call(1, "none")))).await.expect("it is read");
            assert_eq!(answer(client).await.code, RpcCode::NoMethod.number());
        }
        let (client, serving) = begin(&calls, 8, true).await;
        drop(client);
        let refused = serving.await.expect("no panic").unwrap_err();
        assert!(refused.what.contains("has 8 programs"), "{refused}");
        for _ in 0..2 {
            let (client, serving) = open.remove(0);
            drop(client);
            let _ = serving.await;
        }
        let (mut client, _serving) = begin(&calls, 9, true).await;
        client.write(&say(Said::Call(call(1, "none")))).await.expect("it is read");
        answer(&mut client).await;
        assert_eq!(calls.programs(), 8);
        // The server still knows the program that disconnected second, so this program may repeat
        // its call.
        let again = Call { again: true, ..call(1, "none") };
        let (mut client, _serving) = begin(&calls, 1, false).await;
        client.write(&say(Said::Call(again))).await.expect("it is read");
        assert_eq!(answer(&mut client).await.code, RpcCode::NoMethod.number());
    });
}

#[test]
fn a_client_that_breaks_the_protocol_loses_its_connection() {
    block_on(async {
        let gate = Gate::default();
        let calls = Calls::new(gate.methods());
        let body = vec![0; MAX_BODY + 1];
        // Call 3 runs when the server gets each of these messages.
        let lies = [
            Said::Begin(Begin { instance: 7, first: true }),
            Said::Call(call(1, "wait")),
            Said::Call(call(2, "wait")),
            Said::Call(call(5, &"x".repeat(2000))),
            Said::Call(Call { body: body.clone(), ..call(5, "wait") }),
            Said::Item(Item { id: 3, body: Vec::new() }),
            Said::Item(Item { id: 9, body }),
            Said::Finish(Finish { id: 9 }),
            Said::Credit(Credit { id: 3, items: u32::MAX }),
            Said::Credit(Credit { id: 2, items: 1 }),
            Said::Cancel(Cancel { id: u64::MAX }),
            Said::Have(Have { ids: vec![3, u64::MAX] }),
            Said::Answer(Answer { id: 2, ..Answer::default() }),
            Said::Answer(Answer { id: 3, ..Answer::default() }),
        ];
        for (instance, lie) in lies.into_iter().enumerate() {
            let (mut client, serving) = begin(&calls, 100 + instance as u64, true).await;
            client.write(&say(Said::Call(call(3, "wait")))).await.expect("it is read");
            gate.begun.notified().await;
            let shown = format!("{lie:?}").chars().take(60).collect::<String>();
            client.write(&say(lie)).await.expect("it is read");
            drop(client);
            let error = serving.await.expect("no panic").expect_err(&shown);
            assert!(error.what.contains("are invalid"), "{shown}: {error}");
        }
        let (here, there) = (duplex(1 << 10), duplex(1 << 10));
        drop(Session::over(SERVER, here.0, there.0));
        let server = Session::over(CLIENT, there.1, here.1);
        let first = say(Said::Call(call(1, "wait")));
        let never = std::future::pending();
        let error = calls.serve(server, first, Prefix::ALL, never).await.unwrap_err();
        assert!(error.what.contains("is not Begin"), "{error}");
    });
}

#[test]
fn a_flood_of_calls_is_refused_and_all_streams_of_a_client_share_a_limit() {
    block_on(async {
        let calls = Calls::new(Gate::default().methods());
        let mut clients = Vec::new();
        let mut refused = 0;
        for instance in 0..3 {
            let (mut client, serving) = begin(&calls, instance, true).await;
            for number in 0..CALLS as u64 {
                let call = call(2 * number + 1, "wait");
                client.write(&say(Said::Call(call))).await.expect("it is read");
            }
            // The server answers this call after it has taken all earlier calls.
            let last = call(2 * CALLS as u64 + 1, "none");
            client.write(&say(Said::Call(last))).await.expect("it is read");
            loop {
                let answer = answer(&mut client).await;
                assert_eq!(answer.code, RpcCode::Busy.number());
                refused += 1;
                if answer.id == 2 * CALLS as u64 + 1 {
                    break;
                }
            }
            clients.push((client, serving));
        }
        // A stream may run CALLS calls, and a client 2 × CALLS. So the server refuses the last call
        // of each stream, and on the third stream all other calls too.
        assert_eq!(refused, 3 + CALLS);
    });
}

#[test]
fn a_client_without_a_right_to_a_method_is_refused_before_its_request_is_decoded() {
    block_on(async {
        let (here, there) = (duplex(1 << 10), duplex(1 << 10));
        let mut client = Session::over(SERVER, here.0, there.0);
        let server = Session::over(CLIENT, there.1, here.1);
        let calls = Calls::new(Gate::default().methods());
        let lab = Prefix::new("lab").expect("a prefix");
        tokio::task::spawn_local(async move {
            let begin = say(Said::Begin(Begin { instance: 1, first: true }));
            calls.serve(server, begin, lab, std::future::pending()).await
        });
        let call = Call { body: vec![0xff; 9], ..call(1, "wait") };
        client.write(&say(Said::Call(call))).await.expect("it is read");
        let answer = answer(&mut client).await;
        assert_eq!(answer.code, RpcCode::Denied.number());
        assert!(answer.why.contains("has rights below 'lab'"), "{}", answer.why);
    });
}
