//! Remote procedure calls between a client and a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul::{
    ErrorKind, Rpc, RpcCall, RpcCode, RpcError, RpcOptions, Server, ServerBuilder, access_list,
};
use tokio::sync::Notify;

use crate::rig::{Rig, url};

type Answer<T> = Result<T, RpcError>;

/// Returns a server with methods, and a client with a right to the methods below `lab`.
async fn start(rig: &Rig, server: ServerBuilder) -> (Server, Rpc) {
    let right = access_list::parse(&format!("{},rpc=/lab", rig.client.id())).expect("an entry");
    let server = server.allow_all([right]).start().await.expect("it listens");
    let rpc = rig.client().rpc(url(&server, "")).await.expect("it answers");
    (server, rpc)
}

fn code<T: std::fmt::Debug>(answer: Answer<T>) -> RpcCode {
    answer.expect_err("it fails").code
}

struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn calls_and_items_go_both_ways() {
    let rig = Rig::new();
    let server = rig
        .closed_server()
        .rpc("lab/twice", async |number: u64, _: RpcCall| Answer::Ok(number * 2))
        .rpc("lab/count", async |to: u64, call: RpcCall| {
            for number in 0..to {
                call.send(&number).await?;
            }
            Answer::Ok(())
        })
        .rpc("lab/sum", async |(): (), mut call: RpcCall| {
            let mut sum = 0;
            while let Some(number) = call.next::<u64>().await {
                sum += number?;
            }
            Answer::Ok(sum)
        })
        .rpc("lab/ask", async |question: String, call: RpcCall| {
            assert!(call.peer().starts_with("lh1:"));
            call.caller().call::<String>("answer", &question, RpcOptions::default()).await
        });
    let right = access_list::parse(&format!("{},rpc=/lab", rig.client.id())).expect("an entry");
    let server = server.allow_all([right]).start().await.expect("it listens");
    let rpc = rig.client().rpc(url(&server, ""));
    let rpc = rpc.rpc("answer", async |question: String, _: RpcCall| Answer::Ok(question + "!"));
    let rpc = rpc.await.expect("it answers");
    let options = RpcOptions::default();

    assert_eq!(rpc.call::<u64>("lab/twice", &21_u64, options).await, Ok(42));
    let numbers: Vec<u64> = (0..100).collect();
    let answers = rpc.batch::<u64>("lab/twice", &numbers, options).await;
    assert_eq!(answers, numbers.iter().map(|number| Ok(number * 2)).collect::<Vec<_>>());

    // These are more items than may wait unread.
    let mut counted = rpc.open("lab/count", &100_u64, options).expect("it is short");
    for expected in 0..100_u64 {
        assert_eq!(counted.next().await, Some(Ok(expected)));
    }
    assert_eq!(counted.next::<u64>().await, None);
    assert_eq!(counted.answer::<()>().await, Ok(()));

    let summed = rpc.open("lab/sum", &(), options).expect("it is short");
    for number in 0..100_u64 {
        summed.send(&number).await.expect("the method reads");
    }
    assert_eq!(summed.answer::<u64>().await, Ok(4950));

    let asked = rpc.call::<String>("lab/ask", &"why".to_owned(), options).await;
    assert_eq!(asked, Ok("why!".to_owned()));
    rpc.close().await;
}

#[tokio::test]
async fn a_failed_call_has_a_code_for_its_reason() {
    let rig = Rig::new();
    let server = rig
        .closed_server()
        .rpc("lab/fail", async |(): (), _: RpcCall| -> Answer<()> {
            Err(RpcError::new(RpcCode::Custom(7), "the dome is closed"))
        })
        .rpc("lab/panic", async |(): (), _: RpcCall| -> Answer<()> { panic!("a bug") })
        .rpc("lab/text", async |text: String, _: RpcCall| Answer::Ok(text))
        .rpc("lab/long", async |(): (), _: RpcCall| Answer::Ok(vec![0_u8; 1 << 20]))
        .rpc("lab/send", async |(): (), call: RpcCall| call.send(&1_u64).await)
        .rpc("other", async |(): (), _: RpcCall| Answer::Ok(()));
    let (_server, rpc) = start(&rig, server).await;
    let options = RpcOptions::default();
    let failed = rpc.call::<()>("lab/fail", &(), options).await.expect_err("it fails");
    assert_eq!((failed.code, &*failed.reason), (RpcCode::Custom(7), "the dome is closed"));
    assert_eq!(code(rpc.call::<()>("lab/panic", &(), options).await), RpcCode::Failed);
    assert_eq!(code(rpc.call::<()>("lab/none", &(), options).await), RpcCode::NoMethod);
    assert_eq!(code(rpc.call::<()>("other", &(), options).await), RpcCode::Denied);
    let text = "x".to_owned();
    assert_eq!(code(rpc.call::<String>("lab/text", &7_u64, options).await), RpcCode::Malformed);
    assert_eq!(code(rpc.call::<u64>("lab/text", &text, options).await), RpcCode::Malformed);
    assert_eq!(code(rpc.call::<Vec<u8>>("lab/long", &(), options).await), RpcCode::TooLong);
    let long = "x".repeat(1 << 20);
    assert_eq!(code(rpc.call::<String>("lab/text", &long, options).await), RpcCode::TooLong);
    assert_eq!(code(rpc.call::<()>("lab/send", &(), options).await), RpcCode::Failed);
    // An invalid name is an error of the builder.
    let wrong = rig.closed_server().rpc("a//b", async |(): (), _: RpcCall| Answer::Ok(()));
    assert_eq!(wrong.start().await.expect_err("no name").kind, ErrorKind::Usage);
    // A client that has a right to files but to no method learns this from its first call.
    let server = rig.server().rpc("lab/text", async |text: String, _: RpcCall| Answer::Ok(text));
    let server = server.start().await.expect("it listens");
    let rpc = rig.client().rpc(url(&server, "")).await.expect("it is admitted for files");
    assert_eq!(code(rpc.call::<String>("lab/text", &text, options).await), RpcCode::Denied);
}

