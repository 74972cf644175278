//! Throughput of NETBLT. Several buffers (groups of blocks that the receiver confirms together) in
//! flight keep a path full at a loss of up to 5 %, and the sender resends hardly more than the lost
//! blocks. One buffer at a time does not keep the path full. A slow receiving host is not overrun.

use longhaul_proto::netblt::ROW;
use longhaul_proto::registry::find;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use crate::rig::{Channel, Host, Rig, setup};

const RTT: Span = Span::from_millis(40);
const RATE: Rate = Rate::from_mbps(50);

/// Runs a flow of `blocks` blocks. Returns the shortest possible duration at this loss as a share
/// of the actual duration, and the flow's waste (datagrams sent beyond `blocks`, as a share of
/// `blocks`).
fn fullness(blocks: u64, buffers: f64, loss: f64, host: Host) -> (f64, f64) {
    let row = find(ROW.name).expect("it is registered");
    let mut rig = Rig::new(row, 1, Channel { loss, ..Channel::perfect(RTT / 2) });
    let mut setup = setup(1, blocks, 0, Some(RATE), RTT);
    // A buffer of 500 blocks takes two round trips to send; the objects have 20 or 40 buffers.
    let settings = Settings::default().with(row, "buffer", 500.0);
    let settings = settings.and_then(|settings| settings.with(row, "buffers", buffers));
    setup.settings = settings.expect("settings that it has");
    rig.add_flow(setup, host);
    rig.run(Span::from_secs(60));
    let flow = &rig.flows[0];
    let took = flow.finished_at.expect("it ran to the end").since(Time::ZERO);
    let best = Bytes::new(blocks * 1032) / RATE;
    let share = best.as_secs_f64() / (1.0 - loss) / took.as_secs_f64();
    (share, flow.sender.accounting().waste(blocks))
}

#[test]
fn several_buffers_in_flight_keep_a_lossy_path_full_with_little_waste() {
    for (loss, least) in [(0.0, 0.97), (0.001, 0.95), (0.01, 0.94), (0.05, 0.92)] {
        let (share, waste) = fullness(20_000, 4.0, loss, Host::Fast);
        assert!(share > least, "loss {loss}: {share}");
        assert!(waste <= loss / (1.0 - loss) + 0.01, "loss {loss}: waste {waste}");
    }
}

#[test]
fn one_buffer_at_a_time_is_lock_step() {
    // Two round trips of data, then one round trip of waiting for the receiver's OK and GO: the
    // path is full for two thirds of the time.
    let (share, _) = fullness(20_000, 1.0, 0.0, Host::Fast);
    assert!((0.6..0.75).contains(&share), "{share}");
}

#[test]
fn a_host_that_drains_half_the_rate_is_not_overrun() {
    let slow = Host::Slow(Rate::from_mbps(25), Bytes::new(2_000_000));
    let (share, waste) = fullness(10_000, 4.0, 0.0, slow);
    assert!(waste == 0.0 && (0.45..0.6).contains(&share), "{share}, waste {waste}");
}
