//! Every key of a scenario file. `docs/scenarios.md` explains each; a test keeps page and lists
//! consistent.

/// The file itself.
pub(super) const WHOLE: &[&str] = &[
    "about",
    "seed",
    "time-limit",
    "mtu",
    "record-every",
    "routers",
    "topology",
    "all-hosts",
    "all-links",
    "host",
    "link",
    "route",
    "flow",
];
/// `[topology]`.
pub(super) const TOPOLOGY: &[&str] =
    &["kind", "left", "right", "hosts", "hops", "link", "bottleneck", "access", "access-delays"];
/// `[[host]]`; `[all-hosts]` has these keys except `name`.
pub(super) const HOST: &[&str] = &[
    "name",
    "nic",
    "nic-queue",
    "send-buffer",
    "sends-packets",
    "sends-rate",
    "receives-packets",
    "receives-rate",
    "report-cost",
    "socket-buffer",
    "memory",
    "disk-rate",
    "disk-stall",
    "disk-stall-every",
];
/// A link's properties.
pub(super) const LINK: &[&str] = &[
    "rate",
    "delay",
    "queue",
    "bdp-rtt",
    "policer-rate",
    "policer-burst",
    "queue-control",
    "codel-target",
    "codel-interval",
    "loss",
    "jitter",
    "overtakes",
    "reorder",
    "reorder-by",
    "duplicate",
    "corrupt",
    "framing",
    "largest-packet",
    "up",
    "changes",
];
/// Further keys of `[[link]]`: its ends, and its other direction.
pub(super) const LINK_ENDS: &[&str] = &["between", "from", "to", "back"];
/// `loss` as a table.
pub(super) const LOSS: &[&str] = &[
    "ratio",
    "burst",
    "worsens",
    "recovers",
    "good-loss",
    "bad-loss",
    "bit-errors",
    "pattern",
    "trace",
    "gaps",
];
/// An entry of `changes`.
pub(super) const CHANGE: &[&str] = &["at", "over", "rate", "delay", "loss", "up"];
/// `[[route]]`.
pub(super) const ROUTE: &[&str] = &["from", "to", "via"];
/// `[[flow]]`: common keys.
pub(super) const FLOW: &[&str] = &["name", "from", "to", "start", "copies", "apart"];
/// Keys of `[[flow]]` that select the carrier, each with the further keys of this carrier.
pub(super) const CARRIERS: &[(&str, &[&str])] = &[
    (
        "protocol",
        &[
            "size",
            "lasts",
            "rate",
            "law",
            "share",
            "remembered",
            "remembered-loss",
            "segment",
            "block",
            "receive",
            "tail-copies",
            "ordered-control",
            "reorder-buffer",
            "reads-disk",
            "writes-disk",
            "settings",
        ],
    ),
    ("tcp", &["size", "lasts", "streams", "window", "initial-window"]),
    ("udp", &["size", "lasts", "datagram", "on", "off", "random"]),
    ("mice", &["size", "arrivals", "every", "congestion", "window", "initial-window"]),
    ("command", &[]),
];
