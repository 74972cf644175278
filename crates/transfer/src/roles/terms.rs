//! The agreed parameters of a transfer.

use std::net::IpAddr;

use longhaul_net::sealing::keys::{FlowKeys, Suite};
use longhaul_net::sealing::seal::data_overhead;
use longhaul_proto::endpoint::{FlowId, Setup};
use longhaul_proto::law::{Law, Weight};
use longhaul_proto::layout::Layout;
use longhaul_proto::registry::Row;
use longhaul_proto::remembered::Remembered;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

use super::flight::FlightSecret;
use crate::error::{Error, ErrorKind};
use crate::session::Exporter;
use crate::write::budget::EARLY_GRANT;
use longhaul_files::CHUNK;
use longhaul_text::CallOption;

/// Default segment size. Segments are short, so chunks become complete, verified and journalled
/// soon after they were sent.
pub(crate) const DEFAULT_SEGMENT: Bytes = Bytes::mebi(16);

#[derive(Clone)]
pub(crate) struct Terms {
    /// The transfer's id in key derivation.
    pub(crate) transfer: u64,
    pub(crate) suite: Suite,
    pub(crate) exporter: Exporter,
    /// The secret of the flow that began before the session was open, if there was one.
    pub(crate) flight: Option<FlightSecret>,
    /// The other end's address, validated by the session.
    pub(crate) peer: IpAddr,
    /// The protocol; `None` if the chunks go over streams.
    pub(crate) protocol: Option<&'static Row>,
    pub(crate) settings: Settings,
    /// Without `protocol`: number of streams for chunks, besides the control stream. If zero, the
    /// control stream carries the chunks.
    pub(crate) streams: u32,
    /// Whether trials during the copy find the best number of streams.
    pub(crate) try_streams: bool,
    pub(crate) rate: Option<Rate>,
    pub(crate) rate_limit: Option<Rate>,
    /// The rate, round-trip time and loss that an earlier copy found on the path. The sending end
    /// starts from them.
    pub(crate) remembered: Option<Remembered>,
    /// The weight of this transfer against other traffic on the path.
    pub(crate) weight: Weight,
    /// Segment size; zero for the whole object.
    pub(crate) segment: Bytes,
    /// UDP payload of a full data datagram.
    pub(crate) datagram: u16,
    pub(crate) rtt: Span,
    /// The capacity of this host's network card in UDP payload, for datagrams of size `datagram`;
    /// `None` if unknown.
    pub(crate) card: Option<Rate>,
}

impl Terms {
    pub(crate) fn keys(&self, flow: FlowId) -> FlowKeys {
        let flight = self.flight.as_ref().filter(|flight| flight.flow == flow);
        let exporter = flight.map_or_else(|| self.exporter.clone(), FlightSecret::exporter);
        let secret = exporter.export(b"longhaul data", &self.transfer.to_be_bytes());
        FlowKeys::new(&secret, self.suite, self.transfer, flow)
    }

    pub(crate) fn block(&self, datagram: u16) -> u32 {
        u32::from(datagram).saturating_sub(data_overhead(self.suite) as u32)
    }

    /// Returns whether the sender may send coded symbols before it knows whether the receiver
    /// decodes them: only over a remembered path. A receiver that does not decode symbols drops
    /// them.
    pub(crate) fn starts_coded(&self) -> bool {
        self.remembered.is_some()
    }

    /// Returns whether the data go by unsealed datagrams.
    pub(crate) fn is_in_the_clear(&self) -> bool {
        self.suite == Suite::Plain && self.protocol.is_some()
    }

    /// Returns the lower of the given rate and the rate limit; `None` if neither is set.
    pub(crate) fn cap(&self) -> Option<Rate> {
        let both = [self.rate, self.rate_limit];
        both.into_iter().flatten().min()
    }

    /// Returns the setup of a core (the protocol's state machine) for a pass, on either side.
    pub(crate) fn setup(&self, flow: FlowId, layout: Layout) -> Setup {
        Setup {
            flow,
            layout,
            overhead: Bytes::new(data_overhead(self.suite) as u64),
            rtt: self.rtt,
            rate: self.rate,
            rate_limit: self.rate_limit,
            card: None,
            law: Law::default(),
            weight: self.weight,
            remembered: self.remembered,
            grant: EARLY_GRANT,
            settings: self.settings.clone(),
        }
    }
}

/// Returns the layout for these sizes; an error if they are invalid, because they may come from the
/// other side.
pub(crate) fn layout(object_len: u64, segment: Bytes, block: u32) -> Result<Layout, Error> {
    Layout::new(Bytes::new(object_len), segment, Bytes::new(CHUNK), block).map_err(|error| {
        let what = format!(
            "an object of {object_len} bytes cannot be cut into segments of {} bytes and blocks of \
             {block}: {error:?}",
            segment.get()
        );
        let (segment, datagram) = (CallOption::Segment, CallOption::Datagram);
        Error::new(ErrorKind::Usage, what).advise(format!("choose another {segment} or {datagram}"))
    })
}
