//! Checks the CPU: AES instructions, and the encryption rate of one core.

use std::time::{Duration, Instant};

use longhaul::Cipher;
use longhaul_net::sealing::keys::{FlowKeys, Suite, has_fast_aes};
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::header::Kind;

use super::{Finding, Grade, Want};

/// Bytes of a block that fits into an Ethernet packet.
const BLOCK: usize = 1_440;
const TIME: Duration = Duration::from_millis(100);
/// Blocks between two readings of the clock.
const BATCH: usize = 64;

pub(super) fn look(want: Want) -> Vec<Finding> {
    let fast = has_fast_aes();
    let what = if fast {
        "AES and carry-less multiplication in hardware"
    } else {
        "instructions for AES, for carry-less multiplication, or for both are missing"
    };
    let mend =
        "longhaul encrypts with chacha20-poly1305 instead; use --cipher none only on trusted fibre";
    let aes = Finding::new("cpu-aes", Grade::unless(fast, Grade::Warn), what, mend);
    let suite = Suite::choose(Cipher::Auto, fast);
    let sealed = seal(suite);
    // The same core also reads, hashes and sends, so it should encrypt at twice the wanted rate.
    let grade = match sealed {
        _ if sealed >= want.rate.scale(2.0) => Grade::Ok,
        _ if sealed >= want.rate => Grade::Warn,
        _ => Grade::Bad,
    };
    let what = format!("one core encrypts {sealed} with {}", suite.name());
    let mend = "larger packets (MTU 9000) or a faster core would help";
    vec![aes, Finding::new("cpu-seal", grade, what, mend)]
}

/// The rate at which one core encrypts.
fn seal(suite: Suite) -> Rate {
    let mut sealer = FlowKeys::new(&[7; 32], suite, 1, FlowId(1)).sending_end().data;
    let block = [0x55; BLOCK];
    let mut datagram = [0; BLOCK + 64];
    let began = Instant::now();
    let mut sealed = 0;
    while began.elapsed() < TIME {
        for _ in 0..BATCH {
            // Cannot fail: a new sealer has enough packet numbers for the measurement.
            sealed += sealer.seal(Kind::Data, 0, &block, &mut datagram).map_or(0, |_| BLOCK as u64);
        }
        std::hint::black_box(&datagram);
    }
    Bytes::new(sealed) / Span::from_nanos(began.elapsed().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_above_any_core_is_bad_and_a_rate_below_every_core_is_ok() {
        let want = |rate| Want { rate, rtt: Span::ZERO, is_asked: true };
        assert_eq!(look(want(Rate::from_bps(u64::MAX)))[1].grade, Grade::Bad);
        assert_eq!(look(want(Rate::from_bps(1_000)))[1].grade, Grade::Ok);
    }
}
