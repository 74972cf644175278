//! Streams of frames over links in virtual time. Repair symbols of a code, or requests of the
//! receiver, restore lost symbols.

use longhaul_proto::fec::Losses;
use longhaul_proto::stream::{Overflow, Settings};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_testbed::link::{Change, GilbertElliott, Jitter, LinkSpec, Loss, Reorder, Step};
use longhaul_testbed::random::Random;
use longhaul_testbed::sim::stream::{StreamOutcome, StreamRun, run};

const RTT: Span = Span::from_millis(100);

fn ratio(share: f64) -> LossRatio {
    LossRatio::new(share).expect("a share")
}

/// Frames of 800 × 600 pixels of 3 bytes, 20 frames a second (He et al., "Quanta", section 4.3),
/// with a deadline of 120 ms.
fn griz(loss: f64, frames: u32) -> StreamRun {
    let settings = Settings {
        symbol: 1430,
        overhead: 42,
        deadline: Span::from_millis(120),
        path: RTT / 2,
        losses: Losses::independent(ratio(loss)),
        epsilon: 1e-4,
        rate: Rate::from_mbps(250),
        overflow: Overflow::Thin,
        waiting: 2,
        keeps: false,
    };
    let link = LinkSpec::path(Rate::from_mbps(1_000), RTT);
    StreamRun {
        settings,
        memory: 64 << 20,
        link: link.with_loss(Loss::Independent(ratio(loss))),
        frame: 1_440_000,
        interval: Span::from_millis(50),
        frames,
        seed: 20,
    }
}

fn is_accounted_for(stream: &StreamRun, outcome: &StreamOutcome) {
    assert_eq!(outcome.broken, 0, "{stream:?}");
    assert_eq!(outcome.delivered + outcome.missed, stream.frames, "{stream:?}");
    assert!(outcome.memory <= stream.memory, "{}", outcome.memory);
}

fn keeps_its_promises(stream: &StreamRun, outcome: &StreamOutcome) {
    is_accounted_for(stream, outcome);
    assert_eq!(outcome.late, 0, "{stream:?}");
}

/// Set `LONGHAUL_STREAM_FRAMES` for a longer run of the paper's stream
/// (`LONGHAUL_STREAM_FRAMES=20000 cargo test --release -p longhaul-testbed --test stream paper`).
fn frames() -> u32 {
    let given = std::env::var("LONGHAUL_STREAM_FRAMES").ok();
    given.map_or(1_000, |given| given.parse().expect("a number of frames"))
}

#[test]
#[allow(clippy::print_stderr, reason = "the numbers are for results/")]
fn a_code_delivers_the_papers_stream_in_time_at_0_1_and_1_per_cent_of_loss() {
    for (loss, rate) in [(0.001, 238), (0.01, 242)] {
        let stream = griz(loss, frames());
        let outcome = run(&stream);
        keeps_its_promises(&stream, &outcome);
        let [median, most, last] = [0.5, 0.99, 1.0].map(|share| outcome.delay(share));
        eprintln!(
            "loss {loss}: {} of {} missed, UDP payload {}, delays {median} {most} {last}",
            outcome.missed,
            stream.frames,
            outcome.rate(),
        );
        assert!(f64::from(outcome.missed) <= (f64::from(stream.frames) / 1e4).max(0.9));
        // Each second: 20 times 1007 originals and 6 or 24 repairs, of 1472 bytes each.
        assert_eq!(outcome.rate().as_bps() / 1_000_000, rate, "loss {loss}");
        assert!(outcome.delay(1.0) <= Span::from_millis(120));
    }
}

/// A stream without a code: the receiver requests lost symbols.
fn repaired(loss: f64, deadline: Span, frames: u32) -> StreamRun {
    let mut stream = griz(loss, frames);
    stream.settings.keeps = true;
    stream.settings.deadline = deadline;
    // 1007 datagrams of 1472 bytes in four fifths of 50 ms.
    stream.settings.rate = Rate::from_mbps(297);
    stream
}