#[tokio::test]
async fn a_hanging_call_ends_at_its_deadline_and_a_dropped_call_stops_its_method() {
    let (rig, begun, dropped) = (Rig::new(), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, drops) = (begun.clone(), dropped.clone());
    let hang = move |(): (), _: RpcCall| {
        let (begins, dropped) = (begins.clone(), Dropped(drops.clone()));
        async move {
            let _dropped = dropped;
            begins.notify_one();
            std::future::pending::<Answer<()>>().await
        }
    };
    let (_server, rpc) = start(&rig, rig.closed_server().rpc("lab/hang", hang)).await;
    let short = RpcOptions::within(Duration::from_millis(20));
    assert_eq!(code(rpc.call::<()>("lab/hang", &(), short).await), RpcCode::Deadline);
    begun.notified().await;
    dropped.notified().await;
    let call = tokio::spawn({
        let rpc = rpc.clone();
        async move { rpc.call::<()>("lab/hang", &(), RpcOptions::default()).await }
    });
    begun.notified().await;
    call.abort();
    dropped.notified().await;
    // Dropping the handle of a call with items also stops the method.
    let stream = rpc.open("lab/hang", &(), RpcOptions::default()).expect("it is short");
    begun.notified().await;
    drop(stream);
    dropped.notified().await;
}

#[tokio::test]
async fn calls_wait_for_a_restarted_server_and_calls_that_it_forgot_are_not_repeated() {
    let (rig, begun, ran) = (Rig::new(), Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
    let (begins, runs) = (begun.clone(), ran.clone());
    let hang = move |(): (), _: RpcCall| {
        runs.fetch_add(1, Ordering::Relaxed);
        begins.notify_one();
        std::future::pending::<Answer<()>>()
    };
    let methods = |server: ServerBuilder| {
        let text = async |text: String, _: RpcCall| Answer::Ok(text);
        server.rpc("lab/hang", hang.clone()).rpc("lab/text", text)
    };
    let (mut server, rpc) = start(&rig, methods(rig.closed_server())).await;
    let address = server.address();
    let spawned = |method: &'static str| {
        let rpc = rpc.clone();
        tokio::spawn(async move { rpc.call::<()>(method, &(), RpcOptions::default()).await })
    };
    let lost = spawned("lab/hang");
    let stream = rpc.open("lab/hang", &(), RpcOptions::default()).expect("it is short");
    begun.notified().await;
    begun.notified().await;
    server.shutdown(Duration::ZERO).await;
    assert_eq!(code(stream.answer::<()>().await), RpcCode::Lost);
    let text = "x".to_owned();
    let waits = rpc.call::<String>("lab/text", &text, RpcOptions::default());
    let again = async { start(&rig, methods(rig.closed_server()).listen(address)).await };
    let (answer, _next) = tokio::join!(waits, again);
    assert_eq!(answer, Ok(text));
    assert_eq!(code(lost.await.expect("no panic")), RpcCode::Unknown);
    assert_eq!(ran.load(Ordering::Relaxed), 2, "no call is made twice");
    // Without a server a call still ends, at its deadline or when the connection is lost.
    drop(_next);
    let short = RpcOptions::within(Duration::from_millis(20));
    let code = code(rpc.call::<()>("lab/hang", &(), short).await);
    assert!(matches!(code, RpcCode::Deadline | RpcCode::Lost), "{code:?}");
}
