//! The simulator through its public interface.

use longhaul_proto::registry::all;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use longhaul_testbed::scenario::{Reading, Scenario, Traffic};
use longhaul_testbed::sim::{self, Accounts, FlowOutcome, SimError, SimOutcome};

fn scenario(text: &str) -> Scenario {
    Scenario::parse("test", text, &Reading::PLAIN).expect("a valid scenario")
}

fn run(text: &str) -> SimOutcome {
    sim::run(&scenario(text)).expect("a run without errors")
}

/// A scenario of two hosts, a link between them with the keys `link`, and the flows with the keys
/// `flows`.
fn pair(link: &str, flows: &[&str]) -> String {
    let flows = flows.iter().map(|flow| format!("\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n{flow}\n"));
    format!("[topology]\nkind = \"pair\"\nlink = {{ {link} }}\n{}", flows.collect::<String>())
}

const WAN: &str = r#"rate = "100M", delay = "20ms", loss = "1%""#;

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_seed_gives_another_outcome() {
    let flows = [
        "protocol = \"rbudp\"\nsize = \"5MB\"\nrate = \"50M\"",
        "tcp = \"cubic\"\nsize = \"5MB\"",
        "udp = \"5M\"\non = \"20ms\"\noff = \"10ms\"\nrandom = true",
        "mice = 20\nsize = \"20KB\"\narrivals = \"poisson\"\nevery = \"20ms\"",
    ];
    let text = format!("record-every = \"50ms\"\n{}", pair(WAN, &flows));
    let outcome = run(&text);
    assert_eq!(outcome, run(&text));
    assert!(!outcome.timed_out && outcome.flows.iter().all(|flow| !flow.series.is_empty()));
    let mut other = scenario(&text);
    other.seed += 1;
    assert_ne!(outcome.flows, sim::run(&other).unwrap().flows);
}

#[test]
fn the_object_of_a_copy_of_given_duration_fits_the_highest_rate_of_its_path() {
    let link = r#"rate = "10M", delay = "5ms", changes = [{ at = "1s", rate = "40M" }]"#;
    let outcome = run(&pair(link, &["protocol = \"rbudp\"\nlasts = \"3s\""]));
    let delivered = outcome.flows[0].delivered;
    // An object sized for 10 Mbit/s would hold 3 s of this rate and 1 MiB: 4.8 MB.
    assert!(delivered > Bytes::new(5_000_000), "{delivered}");
}

