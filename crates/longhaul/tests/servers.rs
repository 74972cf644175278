//! Servers: the list of clients, shutdown, replicas whose client has ended, and invalid settings.

use std::fs;
use std::time::Duration;

use longhaul::units::Rate;
use longhaul::{Access, Cipher, ErrorKind, Event, ServerEvent};

use crate::rig::{Rig, noise, url};

#[tokio::test]
async fn a_list_of_clients_applies_as_soon_as_it_is_set() {
    let rig = Rig::new();
    fs::write(rig.here("x"), "x").expect("a new file");
    fs::create_dir(rig.there("in")).expect("a new folder");
    let server = rig.closed_server().start().await.expect("it listens");
    let client = rig.client();
    let id = rig.client.id().to_string();
    let copy = async |name: &str| {
        let copy = client.copy([rig.here("x")], url(&server, name)).start();
        copy.expect("a valid address").finish().await.map_err(|error| error.kind)
    };
    assert_eq!(copy("a").await.err(), Some(ErrorKind::Unreachable));
    let list = [Access::write_only().below("in").of(&id).expect("an id")];
    server.set_access(list).await.expect("the folder exists");
    copy("b").await.expect("it is let in");
    assert!(rig.there("in/b").exists());
    let list = [Access::read_write().below("none").of(&id).expect("an id")];
    let error = server.set_access(list).await.expect_err("there is no such folder");
    assert_eq!(error.kind, ErrorKind::LocalFile);
    copy("c").await.expect("the old list stays");
    server.set_access([Access::read_only().of(&id).expect("an id")]).await.expect("a list");
    assert_eq!(copy("d").await.err(), Some(ErrorKind::Unreachable));
    server.set_access([]).await.expect("a list");
    assert_eq!(copy("e").await.err(), Some(ErrorKind::Unreachable));
}

#[tokio::test]
async fn a_client_learns_of_the_shutdown_and_resumes_at_the_next_server() {
    let rig = Rig::new();
    fs::write(rig.there("x"), noise(32 << 20)).expect("a new file");
    let mut server = rig.server().start().await.expect("it listens");
    let address = server.address();
    let copy = rig.client().copy([url(&server, "x")], rig.here("x"));
    let mut copy = copy.rate_limit(Some(Rate::from_bps(100_000_000))).start().expect("an address");
    let mut events = copy.events();
    crate::rig::until_bytes(&mut events, 1 << 20).await;
    server.shutdown(Duration::ZERO).await;
    let mut reason = None;
    while reason.is_none() {
        let event = events.next().await.expect("the copy goes on");
        if let Event::Reconnecting { reason: why } = event {
            reason = Some(why);
        }
    }
    let reason = reason.expect("the loop ended with a reason");
    assert!(reason.contains("the server is shutting down"), "{reason}");
    let _next = rig.server().listen(address).start().await.expect("the port is free again");
    copy.finish().await.expect("it goes on at the next server");
    assert_eq!(fs::read(rig.here("x")).ok(), fs::read(rig.there("x")).ok());
}

#[tokio::test]
async fn a_copy_that_does_not_retry_fails_with_the_reason_that_the_server_is_shutting_down() {
    let rig = Rig::new();
    fs::write(rig.there("x"), noise(32 << 20)).expect("a new file");
    let mut server = rig.server().start().await.expect("it listens");
    let copy = rig.client().copy([url(&server, "x")], rig.here("x")).retry_for(Duration::ZERO);
    let mut copy = copy.rate_limit(Some(Rate::from_bps(100_000_000))).start().expect("an address");
    crate::rig::until_bytes(&mut copy.events(), 1 << 20).await;
    server.shutdown(Duration::ZERO).await;
    let error = copy.finish().await.expect_err("the server is gone");
    assert!(error.what().contains("the server is shutting down"), "{error}");
    assert!(error.is_resumable, "{error}");
}

#[tokio::test]
async fn a_server_that_shuts_down_lets_a_running_transfer_finish() {
    let rig = Rig::new();
    fs::write(rig.there("x"), noise(8 << 20)).expect("a new file");
    let mut server = rig.server().start().await.expect("it listens");
    let mut events = server.events();
    let copy = rig.client().copy([url(&server, "x")], rig.here("x")).retry_for(Duration::ZERO);
    let mut copy = copy.rate_limit(Some(Rate::from_bps(100_000_000))).start().expect("an address");
    while !matches!(events.next().await, Some(ServerEvent::Asked(_))) {}
    server.shutdown(Duration::from_secs(60)).await;
    copy.finish().await.expect("the server lets the transfer finish");
    let ended = loop {
        let event = events.next().await.expect("the end is an event");
        if let ServerEvent::Ended { error, .. } = event {
            break error;
        }
    };
    assert!(ended.is_none(), "{ended:?}");
}

/// A lease assigns chunks to one replica, which sends them. After the client has ended, nobody
/// receives these chunks, so the servers must end their transfers.
#[tokio::test]
async fn leases_of_unencrypted_replicas_end_with_their_client() {
    let rig = Rig::new();
    fs::write(rig.there("x"), noise(32 << 20)).expect("a new file");
    let start = async || rig.server().allow_plain(true).start().await.expect("it listens");
    let servers = [start().await, start().await];
    let mut server_events = servers.each_ref().map(|server| server.events());
    let sources = servers.each_ref().map(|server| url(server, "x"));
    let copy = rig.client().copy(sources, rig.here("x")).replicas(true).cipher(Cipher::None);
    let mut copy = copy.rate_limit(Some(Rate::from_bps(100_000_000))).start().expect("an address");
    let mut events = copy.events();
    crate::rig::until_bytes(&mut events, 2 << 20).await;
    copy.cancel_handle().cancel();
    assert_eq!(copy.finish().await.expect_err("it is cancelled").kind, ErrorKind::Cancelled);
    for (server, events) in servers.iter().zip(&mut server_events) {
        let moved = loop {
            let event = events.next().await.expect("the server runs");
            if let ServerEvent::Ended { client, moved, error, .. } = event
                && client.wish.starts_with("reads")
            {
                assert!(error.is_some(), "it was not finished");
                break moved;
            }
        };
        assert!(moved.bytes < 32 << 20, "{moved:?}");
        let status = server.control().status().await.expect("the server runs");
        assert_eq!(status.transfers, []);
    }
}

#[tokio::test]
async fn invalid_server_settings_are_refused() {
    let rig = Rig::new();
    let server = rig.server().start().await.expect("it listens");
    let taken = rig.server().listen(server.address()).start().await.expect_err("it is taken");
    assert_eq!(taken.kind, ErrorKind::Unreachable, "{taken}");
    let nowhere = rig.server().root(rig.there("none")).start().await.expect_err("no folder");
    assert_eq!(nowhere.kind, ErrorKind::LocalFile, "{nowhere}");
    let nobody = rig.server().allow("me", Access::read_only()).start().await.expect_err("no id");
    assert_eq!(nobody.kind, ErrorKind::Usage, "{nobody}");
    let nameless = rig.server().listen("here").start().await.expect_err("no address");
    assert_eq!(nameless.kind, ErrorKind::Usage, "{nameless}");
}
