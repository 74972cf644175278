//! The first flight: data that leave before the session is open. A client sends them only if it
//! remembers the path to the server from an earlier copy. The early start saves the handshake's
//! round trip.
//!
//! The client draws a random secret, and seals the flight's datagrams with keys derived from this
//! secret. The server keeps the datagrams, but cannot read them. Once the session is open, and both
//! sides have authenticated each other, the request tells the server the secret. So only the server
//! that the client wants can read the flight, the flight has no effect before the client is
//! authenticated, and a replay of the flight is useless: nobody ever tells its secret again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use longhaul_net::port::PortHandle;
use longhaul_net::port::receipts::Receipts;
use longhaul_net::socket::Path;
use longhaul_proto::endpoint::{FlowId, Setup};
use longhaul_proto::layout::Layout;
use longhaul_proto::units::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_local};

use super::begin::{self, FlowEnds};
use super::lost_thread;
use super::prepared::Description;
use super::terms::{Terms, layout};
use super::wire::{INLET, Wire};
use crate::control::Message;
use crate::counters::Counters;
use crate::counters::board::Board;
use crate::error::Error;
use crate::flow::outbox::{Outbox, Outflow};
use crate::flow::payloads::Payloads;
use crate::flow::send::{Done, SendCommand, SenderEvent};
use crate::session::Exporter;
use crate::write::budget::{EARLY_GRANT, MessageCharge};

/// The memory at the server that a flight may use, in bytes. The server has 8 MB for the early data
/// of a flow; the rest is for data that leave while the server handles the request.
const MEMORY: u64 = 7_100_000;
/// Bytes of this memory that a datagram takes in addition to its UDP payload.
const BESIDE: u64 = 112;

/// The secret of a first flight.
#[derive(Clone)]
pub(crate) struct FlightSecret {
    pub(crate) flow: FlowId,
    secret: [u8; 32],
}

impl FlightSecret {
    pub(crate) const LEN: usize = 32;

    pub(crate) fn draw(flow: FlowId) -> FlightSecret {
        let mut secret = [0; FlightSecret::LEN];
        aws_lc_rs::rand::fill(&mut secret).expect("the system has randomness");
        FlightSecret { flow, secret }
    }

    /// Returns the secret that a client told; `None` if it has the wrong length.
    pub(crate) fn told(flow: FlowId, secret: &[u8]) -> Option<FlightSecret> {
        Some(FlightSecret { flow, secret: secret.try_into().ok()? })
    }

    pub(crate) fn tell(&self) -> Vec<u8> {
        self.secret.to_vec()
    }

    pub(crate) fn exporter(&self) -> Exporter {
        Exporter::of_secret(&self.secret)
    }
}

/// A flow that sends although there is no session yet. Dropping it ends the flow.
pub(crate) struct Flight {
    pub(crate) terms: Terms,
    pub(crate) flow: FlowId,
    pub(super) layout: Layout,
    port: PortHandle,
    running: Option<(Sender<SendCommand>, Done)>,
    events: Option<(mpsc::UnboundedSender<SenderEvent>, mpsc::UnboundedReceiver<SenderEvent>)>,
    /// The flow's messages by stream, and those by datagram.
    messages: Option<(Outflow, mpsc::Receiver<Message>)>,
}

/// A first flight that became the first pass (a run over the missing chunks) of a transfer.
pub(super) struct Adopted {
    pub(super) commands: Sender<SendCommand>,
    pub(super) done: Done,
    pub(super) events_end: mpsc::UnboundedSender<SenderEvent>,
    pub(super) events: mpsc::UnboundedReceiver<SenderEvent>,
    /// Ends when the flow has ended, and its messages are in the session's queue.
    pub(super) forwarding: JoinHandle<()>,
}

/// Returns the bytes that may leave before the session is open, in datagrams of `datagram` bytes
/// that each carry a block of `block` bytes.
fn grant(datagram: u16, block: u32) -> Bytes {
    let datagrams = MEMORY / (u64::from(datagram) + BESIDE);
    Bytes::new(datagrams * u64::from(block))
}

