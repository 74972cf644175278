//! Tests: the receiver reports the speed of its network card, and the sender uses the speed of the
//! slower card.

use std::sync::Arc;

use longhaul_net::port::Port;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::registry::{self, Row};
use longhaul_proto::settings::Settings;
use longhaul_proto::units::{Bytes, Rate};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use super::lies::source;
use super::prepared::prepare;
use super::sending::{FirstPass, SendingRole};
use super::turns::{Alone, receive_alone, terms};
use super::wire::{End, Wire};
use super::{Terms, listing};
use crate::control::{Card, Frame, Message};
use crate::counters::board::Board;
use crate::loopback::{LOOPBACKS, pair, run};
use crate::session::{Carriers, FrameReader};
use crate::write::budget::{Budget, MessageCharge};
use longhaul_files::Place;

/// Reports the speed `card` of the receiver's card to a sender whose own card has 1 Gbit/s, and
/// checks that the sender uses `rate`.
async fn send_card(card: Rate, rate: Rate) {
    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
    let folder = tempfile::tempdir().unwrap();
    let source = source(&folder);
    let data = Port::bind((LOOPBACKS[0], 0).into()).unwrap();
    let (_stream_ends, streams) = mpsc::unbounded_channel();
    let near_card = Some(Rate::from_mbps(1_000));
    // Only the protocol with this option uses the speeds of both cards.
    let has_states = |row: &&Row| row.options.iter().any(|option| option.name == "state-segment");
    let protocol = registry::all().iter().find(has_states);
    let terms = Terms { card: near_card, protocol, settings: Settings::default(), ..terms(&near) };
    let port = data.handle();
    let sending = spawn_local(async move {
        let mut wire = Wire::new(near, MessageCharge::alone());
        let end = SendingRole {
            wire: &mut wire,
            terms,
            port,
            path: None,
            flow: FlowId(7),
            board: Arc::new(Board::default()),
            streams,
            hooks: &Alone,
            decides: false,
            dry_run: false,
            surveyed: false,
        };
        let (description, payloads) = prepare(source, false, false).unwrap();
        end.run(description, FirstPass::Payloads(payloads)).await.map(|_| ())
    });
    let (mut writer, mut reader) = far.split();
    writer.write(&Frame::from(Message::Card(Card { bps: card.as_bps() }))).await.unwrap();
    loop {
        if let Message::Status(status) = next(&mut reader).await
            && status.rate_bps == rate.as_bps()
        {
            break;
        }
    }
    writer.close(reader, None).await.expect("the session is open");
    assert!(matches!(sending.await.expect("it ends"), Err(End::Lost(_))));
}

async fn next(reader: &mut FrameReader) -> Message {
    loop {
        let frame = reader.read::<Frame>().await.expect("the session is open");
        if let Some(message) = frame.expect("it goes on").message {
            return message;
        }
    }
}

async fn hear_receiver(card: Rate) {
    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget::new(Bytes::mebi(32)).unwrap();
    let memory = Arc::new(budget.enter().await.expect("there is memory"));
    let data = Port::bind((LOOPBACKS[0], 0).into()).unwrap();
    let (terms, port) = (Terms { card: Some(card), ..terms(&near) }, data.handle());
    let place = Place::Ambient(folder.path().join("copy"));
    let receiving = spawn_local(async move {
        let mut wire = Wire::new(near, MessageCharge::alone());
        receive_alone(&mut wire, terms, port, memory, place).await.map(|_| ())
    });
    let (writer, mut reader) = far.split();
    assert_eq!(next(&mut reader).await, Message::Card(Card { bps: card.as_bps() }));
    writer.close(reader, None).await.expect("the session is open");
    assert!(receiving.await.expect("it ends").is_err(), "no offer arrived");
}

async fn send_card_during_a_list(card: Card, bytes: usize) {
    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
    let (mut writer, mut reader) = far.split();
    let (list, sent) = (vec![7; bytes], card.clone());
    let hearing = spawn_local(async move {
        writer.write(&Frame::from(Message::Card(sent))).await.unwrap();
        let mut came = 0;
        while came < bytes {
            if let Message::ChunkPiece(piece) = next(&mut reader).await {
                came += piece.bytes.len();
            }
        }
        (writer, reader)
    });
    let (mut wire, board) = (Wire::new(near, MessageCharge::alone()), Board::default());
    let reported = listing::send_list(&mut wire, &Alone, board.watch(), &list).await;
    assert_eq!(reported.map_err(|_| "the list was not sent"), Ok(Some(card)));
    let (writer, reader) = hearing.await.expect("the list came");
    writer.close(reader, None).await.expect("the session is open");
}

#[test]
fn a_card_reported_during_the_list_is_not_lost() {
    // The list is longer than the stream's buffer, so the card's speed arrives before the end of
    // the list.
    let sent = send_card_during_a_list(Card { bps: 200_000_000 }, 64 << 20);
    run(async { LocalSet::new().run_until(sent).await });
}

#[test]
fn impossible_card_speeds_are_ignored() {
    assert_eq!(Card { bps: 0 }.speed(), None);
    assert_eq!(Card { bps: 1 }.speed(), None);
    assert_eq!(Card { bps: 9_000_000_000 }.speed(), Some(Rate::from_mbps(9_000)));
}

#[test]
fn the_receiving_end_reports_its_card_first() {
    let heard = hear_receiver(Rate::from_mbps(200));
    run(async { LocalSet::new().run_until(heard).await });
}

#[test]
fn a_sender_limited_by_its_card_takes_the_rate_of_the_slower_card() {
    // The receiver's card and the expected rate, in Mbit/s. The sender's card has 1,000 Mbit/s.
    for (peer, rate) in [(200, 200), (10_000, 1_000)] {
        let sent = send_card(Rate::from_mbps(peer), Rate::from_mbps(rate));
        run(async { LocalSet::new().run_until(sent).await });
    }
}
