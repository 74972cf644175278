//! Short TCP connections ("mice"): at given times, or one after the other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;

use super::super::kernel_tcp::{self, End, KernelTcp, Segments};
use super::end::{FlowCounts, FlowEnd};
use super::{Run, duration, streams};
use crate::random::Random;
use crate::scenario::{Amount, Arrivals, Mice};

/// Maximum number of mice at once; the next one waits.
const MOST_AT_ONCE: usize = 256;
/// Interval of checks for the end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

struct Nest<'r> {
    run: &'r Run<'r>,
    tcp: KernelTcp,
    address: SocketAddr,
    size: Bytes,
    over: AtomicBool,
    received: AtomicU64,
    /// Mice in flight by port: index and start.
    ports: Mutex<BTreeMap<u16, (usize, Instant)>>,
    /// Arrived mice by index: duration.
    lives: Mutex<BTreeMap<usize, Span>>,
    segments: Mutex<Segments>,
    trouble: Mutex<Option<String>>,
}

pub(super) fn run(run: &Run<'_>, mice: &Mice, end: &mut FlowEnd) -> Result<(), String> {
    let Amount::Size(size) = run.flow.amount else { return Err("the mice have no size".into()) };
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let ip = run.emulation.addresses(run.to()).map_err(|error| text(&error))?.v4;
    let tcp = streams::kernel_tcp(run, &mice.tcp, 1);
    let address = SocketAddr::new(IpAddr::V4(ip), tcp.port);
    let listener = run.emulation.enter_host(run.to(), || kernel_tcp::listen(address, &tcp));
    let listener = listener.map_err(|error| text(&error))?.map_err(|error| text(&error))?;
    let nest = Nest {
        run,
        tcp,
        address,
        size,
        over: AtomicBool::new(false),
        received: AtomicU64::new(0),
        ports: Mutex::default(),
        lives: Mutex::default(),
        segments: Mutex::default(),
        trouble: Mutex::default(),
    };
    thread::scope(|scope| {
        let taking = scope.spawn(|| nest.take_all(&listener));
        scope.spawn(|| nest.end_with_run());
        // The sending thread and its sockets belong to the sending host.
        let sent = run.emulation.enter_host(run.from(), || nest.send_all(mice));
        if let Err(error) = sent {
            nest.fail(&error);
        }
        nest.over.store(true, Ordering::Relaxed);
        taking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let lives = nest.lives.into_inner().unwrap_or_else(PoisonError::into_inner);
    let segments = nest.segments.into_inner().unwrap_or_else(PoisonError::into_inner);
    end.took = run.took();
    end.finished = lives.len() == mice.count as usize;
    end.lives = lives.into_values().collect();
    end.delivered = Bytes::new(nest.received.into_inner());
    end.counts = FlowCounts {
        sent: Some(segments.sent),
        retransmitted: Some(segments.retransmitted),
        ..FlowCounts::default()
    };
    nest.trouble.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn with<T, R>(lock: &Mutex<T>, act: impl FnOnce(&mut T) -> R) -> R {
    act(&mut lock.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Nest<'_> {
    fn fail(&self, error: &dyn std::fmt::Display) {
        if self.is_over() {
            // When both ends stop, one end may find that the other has closed the connection.
            return;
        }
        with(&self.trouble, |trouble| {
            trouble.get_or_insert_with(|| format!("a mouse: {error}"));
        });
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.run.stop.is_stopped()
    }

    /// Ends the mice in flight when the run stops: they check only `over`.
    fn end_with_run(&self) {
        while !self.is_over() {
            self.run.stop.wait(Some(Instant::now() + LOOK_EVERY));
        }
        self.over.store(true, Ordering::Relaxed);
    }

    /// Starts each mouse at its time, or after the end of the previous mouse, on the sending host.
    /// Waits until all mice have ended or the run stops.
    fn send_all(&self, mice: &Mice) {
        let mut random = Random::new(self.run.scenario.seed ^ self.run.place as u64);
        let mut due = self.run.start();
        thread::scope(|scope| {
            let mut away: Vec<thread::ScopedJoinHandle<'_, ()>> = Vec::new();
            for nth in 0..mice.count as usize {
                while !self.is_over() && due > Instant::now() {
                    let look = due.min(Instant::now() + LOOK_EVERY);
                    self.run.stop.wait(Some(look));
                }
                if self.is_over() {
                    break;
                }
                away.retain(|mouse| !mouse.is_finished());
                let waits = away.len() >= MOST_AT_ONCE || mice.arrivals == Arrivals::InTurn;
                if waits && !away.is_empty() {
                    let first = away.remove(0);
                    first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                }
                away.push(scope.spawn(move || self.send(nth)));
                due += match mice.arrivals {
                    Arrivals::Regular(span) => duration(span),
                    Arrivals::Poisson(mean) => duration(random.exponential(mean)),
                    Arrivals::InTurn => Duration::ZERO,
                };
            }
        });
    }

    fn send(&self, nth: usize) {
        let set_out = Instant::now();
        let sent = kernel_tcp::open(&self.tcp).and_then(|socket| {
            let Some(stream) = kernel_tcp::connect(socket, self.address, &self.over)? else {
                return Ok(Segments::default());
            };
            let port = stream.local_addr()?.port();
            with(&self.ports, |ports| ports.insert(port, (nth, set_out)));
            let end = End { bytes: self.size.get(), at: None };
            kernel_tcp::give(stream, end, &self.over)
        });
        match sent {
            Ok(segments) => with(&self.segments, |all| *all += segments),
            Err(error) => self.fail(&error),
        }
    }

    fn take_all(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            loop {
                match kernel_tcp::accept(listener, &self.over) {
                    Ok(Some((stream, from))) => {
                        scope.spawn(move || self.take(&stream, from.port()));
                    }
                    Ok(None) => return,
                    Err(error) => return self.fail(&error),
                }
            }
        });
    }

    /// Receives a mouse's bytes. The sender keeps its `port` until this end closes `stream`, so two
    /// mice in flight never have the same port.
    fn take(&self, stream: &TcpStream, port: u16) {
        let brought = AtomicU64::new(0);
        if let Err(error) = kernel_tcp::take(stream, self.tcp.window, &brought, &self.over) {
            return self.fail(&error);
        }
        let brought = brought.into_inner();
        self.received.fetch_add(brought, Ordering::Relaxed);
        if brought == self.size.get()
            && let Some((nth, set_out)) = with(&self.ports, |ports| ports.remove(&port))
        {
            let life = Span::from_secs_f64(set_out.elapsed().as_secs_f64());
            with(&self.lives, |lives| lives.insert(nth, life));
        }
    }
}
