//! The tally (the record of which blocks have arrived) at 10⁹ blocks: marks per second, memory,
//! and the time to list missing blocks at 1 % loss. `cargo bench -p longhaul-proto --bench tally`
//! prints the table.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark has a clock")]

use std::hint::black_box;
use std::time::Instant;

use longhaul_proto::tally::Tally;

const BLOCKS: u32 = 1_000_000_000;
/// One in this many blocks is lost.
const LOST: u32 = 100;

fn main() {
    // With `-- --test` a benchmark only checks that it works.
    let blocks = if std::env::args().any(|word| word == "--test") { 100_000 } else { BLOCKS };
    println!("| what | at {blocks} blocks |");
    println!("| --- | --- |");
    let before = resident();
    let started = Instant::now();
    let mut tally = Tally::new(blocks);
    let mut random = 1u32;
    let mut lost = 0u64;
    for block in 0..blocks {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        if random.is_multiple_of(LOST) {
            lost += 1;
        } else {
            tally.mark(block);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("| marks a second, in order | {:.0} million |", f64::from(blocks) / seconds / 1e6);
    println!("| memory | {:.1} MB |", (resident() - before) as f64 / 1e6);

    let started = Instant::now();
    let missing: u64 = tally.missing(0..blocks).map(|run| u64::from(run.end - run.start)).sum();
    assert_eq!(black_box(missing), lost, "the missing blocks are the lost ones");
    let seconds = started.elapsed().as_secs_f64();
    println!("| listing the {missing} missing | {:.2} s |", seconds);

    let started = Instant::now();
    let mut place = 0u32;
    let marks = blocks.min(100_000_000);
    for _ in 0..marks {
        place = place.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        black_box(tally.mark(place % blocks));
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("| marks a second, anywhere | {:.0} million |", f64::from(marks) / seconds / 1e6);
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
