//! The messages of a probe, which measures the path between two hosts.

use crate::error::{Error, ErrorKind};

/// The client's request to measure: the first message of its session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Probe {
    /// The probe's id in key derivation; random.
    #[prost(fixed64, tag = "1")]
    pub probe: u64,
    /// The flow on which the server answers the questions that measure the round-trip time; random.
    #[prost(fixed32, tag = "2")]
    pub flow: u32,
    /// The cipher of the datagrams, by name; never `auto` or `none`.
    #[prost(string, tag = "3")]
    pub cipher: String,
}

/// The client's request for one measurement.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProbeRun {
    /// The flow of the measurement's datagrams; random.
    #[prost(fixed32, tag = "1")]
    pub flow: u32,
    /// True: from the client to the server; false: from the server to the client.
    #[prost(bool, tag = "2")]
    pub up: bool,
    /// The data go over the stream of this message, as fast as possible, instead of in datagrams.
    #[prost(bool, tag = "3")]
    pub stream: bool,
    /// The rate of the datagrams in bits a second of UDP payload.
    #[prost(uint64, tag = "4")]
    pub rate_bps: u64,
    /// How long to send, in microseconds.
    #[prost(uint64, tag = "5")]
    pub micros: u64,
    /// UDP payload of a datagram in bytes.
    #[prost(uint32, tag = "6")]
    pub datagram: u32,
    /// The receiver copies each payload once, as an application does.
    #[prost(bool, tag = "7")]
    pub copies: bool,
}

/// The longest time that one measurement may send, in microseconds.
const LONGEST: u64 = 10_000_000;
/// The highest rate that may be requested, in bits a second.
const FASTEST: u64 = 100_000_000_000;
/// The allowed sizes of a datagram in bytes.
const DATAGRAMS: std::ops::RangeInclusive<u32> = 256..=65_000;

impl ProbeRun {
    /// Checks the request before anything acts on it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: the time, the rate or the size of a datagram is out of range.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |what: String, advice: &str| {
            Err(Error::new(ErrorKind::Usage, what).advise(format!("ask for {advice}")))
        };
        if self.micros == 0 || self.micros > LONGEST {
            let what = format!("a measurement cannot take {} µs", self.micros);
            return refuse(what, "10 s at most");
        }
        if self.stream {
            return Ok(());
        }
        if self.rate_bps == 0 || self.rate_bps > FASTEST {
            let what = format!("a measurement cannot run at {} bit/s", self.rate_bps);
            return refuse(what, "100 Gbit/s at most");
        }
        if !DATAGRAMS.contains(&self.datagram) {
            let what = format!("datagrams of {} bytes are not possible", self.datagram);
            return refuse(what, "256 to 65000 bytes");
        }
        Ok(())
    }
}

/// The counts of a measurement. A message with only zeros says that the server accepts the probe,
/// that the receiver of a measurement is ready, or that the content of a stream ends.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProbeCount {
    /// Datagrams sent.
    #[prost(uint64, tag = "1")]
    pub sent: u64,
    /// Genuine datagrams received.
    #[prost(uint64, tag = "2")]
    pub received: u64,
    /// Bytes of UDP payload received; for a stream, bytes of content after the first `ChunkPiece`
    /// (a message with content).
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Rate of arrivals in bits a second, from the first batch of datagrams to the last one; for a
    /// stream, from the first piece to the last one. The bytes of the first batch or piece do not
    /// count. If all datagrams arrived in one batch: all their bytes divided by the time of
    /// sending.
    #[prost(uint64, tag = "4")]
    pub rate_bps: u64,
    /// Datagrams that arrived after a datagram that was sent later.
    #[prost(uint64, tag = "5")]
    pub reordered: u64,
    /// Datagrams that the receiver's kernel dropped because a buffer was full.
    #[prost(uint64, tag = "6")]
    pub socket_lost: u64,
    /// Datagrams of this size are too large for the sender's link.
    #[prost(bool, tag = "7")]
    pub too_large: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_bounded_in_time_rate_and_size() {
        let run = ProbeRun { rate_bps: 1, micros: 1, datagram: 256, ..ProbeRun::default() };
        assert_eq!(run.check(), Ok(()));
        let wrong = [
            ProbeRun { micros: 0, ..run.clone() },
            ProbeRun { micros: 10_000_001, ..run.clone() },
            ProbeRun { micros: u64::MAX, stream: true, ..run.clone() },
            ProbeRun { rate_bps: 0, ..run.clone() },
            ProbeRun { rate_bps: 100_000_000_001, ..run.clone() },
            ProbeRun { datagram: 255, ..run.clone() },
            ProbeRun { datagram: u32::MAX, ..run.clone() },
        ];
        for run in wrong {
            assert_eq!(run.check().unwrap_err().kind, ErrorKind::Usage, "{run:?}");
        }
        // A stream has neither rate nor datagrams.
        assert_eq!(ProbeRun { stream: true, micros: 1, ..ProbeRun::default() }.check(), Ok(()));
    }
}