#[test]
fn requests_repair_the_papers_stream_in_time_if_the_deadline_allows_four_round_trips() {
    // The deadline allows four round trips with their pauses.
    let stream = repaired(0.01, Span::from_millis(560), frames());
    let outcome = run(&stream);
    keeps_its_promises(&stream, &outcome);
    assert_eq!(outcome.missed, 0);
    // 1 % more than the 237.2 Mbit/s of the originals.
    assert_eq!(outcome.rate().as_bps() / 1_000_000, 239);
    // A frame without losses takes 90 ms: 40 ms to send, 50 ms on the path. Most frames take longer
    // by one round trip and a pause.
    assert!(outcome.delay(0.5) <= Span::from_millis(210), "{}", outcome.delay(0.5));
    let short = repaired(0.01, Span::from_millis(250), 200);
    let outcome = run(&short);
    keeps_its_promises(&short, &outcome);
    // This deadline leaves time for one repair. In one frame of five, the request or the repeat of
    // a lost symbol is lost too: 1007 symbols × 1 % × 2 %. These are 40 of the 200 frames.
    assert!((10..80).contains(&outcome.missed), "{}", outcome.missed);
}

#[test]
fn without_a_code_one_per_cent_of_loss_costs_every_frame() {
    let mut stream = griz(0.01, 100);
    stream.settings.losses = Losses::independent(LossRatio::NONE);
    let outcome = run(&stream);
    keeps_its_promises(&stream, &outcome);
    // The chance that a frame of 1007 datagrams loses none is 4·10⁻⁵.
    assert_eq!((outcome.delivered, outcome.missed), (0, 100));
}

#[test]
fn after_an_outage_of_the_link_only_new_frames_arrive_and_none_is_late() {
    let mut stream = griz(0.01, 600);
    let step = |secs, up| Step { at: Time::ZERO + Span::from_secs(secs), change: Change::Up(up) };
    stream.link.schedule = vec![step(5, false), step(25, true)];
    let outcome = run(&stream);
    keeps_its_promises(&stream, &outcome);
    // 20 s are 400 frames; the two at the edges may be partial.
    assert!((400..=402).contains(&outcome.missed), "{}", outcome.missed);
}

#[test]
fn a_code_for_bursts_restores_every_frame_but_a_code_for_independent_losses_does_not() {
    let burst = GilbertElliott::bursts(ratio(0.01), 5.0).expect("a chain");
    let mut stream = griz(0.01, 500);
    stream.link.loss = Loss::GilbertElliott(burst);
    let independent = run(&stream);
    stream.settings.losses = Losses::bursty(ratio(0.01), 5.0);
    stream.settings.rate = Rate::from_mbps(265);
    let bursty = run(&stream);
    keeps_its_promises(&stream, &independent);
    keeps_its_promises(&stream, &bursty);
    let missed = [independent.missed, bursty.missed];
    assert!(missed[0] > 5 && missed[1] == 0, "{missed:?}");
}

#[test]
fn a_source_that_is_too_fast_loses_frames_but_no_delivered_frame_is_late() {
    let mut stream = griz(0.0, 400);
    // Almost twice as many frames as the rate carries.
    stream.interval = Span::from_millis(25);
    let outcome = run(&stream);
    keeps_its_promises(&stream, &outcome);
    assert!(outcome.delivered > 150, "{}", outcome.delivered);
}

fn hostile(random: &mut Random) -> LinkSpec {
    let mut share = |most: f64| random.unit() * most;
    let loss = GilbertElliott::bursts(ratio(share(0.2)), 1.3 + share(20.0)).expect("a chain");
    LinkSpec {
        duplicate: share(0.3),
        corrupt: share(0.1),
        jitter: Jitter { spread: Span::from_micros(share(30_000.0) as u64), overtakes: true },
        reorder: Reorder { share: share(0.3), by: Span::from_micros(share(60_000.0) as u64) },
        loss: Loss::GilbertElliott(loss),
        ..LinkSpec::path(Rate::from_mbps(1 + share(200.0) as u64), RTT)
    }
}

#[test]
fn no_link_makes_a_frame_incomplete_out_of_order_or_unaccounted_for() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let link = hostile(&mut random);
        let frame = 1 + (random.unit() * 60_000.0) as u32;
        let memory = 1 << (14 + seed % 8);
        let mut stream = StreamRun { link, frame, memory, seed, ..griz(0.02, 100) };
        is_accounted_for(&stream, &run(&stream));
        (stream.settings.keeps, stream.settings.deadline) = (true, Span::from_millis(500));
        is_accounted_for(&stream, &run(&stream));
    }
}
