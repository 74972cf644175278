//! Begins the flow of a pass (a run over the missing chunks) at the sending end: the keys, the
//! sending thread, and the sink for the receiver's messages.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use longhaul_files::VirtualObject;
use longhaul_net::port::PortHandle;
use longhaul_net::port::address::AddressRule;
use longhaul_net::port::receipts::Receipts;
use longhaul_net::socket::{LARGEST_WHOLE, Path};
use longhaul_proto::endpoint::{BlockRange, BoxedSender, FlowId};
use longhaul_proto::layout::Layout;
use tokio::sync::mpsc;

use super::terms::Terms;
use crate::control::Message;
use crate::counters::Counters;
use crate::counters::board::Board;
use crate::error::Error;
use crate::flow::feedback::Feedback;
use crate::flow::outbox::Outbox;
use crate::flow::payloads::{Payloads, prepare_code};
use crate::flow::send::{self, Done, SendCommand, SendPass, SenderEvent};
use crate::write::skip::blocks_within;

/// Returns the blocks that are never sent, because the receiver knows their content: those of
/// padding and holes.
pub(super) fn implied(object: &VirtualObject, layout: &Layout) -> Vec<BlockRange> {
    object.implied().into_iter().flat_map(|bytes| blocks_within(layout, bytes)).collect()
}

/// What a flow is connected to.
pub(super) struct FlowEnds {
    pub(super) port: PortHandle,
    /// Where the data go; `None` until the receiver's address is known.
    pub(super) path: Option<Path>,
    pub(super) outbox: Outbox,
    /// The queue for messages that arrive as datagrams.
    pub(super) inlet: mpsc::Sender<Message>,
    pub(super) board: Arc<Board>,
    /// The counters of earlier passes.
    pub(super) earlier: Counters,
    pub(super) events: mpsc::UnboundedSender<SenderEvent>,
    /// Asks the receiver's port how much has arrived. Only if the session is not open yet.
    pub(super) receipts: Option<Receipts>,
}

impl FlowEnds {
    /// Starts the sending thread, and registers the flow at the port.
    pub(super) fn begin(
        self,
        terms: &Terms,
        core: BoxedSender,
        (flow, layout, datagram): (FlowId, Layout, u16),
        payloads: Payloads,
    ) -> Result<(Sender<SendCommand>, Done), Error> {
        let FlowEnds { port, path, outbox, inlet, board, earlier, events, receipts } = self;
        if datagram > LARGEST_WHOLE {
            // If this fails, the kernel refuses the first large datagram, and another pass sends
            // smaller ones.
            let _ = port.socket().allow_fragments();
        }
        // The remembered path loses datagrams, so symbols will be needed.
        if core.uses_coded() && terms.remembered.is_some_and(|path| path.loss.get() > 0.0) {
            prepare_code();
        }
        let keys = terms.keys(flow).sending_end();
        let pass = SendPass {
            flow,
            layout,
            core,
            data: keys.data,
            control: keys.control,
            port: port.clone(),
            path,
            datagram,
            outbox,
            board: board.clone(),
            earlier,
            events,
            receipts,
        };
        let (commands, done) = send::spawn(pass, payloads)?;
        let address = match path {
            Some(path) => AddressRule::contacted(path.remote),
            None => AddressRule::waiting(terms.peer),
        };
        let reports = keys.reports.over(terms.rtt);
        let feedback = Feedback::new(reports, commands.clone(), inlet, address, board);
        let feedback = feedback.with_receipts(receipts);
        port.register(flow, Box::new(feedback))?;
        Ok((commands, done))
    }
}
