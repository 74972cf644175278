//! The metrics of a server as OpenMetrics text.
//!
//! A name ends with its unit, if it has one; a counter's samples end with `_total`. No label holds
//! text of a client, such as a path or an id: clients could then create any number of series.

use std::fmt::Write;

use longhaul::{RoomStatus, ServerStatus, TransferStatus};
use longhaul_gateway::HttpCounts;

struct Text(String);

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Info,
}

impl Text {
    /// Writes a family with its samples: labels and value of each.
    fn family<'a>(
        &mut self,
        (kind, name, unit): (Kind, &str, &str),
        help: &str,
        samples: impl IntoIterator<Item = (&'a str, f64)>,
    ) {
        let (word, ending) = match kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Info => ("info", "_info"),
        };
        let unit = if unit.is_empty() { String::new() } else { format!("# UNIT {name} {unit}\n") };
        let text = &mut self.0;
        write!(text, "# TYPE {name} {word}\n{unit}# HELP {name} {help}\n").expect("text grows");
        for (labels, value) in samples {
            let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
            writeln!(text, "{name}{ending}{labels} {value}").expect("text grows");
        }
    }
}

const IN: &str = "way=\"in\"";
const OUT: &str = "way=\"out\"";

pub(super) fn text(status: &ServerStatus, http: Option<&HttpCounts>) -> String {
    let mut text = Text(String::new());
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    let build = (Kind::Info, "longhaul_build", "");
    text.family(build, "The release that runs.", [(version, 1.0)]);
    totals(&mut text, status);
    now(&mut text, status);
    if let Some(http) = http {
        gateway(&mut text, http);
    }
    process(&mut text);
    text.0 + "# EOF\n"
}

fn totals(text: &mut Text, status: &ServerStatus) {
    let all = &status.totals;
    let float = |count: u64| count as f64;
    text.family(
        (Kind::Counter, "longhaul_requests_ended", ""),
        "Ended requests of all services.",
        [
            ("result=\"done\"", float(all.done)),
            ("result=\"partial\"", float(all.partial)),
            ("result=\"failed\"", float(all.failed)),
        ],
    );
    text.family(
        (Kind::Counter, "longhaul_clients_refused", ""),
        "Clients that were refused before their first request.",
        [("", float(all.refused_clients))],
    );
    text.family(
        (Kind::Counter, "longhaul_delivered_bytes", "bytes"),
        "Content that was verified and written at its destination.",
        [(IN, float(all.received_bytes)), (OUT, float(all.sent_bytes))],
    );
    text.family(
        (Kind::Counter, "longhaul_delivered_files", "files"),
        "Files that got their final names at their destination.",
        [(IN, float(all.received_files)), (OUT, float(all.sent_files))],
    );
    text.family(
        (Kind::Counter, "longhaul_sent_datagrams", "datagrams"),
        "Data datagrams that the senders of transfers have sent.",
        [("", float(all.sent))],
    );
    text.family(
        (Kind::Counter, "longhaul_retransmitted_blocks", "blocks"),
        "Blocks that the senders of transfers have sent again, and coded symbols.",
        [("", float(all.retransmitted))],
    );
    text.family(
        (Kind::Counter, "longhaul_received_datagrams", "datagrams"),
        "Data datagrams that the receivers of transfers have received.",
        [("", float(all.received))],
    );
    text.family(
        (Kind::Counter, "longhaul_lost_datagrams", "datagrams"),
        "Lost data datagrams, by place of the loss.",
        [
            ("where=\"path\"", float(all.path_lost)),
            ("where=\"socket\"", float(all.socket_lost)),
            ("where=\"memory\"", float(all.memory_lost)),
        ],
    );
}

