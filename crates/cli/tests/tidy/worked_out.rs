//! What the prose of experiments' pages works out from their tables, worked out again.

use super::prose::Cells;

/// A value and its unit, which is empty where the prose leaves it out.
type Value = (&'static str, f64);

/// Bits of the ORNL study's file, in millions.
const FILE_MEGABITS: f64 = 214.649_928 * 8.0;
/// What FOBS, RBUDP and Tsunami are told to send on its bad day, in Mbit/s.
const TOLD_MBPS: f64 = 335.0;
/// What 1 Gbit/s carries of object, in Mbit/s.
const OBJECT_MBPS: f64 = 936.0;
/// What the slower disks of SABUL's paper write, in Mbit/s.
const DISK_MBPS: f64 = 500.0;

const SIMULATED: &str = "simulated";
const PUBLISHED: &str = "published";

/// What the prose of a page works out from its tables.
pub(super) fn worked_out(page: &str, cells: &Cells) -> Vec<Value> {
    match page {
        "compare-1g" => compare(cells),
        "fobs-fig2" => fobs(cells),
        "gtp-scale" => scale(cells),
        "gtp-table2" => alone(cells),
        "gtp-table4" => group(cells),
        "gtp-table5" => halves(cells),
        "many-receivers" => many(cells),
        "ornl-cern" => cern(cells),
        "ornl-internet" => internet(cells),
        "ornl-lbl" => lbl(cells),
        "ornl-memory" => memory(cells),
        "ornl-reorder" => reordering(cells),
        "sabul-fig2" => apart(cells),
        "sabul-fig3" => together(cells),
        "sabul-fig5" => routes(cells),
        "sabul-fig7" => mice(cells),
        "sabul-table2" => disks(cells),
        _ => Vec::new(),
    }
}

/// By how much, in per cent.
fn fall(from: f64, to: f64) -> f64 {
    100.0 * (1.0 - to / from)
}

fn goodput(cells: &Cells, case: &str, column: &str) -> f64 {
    cells.value(case, "goodput, Mbit/s", column)
}

fn compare(cells: &Cells) -> Vec<Value> {
    let waste = |case: String| cells.value(&case, "waste, %", SIMULATED);
    let more = |loss: u32| {
        let of = |name: &str| waste(format!("{name}, 300 MB, loss {loss} %"));
        ("points", of("FOBS, greedy") - of("RBUDP"))
    };
    let left = |name: &str| {
        let case = format!("{name}, 3000 MB, loss 5 %");
        cells.value(&case, "goodput of C·(1 − L), %", SIMULATED)
    };
    let behind = left("FOBS, greedy") - left("FOBS with its table");
    vec![more(0), more(5), ("points", behind)]
}

fn fobs(cells: &Cells) -> Vec<Value> {
    let times = |path: &str| {
        let case = format!("{path}, an acknowledgement takes 1 ms, one acknowledgement for 2");
        ("", cells.value(&case, "waste, %", SIMULATED) / 100.0)
    };
    ["short haul", "long haul"].map(times).into()
}

fn scale(cells: &Cells) -> Vec<Value> {
    let looks = cells.value("1000 senders", "looks at a flow for a decision", SIMULATED);
    vec![("", looks / 1_000.0)]
}

fn alone(cells: &Cells) -> Vec<Value> {
    let of = |name: &str| goodput(cells, name, SIMULATED);
    let behind = |name: &str| ("%", fall(of(name), of("SABUL")));
    let times = |name: &str| ("", of(name) / of("TCP"));
    vec![behind("GTP"), behind("RBUDP"), times("SABUL"), times("RBUDP")]
}

fn group(cells: &Cells) -> Vec<Value> {
    let of = |name: &str| cells.value(name, "aggregate goodput, Mbit/s", SIMULATED);
    vec![("%", fall(OBJECT_MBPS, of("SABUL"))), ("%", 100.0 * of("GTP") / OBJECT_MBPS)]
}

fn halves(cells: &Cells) -> Vec<Value> {
    let of = |name: &str| cells.value(name, "aggregate goodput, Mbit/s", SIMULATED);
    vec![("%", fall(of("RBUDP at half rate"), of("GTP")))]
}

fn many(cells: &Cells) -> Vec<Value> {
    let last = |case: &str| cells.value(case, "time until all have it, s", SIMULATED);
    let (told, blind) = ("RBUDP, told its share, to 4", "RBUDP, told the link, to 4");
    let after = last("SABUL, to 16") - last("RBUDP, told its share, to 16");
    vec![("s", last(told) - last(blind)), ("s", after)]
}

fn cern(cells: &Cells) -> Vec<Value> {
    let of = |name: &str, runs: &str| goodput(cells, &format!("{name}, {runs} case"), PUBLISHED);
    let lost = |name: &str| ("%", fall(of(name, "best"), of(name, "worst")));
    let took = |name: &str, runs: &str| FILE_MEGABITS / of(name, runs);
    vec![
        lost("FOBS"),
        lost("SABUL"),
        ("s", took("FOBS", "worst")),
        ("s", took("SABUL", "worst")),
        ("", took("FOBS", "best")),
    ]
}

fn internet(cells: &Cells) -> Vec<Value> {
    let kept = |name: &str| {
        ("%", 100.0 * goodput(cells, &format!("{name}, worst case"), SIMULATED) / TOLD_MBPS)
    };
    ["Tsunami", "FOBS"].map(kept).into()
}

fn lbl(cells: &Cells) -> Vec<Value> {
    let of = |name: &str, column: &str| goodput(cells, &format!("{name}, best case"), column);
    let lost = |name: &str| ("%", fall(of(name, SIMULATED), of(name, PUBLISHED)));
    ["SABUL", "FOBS"].map(lost).into()
}

fn memory(cells: &Cells) -> Vec<Value> {
    let tcp = |column: &str| {
        let of = |loss: &str| goodput(cells, &format!("TCP, 3 streams, loss {loss}"), column);
        ("%", fall(of("0"), of("0.0107 %")))
    };
    [SIMULATED, PUBLISHED].map(tcp).into()
}

fn reordering(cells: &Cells) -> Vec<Value> {
    let of = |degree: &str| cells.value(&format!("FOBS, {degree}"), "duplicates", SIMULATED);
    vec![("", of("5 % by 5 ms") - of("none"))]
}

fn apart(cells: &Cells) -> Vec<Value> {
    let share = |case: &str| cells.value(case, "share of the capacity, %", SIMULATED);
    let less = |unit, near: &str, far: &str| (unit, share(near) - share(far));
    vec![
        less("points", "10 Mbit/s, 1 ms", "10 Mbit/s, 100 ms"),
        less("points", "100 Mbit/s, 1 ms", "100 Mbit/s, 100 ms"),
        less("", "10 Mbit/s, 1 ms", "1000 Mbit/s, 1 ms"),
        less("", "10 Mbit/s, 10 ms", "1000 Mbit/s, 10 ms"),
    ]
}

fn together(cells: &Cells) -> Vec<Value> {
    let flows = ["10 ms, from 100", "50 ms, from 300", "100 ms, from 500"];
    let all = |column: &str| -> f64 { flows.map(|flow| goodput(cells, flow, column)).iter().sum() };
    vec![("", all(SIMULATED)), ("%", fall(all(PUBLISHED), all(SIMULATED)))]
}

fn routes(cells: &Cells) -> Vec<Value> {
    let part = |route: &str, column: &str| {
        ("%", 100.0 * goodput(cells, &format!("{route} route"), column) / OBJECT_MBPS)
    };
    vec![part("first", PUBLISHED), part("third", PUBLISHED), part("first", SIMULATED)]
}

fn mice(cells: &Cells) -> Vec<Value> {
    let case = |flows: u32| format!("{flows} SABUL flows");
    let lost = |flows: u32| {
        let of = |flows| cells.value(&case(flows), "goodput of the mice, Mbit/s", SIMULATED);
        fall(of(0), of(flows))
    };
    // Of 1000 Mbit/s.
    let kept =
        |flows: u32| cells.value(&case(flows), "aggregate goodput, Mbit/s", SIMULATED) / 10.0;
    vec![("%", lost(1)), ("%", lost(5)), ("%", lost(9)), ("%", kept(1)), ("%", kept(9))]
}

fn disks(cells: &Cells) -> Vec<Value> {
    let part = |case: &str| ("%", 100.0 * goodput(cells, case, SIMULATED) / DISK_MBPS);
    ["SARA to StarLight", "StarLight to StarLight"].map(part).into()
}
