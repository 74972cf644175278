//! Remote procedure calls to servers that lie, and to `longhaul serve`.

use std::ffi::OsString;
use std::time::Duration;

use longhaul_rpc::messages::{Answer, Begin, Call, Credit, Item, Said, Say};
use longhaul_transfer::api::blocking::wait;
use longhaul_transfer::api::{Client, Identity as Key, Rpc, RpcCode, RpcOptions, Trust};

use super::liar;
use crate::rig::{Host, Pair};

async fn connect(client: &Host, id: &str, at: &str) -> Rpc {
    let identity = Key::load_or_create(&client.config).expect("a key");
    let builder = Client::builder().identity(identity).trust(Trust::only(id));
    let client = builder.build().expect("it has an identity");
    client.rpc(at).retry_for(Duration::ZERO).await.expect("it answers")
}

/// The result of a call to a server that sends `lies` and disconnects.
fn lied(lies: Vec<Said>) -> (RpcCode, String) {
    let lies = lies.into_iter().map(|said| Say { said: Some(said) }).collect();
    let calls = |client: &Host, id: &str, at: OsString| {
        wait(async {
            let at = at.into_string().expect("our own name");
            let rpc = connect(client, id, &at).await;
            let answer = rpc.call::<u64>("m", &(), RpcOptions::default()).await;
            let error = answer.expect_err("a lie");
            rpc.close().await;
            (error.code, error.reason)
        })
    };
    let is_call = |say: &Say| matches!(say.said, Some(Said::Call(_)));
    liar::lied_after("rpc", is_call, lies, calls)
}

#[test]
fn a_call_ends_with_an_error_if_the_server_sends_false_messages() {
    let answer = |id, code| Said::Answer(Answer { id, code, ..Answer::default() });
    let item = |id| Said::Item(Item { id, body: Vec::new() });
    let call = |id| Said::Call(Call { id, method: "m".to_owned(), ..Call::default() });
    for lies in [
        vec![answer(3, 0)],
        vec![answer(u64::MAX, 0)],
        vec![item(1)],
        vec![item(7)],
        vec![Said::Credit(Credit { id: 1, items: 1 })],
        vec![call(1)],
        vec![call(4), call(2)],
        vec![Said::Begin(Begin::default())],
    ] {
        let shown = format!("{lies:?}");
        let (code, reason) = lied(lies);
        assert_eq!(code, RpcCode::Denied, "{shown}: {reason}");
        assert!(reason.contains("are invalid"), "{shown}: {reason}");
    }
    assert_eq!(lied(Vec::new()).0, RpcCode::Lost);
    // The reason has control characters for a terminal.
    let why = "no\u{1b}[2J".to_owned();
    let refused = Said::Answer(Answer { id: 1, code: 1, why, ..Answer::default() });
    assert_eq!(lied(vec![refused]), (RpcCode::Failed, "no[2J".to_owned()));
    // The error code is from a newer release.
    assert_eq!(lied(vec![answer(1, 4000)]).0, RpcCode::Failed);
}

#[test]
fn a_server_without_methods_refuses_calls() {
    let pair = Pair::with_rights(",files=ro,rpc=/", &[]);
    let at = format!("lh://{}", pair.server.address);
    let error = wait(async {
        let rpc = connect(&pair.client, pair.server.id.as_str(), &at).await;
        rpc.call::<()>("m", &(), RpcOptions::default()).await.expect_err("no service")
    });
    assert_eq!(error.code, RpcCode::Denied);
    assert!(error.reason.contains("unknown service rpc"), "{error}");
}
