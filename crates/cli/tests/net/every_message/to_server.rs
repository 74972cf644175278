//! A hostile but allowed client that sends wrong messages to the real server. After a probe it
//! sends only messages about probes.

use std::collections::VecDeque;

use longhaul_transfer::control::{Direction, Frame, Message, Ping, Probe, Request};
use longhaul_transfer::session::Session;

use super::{LEN, Lie, NAME, all_lies, content, manifest, pass};
use crate::net::liar::{self, block_on, meet, offer};
use crate::rig::{Pair, write};

/// The moment of a lie (a wrong message). An offer is the sender's list of files. A pass is a run
/// over the missing chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// As the first message of the session.
    First,
    /// After a granted probe.
    Probed,
    /// While the server sends.
    Pull,
    /// Instead of an offer.
    Push,
    /// After an offer and the announcement of a pass, if datagrams carry the chunks.
    ByDatagrams,
    /// After an offer and the announcement of a pass, if streams carry the chunks.
    ByStream,
}

impl Moment {
    /// The messages of an honest client before this moment.
    fn before(self, number: usize) -> Vec<Message> {
        let push = |protocol: &str| {
            let path = format!("copies/{number}");
            let protocol = protocol.to_owned();
            Message::Request(Request { protocol, ..liar::request(Direction::Push, &path) })
        };
        match self {
            Moment::First => Vec::new(),
            // Each probe has its own flow: the server may still be ending an earlier probe.
            Moment::Probed => {
                let (flow, cipher) = (1000 + number as u32, "aes-128-gcm".to_owned());
                vec![Message::Probe(Probe { probe: 1, flow, cipher })]
            }
            Moment::Pull => vec![Message::Request(liar::request(Direction::Pull, NAME))],
            Moment::Push => vec![push("rbudp")],
            Moment::ByDatagrams => {
                vec![push("rbudp"), offer(manifest(), LEN as u64), pass("rbudp")]
            }
            Moment::ByStream => vec![push(""), offer(manifest(), LEN as u64), pass("")],
        }
    }

    /// Returns whether the server may end the session without a reason: after a first message that
    /// attaches a stream, or begins a probe or a survey.
    fn may_be_silent(self, lie: &Message) -> bool {
        use Message::{Attach, Probe, Survey};
        self == Moment::First && matches!(lie, Attach(_) | Probe(_) | Survey(_))
    }
}

/// Sends lies until the server ends the session; at the moments `First` and `Probed`, only one lie.
/// Returns the last lie and the server's reason, if the server gave one; or `None` if this
/// client ended the session first.
async fn tell(
    mut session: Session,
    moment: Moment,
    lies: &mut VecDeque<Lie>,
) -> Option<(Lie, Option<String>)> {
    while let Some(lie) = lies.pop_front() {
        // After a failed write, the server's reason can still be read.
        let _ = session.write(&Frame::from(lie.message.clone())).await;
        if moment == Moment::Probed {
            // During a probe the server answers no ping.
            let _ = session.close(None).await;
            return None;
        }
        let _ = session.write(&Frame::from(Message::Ping(Ping { answer: false }))).await;
        loop {
            match session.read::<Frame>().await {
                Ok(Some(Frame { message: Some(Message::Ping(Ping { answer: true })) })) => break,
                Ok(Some(Frame { message: Some(Message::ProbeCount(_)) })) => return None,
                Ok(Some(_)) => {}
                Ok(None) => return Some((lie, None)),
                Err(error) => return Some((lie, Some(error.what))),
            }
        }
        if moment == Moment::First {
            return None;
        }
    }
    None
}

#[test]
fn a_server_answers_or_refuses_every_false_message_and_continues() {
    let mut pair = Pair::in_memory(&[]);
    write(&pair.there.join(NAME), &content());
    std::fs::create_dir(pair.there.join("copies")).expect("the scratch folder is ours");
    write(&pair.scratch.path().join("outside"), b"outside");
    let (mut sessions, mut refused) = (0, 0);
    use Moment::{ByDatagrams, ByStream, First, Probed, Pull, Push};
    for moment in [First, Probed, Pull, Push, ByDatagrams, ByStream] {
        let mut lies = VecDeque::from(all_lies());
        if moment == Probed {
            lies.retain(|lie| matches!(lie.message, Message::ProbeRun(_) | Message::ProbeCount(_)));
        }
        while !lies.is_empty() {
            sessions += 1;
            let ended = block_on(async {
                let mut session = meet(&pair, &pair.client).await;
                for message in moment.before(sessions) {
                    session.write(&Frame::from(message)).await.expect("the server listens");
                }
                // The server refuses a probe while four earlier probes run.
                if moment == Probed && session.read::<Frame>().await.is_err() {
                    return None;
                }
                tell(session, moment, &mut lies).await
            });
            let Some((lie, reason)) = ended else { continue };
            refused += 1;
            let named = &lie.named;
            let reason = reason.unwrap_or_default();
            let is_told = reason.contains("says: ") || moment.may_be_silent(&lie.message);
            assert!(is_told, "{moment:?}, {named}: {reason}");
            assert!(reason.chars().count() < 3000 && !reason.contains('\x1b'), "{named}: {reason}");
        }
    }
    assert!(refused > 100, "{refused} of {sessions} sessions were refused");
    write(&pair.here.join("object"), &content());
    pair.cp(&[&"object", &pair.at("honest")]).summary();
    assert!(std::fs::read(pair.there.join("honest")).expect("it was copied") == content());
    let kept = std::fs::read(pair.scratch.path().join("outside")).expect("it exists");
    assert_eq!(kept, b"outside");
    pair.server.child().signal(rustix::process::Signal::TERM);
    let ended = pair.server.into_child().end();
    assert!(!ended.stderr.contains("panicked"), "{ended}");
}