#[test]
fn every_protocol_moves_an_object_over_a_clean_path() {
    for row in all() {
        let flow = format!("protocol = \"{}\"\nsize = \"20MB\"\nrate = \"90M\"", row.name);
        let outcome = run(&pair(r#"rate = "100M", delay = "20ms""#, &[&flow]));
        let flow = &outcome.flows[0];
        assert_eq!(flow.delivered, Bytes::new(20_000_000));
        // RBUDP sends at 90 Mbit/s from the start. Some protocols reach this rate late or never.
        let least = if row.name == "rbudp" { 84 } else { 20 };
        assert!(flow.goodput > Rate::from_mbps(least), "{}: {}", row.name, flow.goodput);
        // The sender learns of the end half a round trip later.
        let (finished, known) = (flow.finished.unwrap(), flow.known.unwrap());
        assert!(known > finished && known.since(finished) < Span::from_millis(30));
        assert_eq!(flow.accounts.dropped, 0);
    }
}

#[test]
fn a_scenario_that_cannot_be_simulated_is_refused_with_the_reason() {
    let of = |flow: &str| scenario(&pair("delay = \"5ms\"", &[flow]));
    // The parser would refuse an unknown protocol, so the test sets it afterwards.
    let mut unknown = of("protocol = \"rbudp\"\nsize = \"1MB\"");
    if let Traffic::Protocol(copy) = &mut unknown.flows[0].traffic {
        copy.protocol = "no".into();
    }
    let cases = [
        (unknown, "no protocol 'no'; choose one of rbudp"),
        (of("command = \"true\""), "only the emulator"),
        (of("protocol = \"rbudp\"\nlasts = \"1s\""), "needs a rate"),
    ];
    for (scenario, reason) in cases {
        let error = sim::run(&scenario).expect_err(reason);
        assert!(matches!(error, SimError::Scenario(_)), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_run_that_takes_too_long_ends_at_the_time_limit() {
    let text = format!(
        "time-limit = \"2s\"\n{}",
        pair(r#"rate = "10M", delay = "5ms""#, &["tcp = \"newreno\"\nsize = \"1GB\""])
    );
    let outcome = run(&text);
    assert!(outcome.timed_out);
    assert_eq!(outcome.ended, Time::ZERO + Span::from_secs(2));
    let flow = &outcome.flows[0];
    assert_eq!((flow.finished, flow.object), (None, Some(Bytes::new(1_000_000_000))));
    // 1448 of 1538 bytes on the wire are payload.
    assert!(flow.goodput > Rate::from_bps(9_000_000) && flow.goodput < Rate::from_bps(9_415_000));
}

/// The outcome of a 3 MB copy at 80 Mbit/s over 100 Mbit/s. `a` and `b` are keys of the hosts,
/// `more` of the flow.
fn between(a: &str, b: &str, more: &str) -> FlowOutcome {
    let hosts = format!("[[host]]\nname = \"a\"\n{a}\n[[host]]\nname = \"b\"\n{b}\n");
    let flow = format!("protocol = \"rbudp\"\nsize = \"3MB\"\nrate = \"80M\"\n{more}");
    let outcome = run(&format!("{}{hosts}", pair(r#"rate = "100M", delay = "5ms""#, &[&flow])));
    outcome.flows.into_iter().next().expect("one flow")
}

#[test]
fn a_slow_receiving_program_loses_datagrams_in_its_socket_and_nowhere_else() {
    let flow = between("", "receives-rate = \"40M\"\nsocket-buffer = \"100KB\"", "");
    let accounts = flow.accounts;
    // Datagrams arrive at twice the program's rate, so the full socket drops about half of them.
    assert!(accounts.socket_lost > 500 && accounts.dropped == 0, "{accounts:?}");
    assert_eq!(accounts.path_lost, accounts.socket_lost);
    assert!(flow.goodput < Rate::from_mbps(40) && flow.goodput > Rate::from_mbps(25));
}

#[test]
fn a_slow_sender_loses_nothing() {
    // 1,700 datagrams a second carry just below 20 Mbit/s.
    let slow = ["sends-rate = \"20M\"", "nic = \"20M\"", "sends-packets = 1700"];
    for keys in slow {
        let flow = between(keys, "", "");
        assert_eq!((flow.accounts.dropped, flow.accounts.retransmitted), (0, 0), "{keys}");
        let rate = flow.goodput;
        assert!(rate > Rate::from_mbps(18) && rate < Rate::from_mbps(20), "{keys}: {rate}");
    }
}

#[test]
fn a_card_with_a_limited_queue_drops_packets_that_programs_send_too_fast() {
    let flow = between("nic = \"20M\"\nnic-queue = \"15KB\"", "", "");
    assert!(flow.accounts.queue_full > 500 && flow.accounts.retransmitted > 500);
    assert_eq!(flow.accounts.dropped, flow.accounts.queue_full);
}

#[test]
fn a_larger_send_buffer_delays_repairs_so_more_duplicates_arrive() {
    // `sabul-ornl` has no window, so the buffer fills.
    let duplicates = |buffer: &str| {
        let keys = format!("nic = \"20M\"\nsend-buffer = \"{buffer}\"");
        let hosts = format!("[[host]]\nname = \"a\"\n{keys}\n");
        let flow = "protocol = \"sabul-ornl\"\nsize = \"3MB\"";
        let link = r#"rate = "100M", delay = "5ms", loss = { pattern = "0000000001000000000" }"#;
        run(&format!("{}{hosts}", pair(link, &[flow]))).flows[0].accounts.duplicates
    };
    // Each repair waits behind the data in the buffer. Meanwhile the receiver reports the loss
    // every 20 ms.
    assert!(duplicates("2MB") > 2 * duplicates("20KB"), "{}", duplicates("20KB"));
}

#[test]
fn control_messages_sent_by_the_stream_alone_wait_until_earlier_messages_are_resent() {
    let known = |more: &str| {
        let flow = format!("protocol = \"rbudp\"\nsize = \"3MB\"\nrate = \"80M\"\n{more}");
        let link = r#"rate = "100M", delay = "5ms", back = { loss = { pattern = "10" } }"#;
        let outcome = run(&pair(link, &[&flow]));
        (outcome.flows[0].known.expect("it ends"), outcome.flows[0].accounts.controls)
    };
    let (both, stream) = (known(""), known("ordered-control = true"));
    assert!(stream.0 > both.0, "{stream:?} {both:?}");
    assert!(both.1 > 0 && stream.1 > 0);
}

#[test]
fn a_program_that_reads_in_order_gets_nothing_past_a_hole_and_drops_what_its_buffer_cannot_hold() {
    let at = |more: &str| {
        let flow = format!(
            "protocol = \"rbudp\"\nlasts = \"500ms\"\nrate = \"80M\"\nsegment = \"64MB\"\n{more}"
        );
        // Only the fifth datagram is lost.
        let zeros = "0".repeat(5_000);
        let link =
            format!("rate = \"100M\", delay = \"5ms\", loss = {{ pattern = \"00001{zeros}\" }}");
        run(&pair(&link, &[&flow])).flows.remove(0)
    };
    // In 500 ms 5 MB are sent, in about 3,500 blocks. A program that reads in order gets only the
    // four before the hole; a reorder buffer of 100 KB keeps about 70 more.
    let (placed, ordered) = (at(""), at("reorder-buffer = \"1GB\""));
    assert!(placed.delivered > Bytes::new(4_000_000), "{}", placed.delivered);
    assert!(ordered.delivered < Bytes::new(7_500), "{}", ordered.delivered);
    assert_eq!(ordered.accounts.socket_lost, 0);
    let small = at("reorder-buffer = \"100KB\"");
    let kept = small.accounts.received;
    assert!(small.accounts.socket_lost > 2_500 && kept < 80, "{:?}", small.accounts);
    let whole = between("", "", "reorder-buffer = \"100KB\"");
    assert_eq!(Some(whole.delivered), whole.object);
}

#[test]
fn packets_to_a_slow_card_are_dropped_when_the_buffer_of_its_switch_port_is_full() {
    const SENT: u64 = 20_000;
    let flow = "udp = \"200M\"\ndatagram = 1000\nsize = \"20MB\"";
    let hosts = "[[host]]\nname = \"b\"\nnic = \"100M\"\n";
    let outcome = run(&format!("{}{hosts}", pair(r#"rate = "1G", delay = "5ms""#, &[flow])));
    let Accounts { sent, received, dropped, queue_full, socket_lost, .. } =
        outcome.flows[0].accounts;
    assert_eq!((sent, received + dropped, socket_lost), (SENT, SENT, 0));
    assert_eq!(dropped, queue_full);
    // Payload arrives at 200 Mbit/s, in frames of 1066 bytes; the frames leave at 100 Mbit/s. Then
    // the 512 kB in the port's buffer leave.
    let coming = 20e6 * 8.0 / 200e6;
    let kept = (coming * 100e6 / 8.0 + 512_000.0) / 1_066.0;
    assert!((received as f64 - kept).abs() < 0.01 * kept, "{received}, not {kept}");
}

#[test]
fn a_copy_to_or_from_a_slow_disk_takes_as_long_as_the_disk() {
    let disk = "disk-rate = \"16M\"\ndisk-stall = \"100ms\"\ndisk-stall-every = \"500ms\"";
    let flow = between("", disk, "writes-disk = true");
    // 3 MB at 16 Mbit/s take 1.5 s, with stalls of 0.1 s at 0.5, 1.0 and 1.5 s.
    let took = flow.finished.expect("it ends").since(Time::ZERO);
    assert!(took > Span::from_millis(1_800) && took < Span::from_millis(1_830), "{took}");
    let read = between(disk, "", "reads-disk = true").finished.expect("it ends");
    assert!(read.since(Time::ZERO) > Span::from_millis(1_700), "{read:?}");
}

#[test]
fn copies_that_read_one_disk_share_its_rate_equally() {
    let disk = "disk-rate = \"24M\"";
    let alone = between(disk, "", "reads-disk = true").finished.expect("it ends");
    let flow = "protocol = \"rbudp\"\nsize = \"3MB\"\nrate = \"80M\"\nreads-disk = true";
    let hosts = format!("[[host]]\nname = \"a\"\n{disk}\n");
    let text = format!("{}{hosts}", pair(r#"rate = "200M", delay = "5ms""#, &[flow, flow]));
    let second = |time: Time| time.since(Time::ZERO).as_secs_f64();
    assert!(second(alone) > 1.0 && second(alone) < 1.1, "{alone:?}");
    for flow in run(&text).flows {
        let finished = second(flow.finished.expect("it ends"));
        assert!(finished > 1.9 && finished < 2.1, "{finished}");
    }
}

#[test]
fn copies_into_one_host_share_its_memory_in_equal_parts() {
    const MEMORY: u64 = 96 << 20;
    let flow = "protocol = \"rbudp\"\nsize = \"80MB\"\nrate = \"400M\"\nwrites-disk = true";
    let host = "[[host]]\nname = \"b\"\nmemory = \"96MiB\"\ndisk-rate = \"80M\"\n";
    let path = pair(r#"rate = "1G", delay = "5ms""#, &[flow, flow]);
    let outcome = run(&format!("record-every = \"1s\"\n{path}{host}"));
    for flow in &outcome.flows {
        assert_eq!(Some(flow.delivered), flow.object);
        // After three seconds each copy has delivered half of the memory, plus half of the data
        // that the disk has written.
        let there = flow.series[2].delivered.get();
        assert!(there > MEMORY / 2 && there < MEMORY / 2 + 3 * 5_000_000 + (2 << 20), "{there}");
    }
    // 160 MB at 10 MB/s: the disk is never idle.
    let ended = outcome.ended.since(Time::ZERO).as_secs_f64();
    assert!(ended > 16.0 && ended < 16.3, "{ended}");
}

#[test]
fn a_flow_over_other_links_does_not_change_a_copy() {
    let star = "[topology]\nkind = \"star\"\nhosts = 4\n\
                access = { rate = \"50M\", delay = \"5ms\", loss = \"2%\", reorder = \"1%\" }\n";
    let flow = |from: u8, to: u8, how: &str| {
        format!("[[flow]]\nfrom = \"h{from}\"\nto = \"h{to}\"\nsize = \"2MB\"\n{how}\n")
    };
    let one = flow(1, 2, "protocol = \"rbudp\"\nrate = \"30M\"");
    let other = flow(3, 4, "mice = 9\narrivals = \"poisson\"\nevery = \"50ms\"");
    let alone = run(&format!("{star}{one}"));
    let beside = run(&format!("{star}{one}{other}"));
    // Control messages do not count: they are sent until the whole run ends.
    let counts = |outcome: &SimOutcome| Accounts { controls: 0, ..outcome.flows[0].accounts };
    assert_eq!(counts(&alone), counts(&beside));
    assert_eq!(alone.flows[0].finished, beside.flows[0].finished);
    assert!(alone.flows[0].accounts.dropped > 0 && beside.flows[1].lives.len() == 9);
}

#[test]
fn a_window_limits_each_tcp_stream_so_four_streams_are_four_times_as_fast() {
    let wan = r#"rate = "1G", delay = "50ms""#;
    let flow = |more: &str| {
        let outcome = run(&pair(wan, &[&format!("tcp = \"newreno\"\nsize = \"20MB\"\n{more}")]));
        outcome.flows[0].goodput.as_bps() as f64 / 1e6
    };
    // 44 segments of 1448 bytes per round trip of 100 ms.
    let untuned = flow("window = \"64000B\"");
    assert!((untuned / 5.1 - 1.0).abs() < 0.02, "{untuned}");
    let four = flow("window = \"64000B\"\nstreams = 4");
    assert!((four / 4.0 / untuned - 1.0).abs() < 0.05, "{four}");
    assert!(flow("") > 5.0 * untuned);
}

#[test]
fn the_mean_rate_of_intermittent_udp_is_its_rate_times_the_share_of_sending_time() {
    // A mean sending phase has 250 datagrams, so rounding to whole datagrams changes little.
    let flow = "udp = \"10M\"\ndatagram = 500\non = \"100ms\"\noff = \"50ms\"\nlasts = \"150s\"";
    for (random, tolerance) in [("false", 0.005), ("true", 0.05)] {
        let flow = format!("{flow}\nrandom = {random}");
        let outcome = run(&pair(r#"rate = "1G", delay = "1ms""#, &[&flow]));
        let mean = outcome.flows[0].delivered.get() as f64 * 8.0 / 150.0;
        // In about 1,000 phases of each kind, the sending share varies by 1.5 %.
        let expected = 10e6 * 100.0 / (100.0 + 50.0);
        assert!((mean / expected - 1.0).abs() < tolerance, "random {random}: {mean}");
    }
}

/// The number of mice (short TCP connections) that start in each interval of 50 ms. 4,000 mice
/// start, one every 10 ms on average.
fn mice_by_interval(arrivals: &str) -> Vec<f64> {
    const SIZE: u64 = 1_000;
    let flow =
        format!("mice = 4000\nsize = \"{SIZE}B\"\narrivals = \"{arrivals}\"\nevery = \"10ms\"");
    let path = pair(r#"rate = "1G", delay = "1ms""#, &[&flow]);
    let outcome = run(&format!("record-every = \"50ms\"\n{path}"));
    // Each mouse is one segment, with a constant delay.
    let mut so_far: Vec<u64> =
        outcome.flows[0].series.iter().map(|point| point.delivered.get() / SIZE).collect();
    so_far.retain(|mice| *mice < 4_000);
    so_far.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
}

#[test]
fn poisson_mice_start_as_often_as_regular_mice_on_average_with_a_poisson_variance() {
    for (arrivals, scatter) in [("regular", 0.0), ("poisson", 1.0)] {
        let intervals = mice_by_interval(arrivals);
        let count = intervals.len() as f64;
        let mean = intervals.iter().sum::<f64>() / count;
        assert!((mean / 5.0 - 1.0).abs() < 0.06, "{arrivals}: {mean} in an interval");
        // The variance of Poisson counts is their mean. Over 800 intervals the measured variance
        // deviates by about 5 %.
        let variance = intervals.iter().map(|n| (n - mean) * (n - mean)).sum::<f64>() / count;
        assert!((variance / mean - scatter).abs() < 0.2, "{arrivals}: {variance} over {mean}");
    }
}

/// Runs three GTP senders and one TCP flow into a host of 100 Mbit/s. Returns the payload rates of
/// TCP, and of GTP together, between 6 and 20 s, in Mbit/s.
fn beside_tcp(settings: &str, host: &str, tcp: &str) -> (f64, f64) {
    let link = |host: &str, delay: &str| {
        format!(
            "[[host]]\nname = \"{host}\"\n[[link]]\nbetween = [\"{host}\", \"switch\"]\n{delay}\n"
        )
    };
    let links = [
        link("s1", "delay = \"12.5ms\""),
        link("s2", "delay = \"25ms\""),
        link("s3", "delay = \"50ms\""),
        link("t", "delay = \"10ms\""),
        link("r", ""),
    ];
    let flows = format!(
        "[[flow]]\nname = \"gtp\"\nfrom = \"s*\"\nto = \"r\"\nprotocol = \"gtp\"\n\
         lasts = \"20s\"\nsettings = {{ {settings} }}\n\
         [[flow]]\nname = \"tcp\"\nfrom = \"t\"\nto = \"r\"\nstart = \"2s\"\n\
         tcp = \"{tcp}\"\nlasts = \"18s\"\n"
    );
    let text = format!(
        "record-every = \"100ms\"\nrouters = [\"switch\"]\n{host}\
         all-links = {{ rate = \"100M\", queue = \"300KB\" }}\n{}{flows}",
        links.concat()
    );
    let outcome = run(&text);
    let mean = |flow: &FlowOutcome| {
        let rates = flow.receive_rates().into_iter();
        let from = Time::ZERO + Span::from_secs(6);
        let rates: Vec<f64> =
            rates.filter(|(at, _)| *at > from).map(|(_, r)| r.as_bps() as f64 / 1e6).collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    };
    let (tcp, gtp) = outcome.flows.split_last().expect("four flows");
    (mean(tcp), gtp.iter().map(mean).sum())
}

#[test]
fn one_tcp_flow_beside_gtp_at_85_percent_has_at_least_four_fifths_of_the_rest() {
    for (settings, tcp) in [
        ("receive-rate = '95.7M', receive-share = '85%'", "cubic"),
        ("receive-rate = '95.7M', receive-share = '85%'", "newreno"),
        ("receive-share = '85%'", "cubic"),
    ] {
        let (tcp, gtp) = beside_tcp(settings, "", tcp);
        // GTP leaves 15 % of the link, which carries 94.1 Mbit/s of TCP payload.
        let rest = 0.15 * 94.1;
        assert!(tcp > 0.8 * rest, "{settings}: TCP has {tcp} of {rest}, GTP {gtp}");
    }
}

#[test]
fn with_others_fair_tcp_beside_three_gtp_flows_gets_about_a_quarter_of_the_link() {
    let card = "all-hosts = { nic = \"100M\" }\n";
    for (settings, host) in [
        ("others = 'fair'", ""),
        ("others = 'fair'", card),
        ("others = 'fair', receive-rate = '95.7M'", ""),
    ] {
        let (tcp, gtp) = beside_tcp(settings, host, "cubic");
        // TCP is one of four equal flows.
        let fair = 94.1 / 4.0;
        assert!(tcp > 0.75 * fair && tcp < 1.5 * fair, "{settings}: TCP {tcp}, GTP {gtp}");
        assert!(tcp + gtp > 0.85 * 94.1, "{settings}: TCP {tcp}, GTP {gtp}");
    }
    let (tcp, gtp) = beside_tcp("others = 'ignored'", "", "cubic");
    assert!(tcp < 0.7 * 94.1 / 4.0, "not tracked: TCP {tcp}, GTP {gtp}");
}
