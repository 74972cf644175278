//! TCP flows over the kernel's TCP.

use std::fs;
use std::time::Instant;

use longhaul_proto::time::Span;

use super::super::host::widen_tcp;
use super::super::kernel_tcp::{KernelTcp, LOOK_EVERY};
use super::super::{Emulation, EmulationError};
use super::Run;
use super::end::{FlowCounts, FlowEnd};
use crate::scenario::{Amount, Congestion, Tcp};

/// Interval at which a flow's progress is recorded.
const POINTS_APART: Span = Span::from_millis(100);
/// Maximum number of connections of one flow.
pub(super) const MAX_STREAMS: u32 = 1_000;
/// Without a configured window, the kernel's limit for a TCP buffer is raised to this many bytes:
/// more than twice the data in flight at 10 Gbit/s and 100 ms.
const LARGEST_BUFFER: u64 = 256 << 20;

pub(super) fn run(run: &Run<'_>, tcp: &Tcp, end: &mut FlowEnd) -> Result<(), String> {
    let streams = tcp.streams;
    let Some(streams) = u16::try_from(streams).ok().filter(|_| streams <= MAX_STREAMS) else {
        return Err(format!("{streams} streams; an emulated flow has at most {MAX_STREAMS}"));
    };
    let mut running = start(run.emulation, &kernel_tcp(run, tcp, streams))?;
    let over = run.over();
    while !running.is_finished() {
        let look = Instant::now() + LOOK_EVERY / 10;
        let is_over = over.is_some_and(|over| over <= look);
        if run.stop.wait(Some(over.map_or(look, |over| over.min(look)))) || is_over {
            break;
        }
        let (now, last) = (run.took(), end.series.last().map_or(Span::ZERO, |(at, _)| *at));
        if now >= last + POINTS_APART {
            end.series.push((now, running.received()));
        }
    }
    // As in the simulator, bytes still in buffers do not count.
    end.delivered = running.received();
    end.took = run.took();
    let sized = matches!(run.flow.amount, Amount::Size(_));
    let whole = running.is_finished() && sized;
    running.stop();
    let took = running.wait().map_err(|error| format!("TCP: {error}"))?;
    if whole {
        end.delivered = running.received();
        end.took = took;
    } else if let Amount::Lasts(span) = run.flow.amount {
        end.took = end.took.min(span);
    }
    let segments = running.segments();
    end.counts = FlowCounts {
        sent: Some(segments.sent),
        retransmitted: Some(segments.retransmitted),
        ..FlowCounts::default()
    };
    end.finished = match run.flow.amount {
        Amount::Size(size) => end.delivered == size,
        Amount::Lasts(span) => end.took >= span,
        Amount::Endless => true,
    };
    Ok(())
}

/// Describes a flow's transfer, with its congestion control if the kernel has it, otherwise with
/// the kernel's default. Without a configured window, raises the buffer limits of both hosts to
/// [`LARGEST_BUFFER`].
pub(super) fn kernel_tcp(run: &Run<'_>, tcp: &Tcp, streams: u16) -> KernelTcp {
    if tcp.window.is_none() {
        for host in [run.from(), run.to()] {
            // If the kernel forbids the change, the present limit stays. `host::make` gives a
            // notice if the present limit is below 64 MiB.
            let _ = run.emulation.enter_host(host, || widen_tcp(LARGEST_BUFFER));
        }
    }
    KernelTcp {
        from: run.from().to_owned(),
        to: run.to().to_owned(),
        port: run.port(),
        streams,
        amount: run.flow.amount,
        window: tcp.window,
        congestion: Some(kernels_name(tcp.congestion).to_owned()).filter(|name| knows(name)),
    }
}

fn start(
    emulation: &Emulation,
    tcp: &KernelTcp,
) -> Result<super::super::kernel_tcp::Running, String> {
    emulation.start_tcp(tcp).map_err(|error: EmulationError| error.to_string())
}

pub(super) fn kernels_name(congestion: Congestion) -> &'static str {
    match congestion {
        Congestion::NewReno => "reno",
        Congestion::Cubic => "cubic",
        Congestion::Bbr => "bbr",
    }
}

pub(super) fn knows(name: &str) -> bool {
    const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = fs::read_to_string(AVAILABLE).unwrap_or_default();
    available.split_whitespace().any(|known| known == name)
}
