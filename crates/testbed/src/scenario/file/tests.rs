//! Scenario files: keys, documentation, errors.

use std::collections::BTreeMap;

use longhaul_proto::law::Weight;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, LossRatio, Rate};

use super::*;
use crate::link::{Change, CoDel, GilbertElliott, LinkSpec, Loss, QueueControl, Step};
use crate::scenario::{
    Amount, Arrivals, Congestion, Disk, Flow, MAX_NODES, Mice, Pace, Route, Stalls, Strategy, Tcp,
    Traffic, Transfer, Udp,
};

fn parse(text: &str) -> Result<Scenario, FileError> {
    Scenario::parse("test", text, &Reading::PLAIN)
}

fn refused(text: &str) -> FileError {
    parse(text).expect_err(text)
}

const PAIR: &str = "[topology]\nkind = \"pair\"\nlink = { rate = \"100M\", delay = \"10ms\" }\n";

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

const EVERYTHING: &str = include_str!("everything.toml");

#[test]
fn keys_of_the_file_its_hosts_and_its_routes_set_their_fields() {
    let scenario = parse(EVERYTHING).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.seed, scenario.mtu), ("test", 7, 9_000));
    assert_eq!((scenario.time_limit, scenario.record.interval), (ms(120_000), Some(ms(100))));
    let [a, b] = &scenario.hosts[..] else { panic!("{:?}", scenario.hosts) };
    assert_eq!((a.nic, b.nic), (Some(Rate::from_mbps(1_000)), Some(Rate::from_mbps(10_000))));
    assert_eq!(a.sends, Pace { packets: Some(50_000.0), rate: None });
    assert_eq!(b.receives, Pace { packets: Some(65_000.0), rate: Some(Rate::from_mbps(643)) });
    assert_eq!((b.socket_buffer, b.memory), (Bytes::new(2_000_000), Some(Bytes::mebi(64))));
    let stalls = Some(Stalls { every: ms(5_000), length: ms(200) });
    assert_eq!(a.disk, Some(Disk { rate: Rate::from_mbps(320), stalls }));
    assert_eq!(scenario.node_name(2), "r");
    assert_eq!(scenario.network.routes, [Route { from: 0, to: 1, via: vec![2] }]);
    assert_eq!(scenario.routes().between(0, 1), Some(vec![0, 2]));
    assert_eq!(scenario.routes().between(1, 0), Some(vec![3, 1]));
}

#[test]
fn every_key_of_a_link_sets_its_field() {
    let scenario = parse(EVERYTHING).unwrap();
    let ends: Vec<_> = scenario.network.links.iter().map(|l| (l.from, l.to)).collect();
    assert_eq!(ends, [(0, 2), (2, 0), (2, 1), (1, 2), (0, 1)]);
    let link = |nth: usize| &scenario.network.links[nth].link;
    let plain = LinkSpec { delay: ms(5), framing: 20, ..LinkSpec::default() };
    assert_eq!(link(0), &plain);
    assert_eq!(link(4), &LinkSpec { delay: Span::from_secs(3_600), ..plain });
    let forward = link(2);
    assert_eq!(forward.queue, Bytes::new(2 * 875_000));
    let codel = CoDel { target: ms(4), ..CoDel::default() };
    assert_eq!(forward.control, QueueControl::CoDel(codel));
    let chain = GilbertElliott::bursts(LossRatio::new(0.01).unwrap(), 4.0).unwrap();
    assert_eq!(forward.loss, Loss::GilbertElliott(chain));
    assert_eq!((forward.jitter.spread, forward.jitter.overtakes), (ms(1), true));
    assert_eq!((forward.reorder.share, forward.reorder.by), (0.01, ms(2)));
    assert_eq!((forward.duplicate, forward.corrupt), (0.005, 0.001));
    assert_eq!(forward.swallow_above, Some(8_000));
    let step = |secs, change| Step { at: Time::ZERO + Span::from_secs(secs), change };
    let steps = [
        step(1, Change::RateRamp { to: Rate::from_mbps(50), over: Span::from_secs(3) }),
        step(2, Change::Delay(ms(7))),
        step(2, Change::Loss(Loss::BitErrors(1e-9))),
        step(9, Change::Up(false)),
    ];
    assert_eq!(forward.schedule, steps);
    let back = link(3);
    assert_eq!((&back.loss, back.queue), (&Loss::None, Bytes::new(30 * 9_020)));
    assert_eq!(back.rate, Some(Rate::from_mbps(100)));
    assert!(back.schedule.is_empty());
}

