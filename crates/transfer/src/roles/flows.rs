//! The flow ids of one transfer, one for each pass (a run over the missing chunks).
//!
//! Keys and nonces are derived from the flow id (`sealing/keys.rs` in `longhaul_net`). If an id
//! were used twice within a transfer, two passes would use one key with the same nonces. So the
//! sending end draws again if chance repeats an id, and the receiving end refuses a repeated id.

use std::collections::BTreeSet;

use longhaul_proto::endpoint::FlowId;

use crate::error::{Error, ErrorKind};

/// Maximum number of passes that a receiver accepts, so a sender cannot fill the receiver's memory
/// with ids.
const MOST: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Flows(BTreeSet<u32>);

impl Flows {
    /// Returns the id of another pass: the first from `draw` that no earlier pass has used.
    pub(super) fn draw(&mut self, draw: impl FnMut() -> FlowId) -> FlowId {
        let ids = std::iter::repeat_with(draw);
        let mut fresh = ids.filter(|id| self.0.insert(id.0));
        fresh.next().expect("there are more ids than passes")
    }

    /// Accepts the id that the other end chose, unless an earlier pass has used it.
    pub(super) fn take(&mut self, id: FlowId) -> Result<(), Error> {
        let what = match self.0.len() < MOST {
            true if self.0.insert(id.0) => return Ok(()),
            true => format!("uses flow id {} twice, which would repeat its keys", id.0),
            false => format!("sends more than {MOST} passes"),
        };
        Err(Error::new(ErrorKind::Unreachable, format!("the other side {what}"))
            .advise("use the same release of longhaul on both sides"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_draws_again_where_chance_repeats_an_id() {
        let mut flows = Flows::default();
        let mut chance = [7, 7, 7, 8, 7, 8, 9].map(FlowId).into_iter();
        let mut draw = || flows.draw(|| chance.next().expect("it draws no more than it must"));
        assert_eq!([draw(), draw(), draw()], [7, 8, 9].map(FlowId));
    }

    #[test]
    fn a_receiver_refuses_an_id_of_an_earlier_pass_and_too_many_passes() {
        let mut flows = Flows::default();
        assert_eq!((flows.take(FlowId(7)), flows.take(FlowId(8))), (Ok(()), Ok(())));
        let error = flows.take(FlowId(7)).unwrap_err();
        assert!(error.what.contains("flow id 7 twice"), "{error}");
        flows.0.extend(0..MOST as u32);
        assert!(flows.take(FlowId(u32::MAX)).unwrap_err().what.contains("1048576 passes"));
    }
}
