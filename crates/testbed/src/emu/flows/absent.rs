//! Parts of a scenario that an emulation leaves out or changes.

use std::fs;

use longhaul_proto::law::Law;
use longhaul_proto::time::Span;

use super::copies::is_alone;
use super::streams::{kernels_name, knows};
use crate::scenario::{Amount, Flow, Host, Scenario, Tcp, Traffic, Transfer};

/// The missing parts, each with its host or flow.
pub(super) fn of(scenario: &Scenario) -> Vec<String> {
    let mut absent: Vec<String> = Vec::new();
    for (place, host) in scenario.hosts.iter().enumerate() {
        let keys = of_host(host, is_alone(scenario, place));
        if !keys.is_empty() {
            let (name, keys) = (&host.name, keys.join(", "));
            absent.push(format!("host {name}: {keys} (simulator only)"));
        }
    }
    for flow in &scenario.flows {
        absent.extend(of_flow(flow).into_iter().map(|what| format!("flow {}: {what}", flow.name)));
    }
    absent
}

/// The missing parts of a host. `alone`: the only flow that leaves the host is a copy, so the
/// copy's flag can limit the host's rate.
fn of_host(host: &Host, alone: bool) -> Vec<&'static str> {
    let buffer = host.socket_buffer != Host::DEFAULT_SOCKET_BUFFER;
    let keys = [
        ("sends-packets", host.sends.packets.is_some() && !alone),
        ("sends-rate", host.sends.rate.is_some() && !alone),
        ("send-buffer", host.send_buffer != Host::DEFAULT_SEND_BUFFER),
        ("report-cost", host.report_cost != Span::ZERO),
        ("socket-buffer", buffer && !host.receives.is_limited()),
        ("disk-rate", host.disk.is_some()),
        ("disk-stall", host.disk.is_some_and(|disk| disk.stalls.is_some())),
    ];
    keys.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect()
}

fn of_flow(flow: &Flow) -> Vec<String> {
    match &flow.traffic {
        Traffic::Protocol(transfer) => of_copy(flow, transfer),
        Traffic::Tcp(tcp) => of_tcp(tcp),
        Traffic::Mice(mice) => of_tcp(&mice.tcp),
        Traffic::Udp(_) | Traffic::Command(_) => Vec::new(),
    }
}

fn of_copy(flow: &Flow, transfer: &Transfer) -> Vec<String> {
    let mut absent = Vec::new();
    if flow.amount == Amount::Endless {
        absent.push("a real copy must end; it is NOT run: set size or lasts".into());
    }
    for (key, asked) in [("reads-disk", transfer.reads_disk), ("writes-disk", transfer.writes_disk)]
    {
        if asked {
            absent.push(format!("{key}: not emulated"));
        }
    }
    let simulated = [
        ("ordered-control", transfer.ordered_control),
        ("reorder-buffer", transfer.reorder_buffer.is_some()),
        ("law", transfer.law != Law::default()),
        ("remembered", transfer.remembered.is_some()),
    ];
    let simulated = simulated.into_iter().filter(|(_, asked)| *asked);
    absent.extend(simulated.map(|(key, _)| format!("{key} (simulator only)")));
    let mebi = 1 << 20;
    if let (Some(segment), Amount::Size(size)) = (transfer.segment, flow.amount)
        && segment < size
        && segment.get() % mebi != 0
    {
        let up = segment.get().div_ceil(mebi);
        absent.push(format!("segment {segment}: real segments are whole MiB, so {up} MiB"));
    }
    absent
}

fn of_tcp(tcp: &Tcp) -> Vec<String> {
    let mut absent = Vec::new();
    let name = kernels_name(tcp.congestion);
    if !knows(name) {
        let own = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        let own = own.unwrap_or_default();
        absent.push(format!("this kernel has no {name}; it uses {}", own.trim()));
    }
    if tcp.initial_window != Tcp::DEFAULT_INITIAL_WINDOW {
        let window = tcp.initial_window;
        absent.push(format!("initial-window {window}: not emulated; the kernel uses its own"));
    }
    absent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Reading;

    #[test]
    fn parts_that_cannot_be_emulated_are_named() {
        let text = r#"
            [topology]
            kind = "pair"
            [[host]]
            name = "b"
            send-buffer = "1MB"
            report-cost = "1ms"
            socket-buffer = "20KB"
            disk-rate = "8M"
            disk-stall = "100ms"
            disk-stall-every = "1s"
            [[flow]]
            name = "endless"
            from = "a"
            to = "b"
            protocol = "rbudp"
            rate = "1M"
            writes-disk = true
            [[flow]]
            name = "cut"
            from = "a"
            to = "b"
            protocol = "rbudp"
            size = "5MB"
            segment = "1500KB"
            ordered-control = true
            reorder-buffer = "1MB"
            law = "trains"
            remembered = "80M"
            [[flow]]
            name = "wide"
            from = "a"
            to = "b"
            mice = 1
            size = 1
            every = "1s"
            initial-window = 3
        "#;
        let absent = of(&Scenario::parse("absent", text, &Reading::PLAIN).unwrap());
        let begins = [
            "host b: send-buffer, report-cost, socket-buffer, disk-rate, disk-stall (",
            "flow endless: a real copy must end; it is NOT run",
            "flow endless: writes-disk",
            "flow cut: ordered-control",
            "flow cut: reorder-buffer",
            "flow cut: law",
            "flow cut: remembered",
            "flow cut: segment 1.50 MB: real segments are whole MiB, so 2 MiB",
            "flow wide: initial-window 3",
        ];
        for begin in begins {
            assert!(absent.iter().any(|line| line.starts_with(begin)), "{begin}: {absent:?}");
        }
        let plain = "[topology]\nkind = \"pair\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\nudp = \"1M\"";
        assert!(of(&Scenario::parse("plain", plain, &Reading::PLAIN).unwrap()).is_empty());
    }
}
