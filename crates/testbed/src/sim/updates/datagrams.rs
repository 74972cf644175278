//! Updates by datagrams.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use longhaul_proto::channel::{Code, Cutter, Datagram, Joiner};
use longhaul_proto::time::{Span, Time};

use super::{Tally, UpdatesRun};
use crate::link::{Fate, Link, UDP_IP};

/// A datagram on the path: its arrival, its order, its block and its content.
type Flying = (Time, u64, u64, Vec<u8>);

/// Header and tag of a sealed datagram.
const SEALED: u32 = 32;
/// The longest content of a datagram.
const PAYLOAD: usize = 1_420;
/// How long a group may be incomplete.
const WAIT: Span = Span::from_millis(20);

pub(super) fn run(run: &UpdatesRun, code: Code, tally: &mut Tally) {
    let (mut cutter, mut joiner) = (Cutter::new(PAYLOAD, code, WAIT), Joiner::default());
    let mut link = Link::new(run.link.clone(), run.seed);
    let mut flying: BinaryHeap<Reverse<Flying>> = BinaryHeap::new();
    let (mut cut, mut joined, mut number) = (Vec::new(), Vec::new(), 0);
    loop {
        let update = (number < run.count).then(|| tally.at(number));
        let arrival = flying.peek().map(|Reverse((at, ..))| *at);
        let Some(now) = [update, arrival, cutter.next_wakeup()].into_iter().flatten().min() else {
            return;
        };
        if update == Some(now) {
            let mut message = vec![0; run.size.max(8)];
            message[..4].copy_from_slice(&number.to_be_bytes());
            // Only messages above the size limit are refused.
            let _ = cutter.message(now, &message, &mut cut);
            number += 1;
        }
        cutter.flush(now, &mut cut);
        for Datagram { block, payload } in cut.drain(..) {
            let packet = payload.len() as u32 + SEALED + UDP_IP;
            tally.sent(packet);
            if let Fate::Arrives(passage) = link.offer(now, packet)
                && passage.turned_bit.is_none()
            {
                let order = tally.outcome.packets;
                flying.push(Reverse((passage.at, order, block, payload)));
            }
        }
        while flying.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, _, block, payload))) = flying.pop() else { break };
            joiner.take(block, &payload, &mut joined);
        }
        for joined in joined.drain(..) {
            if let Some(number) = joined.message.first_chunk() {
                tally.delivered(now, u32::from_be_bytes(*number));
            }
        }
    }
}
