//! The control messages of a core (the state machine of a protocol), each wrapped in a numbered
//! message, a relay. A relay may be sent both by stream and by datagram; its number lets the other
//! end drop the second copy.

use longhaul_net::sealing::replay::{ReplayWindow, Seen};
use longhaul_proto::endpoint::{Carrier, Outgoing, PacketNumber};
use longhaul_proto::wire::Control;

use super::outbox::{Outbox, Shadow};
use crate::control::{Message, Relay};

/// The lowest message number that is refused. No honest side sends so many messages, and a message
/// with so high a number would move the replay window past all honest numbers.
const NUMBERS: u64 = 1 << 62;

/// One side's relays of a flow, in both directions.
#[derive(Default)]
pub(super) struct Relays {
    next: u64,
    seen: ReplayWindow,
}

impl Relays {
    pub(super) fn send(&mut self, outgoing: &Outgoing, shadow: &mut Shadow, outbox: &Outbox) {
        let mut control = Vec::new();
        outgoing.control.encode(&mut control);
        let message = Message::Relay(Relay { flow: outgoing.flow.0, control, number: self.next });
        self.next += 1;
        match outgoing.carrier {
            Carrier::Reliable => shadow.send_both(outbox, message),
            Carrier::Datagram => shadow.send(&message),
        }
    }

    /// Returns the control message of a relay. Returns `None` for a repeated or very old number,
    /// for one from [`NUMBERS`] on, and for a message that this version cannot decode.
    pub(super) fn take(&mut self, relay: &Relay) -> Option<Control> {
        let number = PacketNumber(relay.number);
        if relay.number >= NUMBERS || self.seen.check(number) != Seen::New {
            return None;
        }
        let control = Control::decode(&relay.control).ok()?;
        self.seen.mark(number);
        Some(control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::wire::Done;

    fn relay(number: u64) -> Relay {
        let done = Done { segment: 0, round: 1, sent_to: 4, highest: PacketNumber(3) };
        let mut control = Vec::new();
        Control::Done(done).encode(&mut control);
        Relay { flow: 7, control, number }
    }

    #[test]
    fn the_second_copy_of_a_message_counts_for_nothing() {
        let mut relays = Relays::default();
        assert!(relays.take(&relay(5)).is_some());
        assert!(relays.take(&relay(5)).is_none());
        assert!(relays.take(&relay(4)).is_some());
    }

    #[test]
    fn an_impossible_message_number_is_refused() {
        let mut relays = Relays::default();
        for number in [u64::MAX, u64::MAX - 1, NUMBERS] {
            assert!(relays.take(&relay(number)).is_none(), "number {number}");
        }
        assert!(relays.take(&relay(0)).is_some());
    }

    #[test]
    fn bytes_that_are_no_message_are_ignored() {
        let mut relays = Relays::default();
        assert!(relays.take(&Relay { flow: 7, control: vec![0xff; 9], number: 0 }).is_none());
        assert!(relays.take(&relay(0)).is_some());
    }
}