impl Flight {
    /// Sends `payloads`, the object of `description`, to the data port at `to`. `terms` must have a
    /// flight's secret and a protocol.
    pub(crate) fn start(
        terms: Terms,
        description: &Description,
        payloads: Box<Payloads>,
        port: PortHandle,
        to: SocketAddr,
        board: Arc<Board>,
        charge: MessageCharge,
    ) -> Result<Flight, Error> {
        let (Some(FlightSecret { flow, .. }), Some(row)) = (&terms.flight, terms.protocol) else {
            return Err(lost_thread());
        };
        let (flow, datagram) = (*flow, terms.datagram);
        let layout = layout(description.object.len(), terms.segment, terms.block(datagram))?;
        board.note_block(layout.block_size());
        let setup = Setup {
            grant: grant(datagram, layout.block_size()),
            card: terms.card,
            ..terms.setup(flow, layout)
        };
        let mut core = (row.sender)(&setup);
        if terms.starts_coded() {
            core.allow_coded();
        }
        let now = longhaul_net::clock::now();
        for run in begin::implied(&description.object, &layout) {
            core.skip(now, flow, run);
        }
        let (outbox, outflow) = Outbox::new(charge);
        let (inlet, heard) = mpsc::channel(INLET);
        let (events_end, events) = mpsc::unbounded_channel();
        let ends = FlowEnds {
            port: port.clone(),
            path: Some(Path::from(to)),
            outbox,
            inlet,
            board,
            earlier: Counters::default(),
            events: events_end.clone(),
            receipts: Some(Receipts::of(flow)?),
        };
        let running = Some(ends.begin(&terms, core, (flow, layout, datagram), *payloads)?);
        let (events, messages) = (Some((events_end, events)), Some((outflow, heard)));
        Ok(Flight { terms, flow, layout, port, running, events, messages })
    }

    /// Whether messages were dropped, because too many wait for the session.
    pub(crate) fn has_lost_messages(&self) -> bool {
        self.messages.as_ref().is_none_or(|(outflow, _)| outflow.overflown().is_some())
    }

    /// Ends the flow, and returns the payloads for another one. The flow's messages are lost, so
    /// the next flow reports failed files again.
    pub(crate) async fn recall(mut self) -> Result<Box<Payloads>, Error> {
        let (commands, done) = self.running.take().ok_or_else(lost_thread)?;
        let _ = commands.send(SendCommand::Stop);
        self.port.unregister(self.flow);
        let mut payloads = done.await.map_err(|_| lost_thread())??;
        payloads.report_again();
        Ok(Box::new(payloads))
    }

    #[cfg(test)]
    pub(super) fn lose_messages(&self) {
        self.messages.as_ref().expect("it is not adopted").0.lose_messages();
    }

    /// Waits until a file has failed.
    #[cfg(test)]
    pub(super) async fn failed(&mut self) {
        let (_, events) = self.events.as_mut().expect("it is not adopted");
        while !matches!(events.recv().await, Some(SenderEvent::Failed(_))) {}
    }

    /// Connects the flow with the session. The messages that the flow has sent so far follow those
    /// that are in the outbox of `wire` already.
    pub(super) fn adopt(mut self, wire: &Wire) -> Option<Adopted> {
        let (outflow, mut heard) = self.messages.take()?;
        let inlet = wire.inlet();
        let forwarding = spawn_local(outflow.forward(wire.outbox().clone()));
        spawn_local(async move {
            while let Some(message) = heard.recv().await {
                // As in `Feedback`: a message that finds the queue full also arrives by the stream.
                let _ = inlet.try_send(message);
            }
        });
        let running = self.running.take()?;
        let _ = running.0.send(SendCommand::Session(EARLY_GRANT));
        let ((commands, done), (events_end, events)) = (running, self.events.take()?);
        Some(Adopted { commands, done, events_end, events, forwarding })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some((commands, _)) = &self.running {
            let _ = commands.send(SendCommand::Stop);
            self.port.unregister(self.flow);
        }
    }
}
