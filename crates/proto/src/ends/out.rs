//! For tests of protocols: a sender without a network.

use alloc::vec::Vec;

use crate::endpoint::{FlowId, Outgoing, PacketNumber, Sender, Wake, Why};
use crate::layout::Block;
use crate::time::{Span, Time};
use crate::wire::Control;

pub(crate) const FLOW: FlowId = FlowId(7);

pub(crate) struct Out<S> {
    pub(crate) sender: S,
    pub(crate) now: Time,
    pub(crate) sent: Vec<Block>,
    /// Sequence number of the last numbered message that the test gave to the sender.
    pub(crate) sequence: u64,
}

impl<S: Sender> Out<S> {
    pub(crate) fn of(sender: S) -> Out<S> {
        Out { sender, now: Time::ZERO, sent: Vec::new(), sequence: 0 }
    }

    /// Sends until the pacer has released everything; returns the indices of the blocks sent
    /// meanwhile.
    pub(crate) fn run(&mut self) -> Vec<u32> {
        self.run_while(|out, wake| {
            let Wake::At(at, Why::Pacing) = wake else { return false };
            out.now = out.now.max(at);
            true
        })
    }

    /// Sends until nothing more is due at or before `until`; returns the indices of the blocks sent
    /// meanwhile.
    pub(crate) fn run_until(&mut self, until: Time) -> Vec<u32> {
        let sent = self.run_while(|out, wake| {
            let Wake::At(at, _) = wake else { return false };
            if at <= until {
                out.now = out.now.max(at);
                out.sender.on_timeout(out.now);
            }
            at <= until
        });
        self.now = self.now.max(until);
        sent
    }

    pub(crate) fn run_for(&mut self, millis: u64) -> Vec<u32> {
        self.run_until(self.now + Span::from_millis(millis))
    }

    /// Sends until there is nothing to send and `waits` returns false. `waits` gets the sender's
    /// next wake-up, and returns whether it has waited for this wake-up.
    fn run_while(&mut self, waits: impl Fn(&mut Self, Wake) -> bool) -> Vec<u32> {
        let from = self.sent.len();
        loop {
            let before = self.sent.len();
            let next = PacketNumber(before as u64);
            self.sender.poll_transmit(self.now, next, 16, &mut self.sent);
            let wake = self.sender.next_wakeup();
            if self.sent.len() == before && !waits(self, wake) {
                break;
            }
        }
        self.sent[from..].iter().map(|block| block.index).collect()
    }

    pub(crate) fn messages(&mut self) -> impl Iterator<Item = Outgoing> {
        core::iter::from_fn(|| self.sender.poll_control(self.now))
    }

    pub(crate) fn hear(&mut self, control: &Control) {
        self.sender.on_control(self.now, FLOW, control);
    }
}