#[test]
fn every_key_of_a_flow_sets_its_field() {
    let scenario = parse(EVERYTHING).unwrap();
    let [first, tcp, udp, mice, command] = &scenario.flows[..] else { panic!("five flows") };
    let transfer = Transfer {
        protocol: "rbudp".into(),
        rate: Some(Rate::from_mbps(90)),
        law: longhaul_proto::law::Law::Shadow,
        share: Weight::new(3),
        remembered: Some(Rate::from_mbps(80)),
        remembered_loss: LossRatio::new(0.01).unwrap(),
        segment: Some(Bytes::new(450_000_000)),
        block: Some(1_440),
        receive: Some(Strategy::Scatter),
        ordered_control: true,
        reorder_buffer: Some(Bytes::new(8_000_000)),
        reads_disk: true,
        writes_disk: false,
        tail_copies: Some(1),
        settings: BTreeMap::from([("tail-copies".to_owned(), 3.0)]),
    };
    let expected = Flow {
        name: "first".into(),
        from: 0,
        to: 1,
        start: Time::ZERO,
        amount: Amount::Size(Bytes::new(450_000_000)),
        traffic: Traffic::Protocol(transfer),
    };
    assert_eq!(*first, expected);
    let reno = Tcp {
        streams: 3,
        congestion: Congestion::NewReno,
        window: Some(Bytes::new(64_000)),
        initial_window: 2,
    };
    assert_eq!((&tcp.traffic, tcp.name.as_str()), (&Traffic::Tcp(reno), "flow2"));
    assert_eq!((tcp.start, tcp.amount), (Time::ZERO + ms(2_000), Amount::Lasts(ms(30_000))));
    let bursts = Some((ms(1_000), ms(2_000)));
    let rate = Rate::from_mbps(10);
    assert_eq!(
        (&udp.traffic, udp.amount),
        (&Traffic::Udp(Udp { rate, datagram: Some(1_000), bursts, random: true }), Amount::Endless)
    );
    let one = Tcp::default();
    assert_eq!(
        mice.traffic,
        Traffic::Mice(Mice { count: 500, arrivals: Arrivals::InTurn, tcp: one })
    );
    assert_eq!(command.traffic, Traffic::Command("iperf3 -c b".into()));
    assert_eq!((command.from, command.to), (0, 0));
}