fn now(text: &mut Text, status: &ServerStatus) {
    let transfers = &status.transfers;
    let sum = |receives: bool, of: fn(&TransferStatus) -> f64| {
        // `Iterator::sum` of no floats would be -0.
        let these = transfers.iter().filter(|transfer| transfer.receives == receives);
        these.map(of).fold(0.0, |sum, one| sum + one)
    };
    let both = |of: fn(&TransferStatus) -> f64| [(IN, sum(true, of)), (OUT, sum(false, of))];
    text.family((Kind::Gauge, "longhaul_transfers", ""), "Transfers under way.", both(|_| 1.0));
    text.family(
        (Kind::Gauge, "longhaul_goodput_bits_per_second", ""),
        "Goodput of all transfers under way.",
        both(|transfer| transfer.rate_now.as_bps() as f64),
    );
    let queue = transfers.iter().map(|transfer| transfer.queue.as_secs_f64()).fold(0.0, f64::max);
    text.family(
        (Kind::Gauge, "longhaul_longest_queue_seconds", "seconds"),
        "The longest queueing delay of a transfer under way.",
        [("", queue)],
    );
    let receivers: u64 = status.streams.iter().map(|stream| stream.receivers).sum();
    let sent = status.streams.iter().filter(|stream| stream.sender.is_some()).count();
    let streams = (Kind::Gauge, "longhaul_streams", "");
    text.family(streams, "Streams that are sent now.", [("", sent as f64)]);
    let family = (Kind::Gauge, "longhaul_stream_receivers", "");
    text.family(family, "Receivers of all streams.", [("", receivers as f64)]);
    let rooms = (Kind::Gauge, "longhaul_rooms", "");
    text.family(rooms, "Rooms of channels.", [("", status.rooms.len() as f64)]);
    let clients = |of: fn(&RoomStatus) -> u64| status.rooms.iter().map(of).sum::<u64>() as f64;
    text.family(
        (Kind::Gauge, "longhaul_room_clients", ""),
        "Clients that send to rooms, and clients that receive from them.",
        [(IN, clients(|room| room.senders)), (OUT, clients(|room| room.subscribers))],
    );
    let messages = (Kind::Counter, "longhaul_room_messages", "");
    let count = status.totals.room_messages as f64;
    text.family(messages, "Messages of all rooms.", [("", count)]);
    if let Some(tree) = &status.shared_tree {
        let keys = (Kind::Gauge, "longhaul_shared_tree_keys", "");
        text.family(keys, "Keys of the shared tree.", [("", tree.keys as f64)]);
        let changes = (Kind::Counter, "longhaul_shared_tree_changes", "");
        text.family(changes, "Changes of the shared tree.", [("", tree.changes as f64)]);
        let watches = (Kind::Gauge, "longhaul_shared_tree_watches", "");
        text.family(watches, "Watches under way.", [("", tree.watches as f64)]);
    }
}

fn gateway(text: &mut Text, http: &HttpCounts) {
    let labelled = http.requests.iter().map(|(method, status, count)| {
        (format!("method=\"{method}\",status=\"{status}\""), *count as f64)
    });
    let labelled: Vec<_> = labelled.collect();
    text.family(
        (Kind::Counter, "longhaul_http_requests", ""),
        "Answered HTTP requests, by method and class of the status.",
        labelled.iter().map(|(labels, count)| (labels.as_str(), *count)),
    );
    text.family(
        (Kind::Counter, "longhaul_http_bytes", "bytes"),
        "Bytes of all HTTP connections, with headers and TLS.",
        [(IN, http.received_bytes as f64), (OUT, http.sent_bytes as f64)],
    );
    let connections = (Kind::Gauge, "longhaul_http_connections", "");
    text.family(connections, "Open HTTP connections.", [("", http.connections as f64)]);
}

fn process(text: &mut Text) {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    let cpu = (Kind::Counter, "process_cpu_seconds", "seconds");
    text.family(cpu, "CPU time of the server.", [("", seconds)]);
    let own = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = own.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = resident.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    if let Some(kibibytes) = kibibytes {
        let memory = (Kind::Gauge, "process_resident_memory_bytes", "bytes");
        text.family(memory, "Resident memory of the server.", [("", kibibytes * 1024.0)]);
    }
}