#[test]
fn a_setting_is_read_in_the_unit_of_its_kind() {
    let flow = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"sabul\"\n";
    let settings = "{ sync-interval = \"10ms\", window = 10_000_000, loss-threshold = \"85%\", \
        initial-rate = \"100M\", beta = 1e-5, available-window = true }";
    let scenario = parse(&format!("{PAIR}{flow}settings = {settings}\n")).unwrap();
    let Traffic::Protocol(transfer) = &scenario.flows[0].traffic else { panic!("a copy") };
    let expected = [
        ("sync-interval", 0.01),
        ("window", 1e7),
        ("loss-threshold", 0.85),
        ("initial-rate", 1e8),
        ("beta", 1e-5),
        ("available-window", 1.0),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(transfer.settings, BTreeMap::from(expected));
}

#[test]
fn a_dumbbell_shares_its_bottleneck() {
    let text = r#"
[topology]
kind = "dumbbell"
left = 2
right = 2
bottleneck = { rate = "1G", delay = "10ms" }
access-delays = ["1ms", "2ms", "3ms"]
[[host]]
name = "extra"
[[host]]
name = "left2"
nic = "100M"
[[link]]
between = ["extra", "left"]
"#;
    let scenario = parse(text).unwrap();
    let names: Vec<_> = (0..scenario.nodes()).map(|node| scenario.node_name(node)).collect();
    assert_eq!(names, ["left1", "left2", "right1", "right2", "extra", "left", "right"]);
    assert_eq!(scenario.hosts[1].nic, Some(Rate::from_mbps(100)));
    let mut routes = scenario.routes();
    let mut way = |from, to| routes.between(from, to).unwrap();
    for (from, to) in [(0, 2), (1, 3), (4, 2)] {
        assert!(way(from, to).contains(&0) && way(to, from).contains(&1));
    }
    let ways = [way(0, 2), way(1, 3), way(0, 1)];
    let routes = scenario.routes();
    assert_eq!(ways.map(|way| routes.delay(&way)), [ms(14), ms(13), ms(3)]);
}

#[test]
fn stars_and_parking_lots_have_their_links() {
    let star =
        parse("[topology]\nkind = \"star\"\nhosts = 3\naccess = { delay = \"2ms\" }").unwrap();
    assert_eq!(star.routes().between(0, 2).map(|way| way.len()), Some(2));
    assert_eq!(star.node_name(3), "hub");
    let lot = "[topology]\nkind = \"parking-lot\"\nhops = 3\nbottleneck = { delay = \"2ms\" }";
    let lot = parse(lot).unwrap();
    assert_eq!((lot.hosts.len(), lot.nodes()), (4, 8));
    let mut routes = lot.routes();
    let (long, short) = (routes.between(0, 3).unwrap(), routes.between(1, 2).unwrap());
    assert_eq!((long.len(), short.len()), (5, 3));
    assert_eq!(long.iter().filter(|link| short.contains(link)).count(), 1);
}

#[test]
fn an_asterisk_in_a_host_name_and_the_key_copies_each_create_several_flows() {
    let flows = |end: &str| {
        let text = format!(
            "[topology]\nkind = \"star\"\nhosts = 4\n[[flow]]\nname = \"x\"\nprotocol = \"gtp\"\n\
             size = \"1MB\"\nstart = \"1s\"\napart = \"2s\"\n{end}"
        );
        parse(&text).map(|scenario| scenario.flows)
    };
    let all = flows("from = \"h*\"\nto = \"h4\"").unwrap();
    let seen: Vec<_> = all.iter().map(|f| (f.name.as_str(), f.from, f.start.as_nanos())).collect();
    let secs = |n: u64| n * 1_000_000_000;
    assert_eq!(seen, [("x-h1", 0, secs(1)), ("x-h2", 1, secs(3)), ("x-h3", 2, secs(5))]);
    let copies = flows("from = \"h1\"\nto = \"h2\"\ncopies = 2").unwrap();
    assert_eq!(copies.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["x-1", "x-2"]);
    let error = flows("from = \"h1\"\nto = \"h2\"\ncopies = 99999").unwrap_err();
    assert!(error.what.contains("10000"), "{error}");
}

#[test]
fn settings_from_outside_override_the_file() {
    let set = |path: &str, value: &str| {
        let settings = [(path.to_owned(), value.to_owned())];
        Scenario::parse("test", EVERYTHING, &Reading { settings: &settings, ..Reading::PLAIN })
    };
    assert_eq!(set("seed", "9").unwrap().seed, 9);
    let all = set("link.*.delay", "3ms").unwrap();
    assert!(all.network.links.iter().all(|link| link.link.delay == ms(3)));
    let named = set("link.r-b.rate", "7M").unwrap();
    assert_eq!(named.network.links[2].link.rate, Some(Rate::from_mbps(7)));
    let first = set("flow.first.size", "1MB").unwrap();
    assert_eq!(first.flows[0].amount, Amount::Size(Bytes::new(1_000_000)));
    assert_eq!(set("flow.0.size", "1MB").unwrap(), first);
    let set_to = |scenario: &Scenario| match &scenario.flows[0].traffic {
        Traffic::Protocol(transfer) => transfer.settings["tail-copies"],
        other => panic!("{other:?}"),
    };
    assert_eq!(set_to(&set("flow.first.settings.tail-copies", "5").unwrap()), 5.0);
    for (path, value, reason) in [
        ("flow.9.size", "1MB", "no 'flow.9.size'"),
        ("flow.0.sise", "1MB", "did you mean 'size'?"),
        ("seed", "-1", "'seed'"),
        ("flow.0.protocol", "rbupd", "did you mean 'rbudp'?"),
        ("flow.0.settings.tail-copeis", "2", "did you mean 'tail-copies'?"),
        ("", "1", "unknown key ''"),
    ] {
        let error = set(path, value).expect_err(path);
        assert!(error.to_string().contains(reason) && error.line.is_none(), "{error}");
    }
}

#[test]
fn a_trace_is_requested_by_its_name() {
    let text = format!("{PAIR}[all-links]\nloss = {{ gaps = \"tuesday.txt\" }}\n");
    let trace = |name: &str| match name {
        "tuesday.txt" => Ok("1 0".to_owned()),
        "monday.txt" => Ok("1\nmany".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    let reading = Reading { trace: &trace, ..Reading::PLAIN };
    let scenario = Scenario::parse("test", &text, &reading).unwrap();
    let pattern = Loss::Pattern([false, true, true].into());
    assert_eq!(scenario.network.links[1].link.loss, pattern);
    let error = Scenario::parse("test", &text.replace("tuesday", "friday"), &reading).unwrap_err();
    assert_eq!((error.line, error.what.as_str()), (Some(5), "friday.txt: no such file"));
    let error = Scenario::parse("test", &text.replace("tuesday", "monday"), &reading).unwrap_err();
    let what = "monday.txt: line 2: 'many' is not a number of packets";
    assert_eq!((error.line, error.what.as_str()), (Some(5), what));
}

#[test]
fn a_wrong_file_is_refused_with_its_line_a_reason_and_a_suggestion_for_typos() {
    let flow = |text: &str| format!("{PAIR}[[flow]]\nfrom = \"a\"\nto = \"b\"\n{text}");
    let wrong: [(&str, usize, &str); 33] = [
        ("mtu = ", 1, "expected"),
        ("[topolgy]", 1, "unknown key 'topolgy' in the scenario; did you mean 'topology'?"),
        ("xyzzy = 1", 1, "its keys: about, seed"),
        (&PAIR.replace("delay", "dellay"), 3, "did you mean 'delay'?"),
        (&PAIR.replace("pair", "pear"), 2, "'kind' in [topology] cannot be 'pear'; did you mean"),
        (&PAIR.replace("100M", "-100M"), 3, "'rate' in a link of [topology]"),
        (&PAIR.replace("100M", "0"), 3, "rate of zero"),
        (&PAIR.replace("\"10ms\"", "true"), 3, "a quantity such as"),
        (&format!("{PAIR}[all-links]\nqueue = \"1000B\""), 5, "smaller than a packet"),
        (&format!("{PAIR}[all-links]\nqueue = \"1 box\""), 5, "100 packets or 1bdp"),
        (&format!("{PAIR}[all-links]\nloss = 1.5"), 5, "more than 1 (100%)"),
        (
            &format!("{PAIR}[all-links]\nloss = {{ ratio = 0.9, burst = 1 }}"),
            5,
            "bursts of 1 packets cannot",
        ),
        (&format!("{PAIR}[all-links]\nloss = {{ burst = 1 }}"), 5, "exactly one of ratio"),
        (&format!("{PAIR}[all-hosts]\nreceives-packets = -3"), 5, "not a positive number"),
        (&format!("{PAIR}[all-hosts]\ndisk-stall = \"1s\""), 4, "lacks 'disk-stall-every'"),
        (
            &format!("{PAIR}[[host]]\nname = \"left\"\n[[host]]\nname = \"left\""),
            6,
            "are named left",
        ),
        (
            &format!("{PAIR}[[link]]\nbetween = [\"a\", \"bb\"]"),
            5,
            "no host or router is named 'bb'",
        ),
        (&format!("{PAIR}[[link]]\nbetween = [\"a\", \"b\"]"), 4, "two links from a to b"),
        (&format!("{PAIR}[[link]]\nbetween = [\"a\"]"), 5, "between two nodes"),
        ("[topology]\nkind = \"star\"\nhosts = 10000", 3, "1 to 2000"),
        ("[topology]\nkind = \"dumbbell\"\nleft = 1500\nright = 1500", 1, "at most 2000"),
        (&flow("udp = \"1M\"\nsise = 1"), 8, "did you mean 'size'?"),
        (&flow("udp = \"1M\"\nstreams = 1"), 8, "it belongs to a flow by tcp"),
        (&flow("udp = \"1M\"\ntcp = \"cubic\""), 4, "this flow has tcp, udp"),
        (&flow("tcp = \"vegas\""), 7, "one of: newreno, cubic, bbr"),
        (&flow("tcp = \"cubic\"\nsize = \"0\""), 4, "sends nothing"),
        (&flow("protocol = \"rbudp\"\nblock = 1500"), 4, "takes 1 to 1440"),
        (&flow("protocol = \"rbupd\""), 7, "cannot be 'rbupd'; did you mean 'rbudp'?"),
        (
            &flow("protocol = \"rbudp\"\nsettings = {\n  tail-copeis = 2 }"),
            9,
            "rbudp has no setting tail-copeis; did you mean 'tail-copies'?",
        ),
        (
            &flow("protocol = \"rbudp\"\nsettings = { xyzzy = 2 }"),
            8,
            "no setting xyzzy; its settings: tail-copies",
        ),
        (
            &flow("protocol = \"rbudp\"\nsettings = { tail-copies = 99 }"),
            8,
            "not a whole number between 1 and 8",
        ),
        (&flow("protocol = \"sabul\"\ntail-copies = 2"), 8, "sabul has no setting tail-copies"),
        (&flow("protocol = \"rbudp\"").replace("\"b\"\nproto", "\"c\"\nproto"), 6, "named 'c'"),
    ];
    for (text, line, reason) in wrong {
        let error = refused(text);
        assert!(error.to_string().contains(reason), "{text}\n{error}");
        assert_eq!(error.line, Some(line), "{text}\n{error}");
    }
}

#[test]
fn unreachable_hosts_and_impossible_routes_are_refused() {
    let flow = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nudp = \"1M\"\n";
    let hosts = "routers = [\"r\", \"s\"]\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n";
    let link = |a: &str, b: &str| format!("[[link]]\nbetween = [\"{a}\", \"{b}\"]\n");
    let one_way = "[[link]]\nfrom = \"a\"\nto = \"b\"\n";
    let ring = [link("a", "r"), link("r", "s"), link("s", "b"), link("r", "b")].concat();
    let route = |via: &str| format!("[[route]]\nfrom = \"a\"\nto = \"b\"\nvia = [{via}]\n");
    let wrong = [
        ([hosts, flow].concat(), "no route leads from a to b"),
        ([hosts, one_way, flow].concat(), "no route leads from b to a"),
        ([hosts, &ring, &route("\"r\", \"s\", \"r\"")].concat(), "passes r twice"),
        ([hosts, &ring, &route("\"s\"")].concat(), "needs a link from a to s"),
        (
            [hosts, &ring, &route("\"r\""), &route("\"r\", \"s\"")].concat(),
            "two routes from a to b",
        ),
        ([hosts, &ring, &route("\"r\", \"b\"")].concat(), "passes b twice"),
    ];
    for (text, reason) in wrong {
        let error = refused(&text);
        assert!(error.to_string().contains(reason), "{text}\n{error}");
        assert!(error.line.is_some_and(|line| line > 5), "{error}");
    }
    assert_eq!(parse(&[hosts, &ring, flow].concat()).unwrap().flows.len(), 1);
}

#[test]
fn hosts_are_read_up_to_the_limit_that_the_error_names() {
    let hosts =
        |n: usize| (0..n).map(|i| format!("[[host]]\nname = \"n{i}\"\n")).collect::<String>();
    let link = |i: usize| format!("[[link]]\nbetween = [\"n0\", \"n{i}\"]\n");
    let joined = hosts(MAX_NODES) + &(1..MAX_NODES).map(link).collect::<String>();
    assert_eq!(parse(&joined).unwrap().hosts.len(), MAX_NODES);
    let error = refused(&hosts(10_000));
    assert!(error.what.contains("more than 2000 hosts"), "{error}");
}

fn garbled(text: &str, at: usize, with: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let at = at % bytes.len();
    let end = (at + with.len()).min(bytes.len());
    bytes.splice(at..end, with.bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

proptest::proptest! {
    #[test]
    fn a_garbled_file_is_read_or_refused_but_never_panics(
        at in 0usize..4_000,
        with in "[ -~\n]{1,6}",
    ) {
        let text = garbled(EVERYTHING, at, &with);
        match parse(&text) {
            Ok(scenario) => proptest::prop_assert_eq!(scenario.validate(), Ok(())),
            Err(error) => proptest::prop_assert!(!error.what.is_empty()),
        }
    }
}

fn in_repository(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn every_scenario_of_the_repository_is_valid_and_describes_itself() {
    let folder = std::fs::read_dir(in_repository("scenarios")).unwrap();
    let files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 20, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let scenario = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(!scenario.about.is_empty() && !scenario.flows.is_empty(), "{}", file.display());
        assert!(text.starts_with("# "), "{} does not begin with its source", file.display());
    }
}

fn documented(page: &str) -> BTreeMap<String, Vec<String>> {
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut heading = String::new();
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("##") {
            heading = text.trim_matches(['#', ' ']).to_owned();
        }
        let key = line.strip_prefix("| `").and_then(|rest| rest.split_once('`'));
        tables.entry(heading.clone()).or_default().extend(key.map(|(key, _)| key.to_owned()));
    }
    tables
}

#[test]
fn the_page_explains_every_key_and_no_other() {
    let page = std::fs::read_to_string(in_repository("docs/scenarios.md")).unwrap();
    let tables = documented(&page);
    let sorted = |keys: Vec<&str>| {
        let mut keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
        keys.sort();
        keys.dedup();
        keys
    };
    let carried = keys::CARRIERS.iter().flat_map(|(name, keys)| [&[*name], *keys].concat());
    let flow = [keys::FLOW.to_vec(), carried.collect()].concat();
    for (heading, keys) in [
        ("The file", keys::WHOLE.to_vec()),
        ("Topology", keys::TOPOLOGY.to_vec()),
        ("Hosts", keys::HOST.to_vec()),
        ("Links", [keys::LINK_ENDS, keys::LINK].concat()),
        ("Loss", keys::LOSS.to_vec()),
        ("Changes", keys::CHANGE.to_vec()),
        ("Routes", keys::ROUTE.to_vec()),
        ("Flows", flow),
    ] {
        let on_page = tables[heading].iter().map(String::as_str).collect();
        assert_eq!(sorted(on_page), sorted(keys), "below '{heading}'");
    }
    for (carrier, keys) in keys::CARRIERS {
        for key in *keys {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{key}` | ")));
            let owners = row.and_then(|row| row.split('|').nth(2)).unwrap_or_default();
            let named = owners.split(',').any(|owner| owner.trim() == *carrier);
            assert!(named || *key == "rate", "the page does not list `{key}` for {carrier}");
        }
    }
}

#[test]
fn the_example_of_the_page_is_a_scenario() {
    let page = std::fs::read_to_string(in_repository("docs/scenarios.md")).unwrap();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let scenario = parse(example).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((scenario.hosts.len(), scenario.flows.len()), (3, 4));
}

#[test]
fn the_limits_of_each_part_are_checked() {
    let with = |start: &str, end: &str| format!("{start}\n{PAIR}{end}\n");
    let hosts = |end: &str| with("", &format!("[all-hosts]\n{end}"));
    let ends = "[[flow]]\nfrom = \"a\"\nto = \"b\"\n";
    let flow = |end: &str| with("", &format!("{ends}{end}"));
    let mice = |end: &str| flow(&format!("mice = 5\nsize = \"1MB\"\n{end}"));
    let changes = |end: &str| with("", &format!("[all-links]\nchanges = [{end}]"));
    let wrong = [
        (with("mtu = 500", ""), "the least is 576"),
        (with("time-limit = \"0\"", ""), "leaves no time"),
        (with("record-every = \"0\"", ""), "interval above zero"),
        (with("routers = [\"a b\"]", ""), "letters, digits"),
        (with("seed = -1", ""), "not a whole number in its range"),
        (with("mtu = 1e99", ""), "not a whole number in its range"),
        (hosts("nic = 0"), "card of a has a rate of zero"),
        (hosts("sends-rate = \"0\""), "sends at a rate of zero"),
        (hosts("socket-buffer = \"1KB\""), "smaller than a packet"),
        (hosts("memory = \"31MiB\""), "memory for copies"),
        (hosts("disk-rate = \"0\""), "disk of a has a rate of zero"),
        (hosts("disk-stall = \"1s\"\ndisk-stall-every = \"2s\""), "no 'disk-rate'"),
        (
            hosts("disk-rate = \"1M\"\ndisk-stall = \"2s\"\ndisk-stall-every = \"2s\""),
            "never works",
        ),
        (changes("{ at = \"1s\" }"), "changes nothing"),
        (changes("{ up = false }"), "lacks 'at'"),
        (changes("{ at = \"2s\", up = false }, { at = \"1s\", up = true }"), "not in order"),
        (changes("{ at = \"2s\", rate = 0, over = \"1s\" }"), "rate of zero"),
        (changes("{ at = \"2s\", loss = 0.1, over = \"1s\" }"), "needs `rate` or `delay`"),
        (with("", "[all-links]\nqueue = \"1bdp\"\ndelay = 0").replace("10ms", "0ms"), "'bdp-rtt'"),
        (flow("protocol = \"\""), "cannot be ''; it is one of: rbudp"),
        (flow("protocol = \"gtp\"\nrate = 0"), "a rate of zero"),
        (flow("protocol = \"gtp\"\nsegment = 0"), "segment size of zero"),
        (flow("protocol = \"gtp\"\nreads-disk = true"), "reads from a disk, but a has no disk"),
        (flow("protocol = \"gtp\"\nwrites-disk = true"), "writes to a disk, but b has no disk"),
        (
            flow("protocol = \"rbudp\"\nsettings = { tail-copies = \"b\" }"),
            "is not a count; expected a whole number",
        ),
        (flow("protocol = \"gtp\"\nsize = 1\nlasts = \"1s\""), "not both"),
        (flow("tcp = \"cubic\"\nstreams = 0"), "0 streams"),
        (flow("tcp = \"cubic\"\ninitial-window = 0"), "window of zero segments"),
        (flow("tcp = \"cubic\"\nwindow = 100"), "smaller than a segment"),
        (flow("udp = 0"), "sends nothing"),
        (flow("udp = 1\non = \"1s\""), "lacks 'off'"),
        (flow("udp = 1\ndatagram = 1473"), "takes 1 to 1472"),
        (flow("mice = 5\nevery = \"1s\""), "lacks 'size'"),
        (flow("mice = 0\nsize = 1\nevery = \"1s\""), "0 mice"),
        (mice(""), "lacks 'every'"),
        (mice("arrivals = \"poisson\"\nevery = 0"), "start at the same time"),
        (mice("arrivals = \"in-turn\"\nevery = \"1s\""), "waits for the previous one"),
        (flow("command = \" \""), "empty command"),
        (flow("udp = 1\nstart = \"1h\""), "after the time limit"),
        (flow("udp = 1").replace("to = \"b\"", "to = \"a\""), "from a to itself"),
        (flow(&format!("udp = 1\nname = \"x\"\n{ends}udp = 1\nname = \"x\"")), "are named x"),
    ];
    for (text, reason) in wrong {
        let error = refused(&text);
        assert!(error.to_string().contains(reason), "{text}\n{error}");
        assert!(error.line.is_some(), "{text}\n{error}");
    }
}
