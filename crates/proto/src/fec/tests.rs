//! Exact numbers of repairs, and blocks that lose symbols.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::units::LossRatio;

fn ratio(value: f64) -> LossRatio {
    LossRatio::new(value).expect("a share")
}

fn independent(loss: f64) -> Losses {
    Losses::independent(ratio(loss))
}

#[test]
fn at_1_percent_loss_20_originals_take_3_repairs_100_take_7_and_1000_take_24() {
    let of = |k| repairs(k, independent(0.01), 1e-4);
    assert_eq!((of(20), of(100), of(1000)), (Some(3), Some(7), Some(24)));
}

/// Expected values from exact binomial coefficients.
#[test]
fn the_number_of_repairs_is_the_binomial_quantile() {
    let of = |k, loss| repairs(k, independent(loss), 1e-4);
    assert_eq!([0.001, 0.01, 0.05].map(|loss| of(1, loss)), [Some(1), Some(1), Some(3)]);
    assert_eq!([0.001, 0.01, 0.05].map(|loss| of(5, loss)), [Some(1), Some(2), Some(4)]);
    assert_eq!([0.001, 0.01, 0.05].map(|loss| of(100, loss)), [Some(3), Some(7), Some(16)]);
    assert_eq!([0.001, 0.01, 0.05].map(|loss| of(1000, loss)), [Some(6), Some(24), Some(83)]);
    assert_eq!([of(500, 0.4), of(1000, 0.3), of(4000, 0.1)], [Some(426), Some(525), Some(530)]);
}

/// At a loss of 1 %, a block of one original and one repair fails with probability 10⁻⁴: both
/// packets are lost.
#[test]
fn a_block_gets_a_second_repair_if_one_repair_leaves_too_many_failures() {
    let of = |epsilon| repairs(1, independent(0.01), epsilon);
    assert_eq!((of(1.01e-4), of(0.99e-4)), (Some(1), Some(2)));
}

/// Expected values from an independent program for the two-state chain.
#[test]
fn losses_in_bursts_take_more_repairs() {
    let of = |k, burst| repairs(k, Losses::bursty(ratio(0.01), burst), 1e-4);
    assert_eq!([2.0, 5.0, 10.0].map(|burst| of(20, burst)), [Some(11), Some(29), Some(55)]);
    assert_eq!([2.0, 5.0, 10.0].map(|burst| of(1000, burst)), [Some(39), Some(73), Some(119)]);
    assert_eq!(repairs(1000, Losses::bursty(ratio(0.001), 5.0), 1e-4), Some(38));
}

#[test]
fn no_loss_takes_no_repair_and_total_loss_or_invalid_numbers_have_no_answer() {
    assert_eq!(repairs(MAX_ORIGINALS, independent(0.0), 1e-10), Some(0));
    assert_eq!(repairs(20, independent(1.0), 1e-4), None);
    assert_eq!(repairs(0, independent(0.01), 1e-4), None);
    assert_eq!(repairs(MAX_ORIGINALS + 1, independent(0.01), 1e-4), None);
    assert_eq!(repairs(20, independent(0.01), f64::NAN), None);
    // A permitted failure ratio below 10⁻¹⁰ counts as 10⁻¹⁰.
    assert_eq!(repairs(20, independent(0.01), -1.0), repairs(20, independent(0.01), 1e-10));
}

#[test]
fn losses_with_shorter_bursts_than_independent_losses_count_as_independent() {
    let losses = Losses::bursty(ratio(0.5), 0.0);
    assert_eq!((losses, losses.burst()), (independent(0.5), 2.0));
    assert_eq!(Losses::bursty(ratio(0.5), f64::NAN), independent(0.5));
}

#[test]
fn a_shape_that_exceeds_a_limit_is_refused() {
    let of = |scheme, k, m, symbol| Shape::new(scheme, k, m, symbol).err();
    let (xor, rs) = (Scheme::Xor, Scheme::ReedSolomon);
    assert_eq!(of(rs, 0, 1, 2), Some(ShapeError::Originals(0)));
    assert_eq!(of(rs, MAX_ORIGINALS, MAX_REPAIRS, 2), None);
    let (k, m) = (MAX_ORIGINALS + 1, MAX_REPAIRS + 1);
    assert_eq!(of(rs, k, 1, 2), Some(ShapeError::Originals(k)));
    assert_eq!(of(rs, 1, m, 2), Some(ShapeError::Repairs(m)));
    assert_eq!(of(xor, 2, 3, 1), Some(ShapeError::Repairs(3)));
    assert_eq!((of(xor, 2, 2, 1), of(rs, 2, 3, 2)), (None, None));
    assert_eq!(
        (of(rs, 1, 1, 0), of(rs, 1, 1, 3)),
        (Some(ShapeError::Symbol(0)), Some(ShapeError::Symbol(3)))
    );
    // 2¹⁶ symbols of 1024 bytes are 64 MiB.
    assert_eq!(of(rs, MAX_ORIGINALS, MAX_REPAIRS, 1024), None);
    let too_large = Some(ShapeError::Block(1026 << 16));
    assert_eq!(of(rs, MAX_ORIGINALS, MAX_REPAIRS, 1026), too_large);
    assert_eq!(Shape::interleaved(3, 4, 8), Shape::new(xor, 12, 4, 8));
    assert_eq!(Shape::interleaved(300, 300, 8), Err(ShapeError::Originals(u16::MAX)));
}

#[test]
fn xor_adds_every_mth_original() {
    let shape = Shape::new(Scheme::Xor, 5, 2, 2).expect("a shape");
    let originals: [&[u8]; 5] = [&[1, 1], &[2, 2], &[4], &[8, 8], &[]];
    let mut made = vec![9; 9];
    Encoder::new().encode(shape, originals.into_iter(), &mut made).expect("a block");
    assert_eq!(made, [5, 1, 10, 10]);
}

/// If this version produced different repairs, an older version could not decode them.
#[test]
fn reed_solomon_repairs_are_the_same_in_every_version() {
    let shape = Shape::new(Scheme::ReedSolomon, 3, 2, 2).expect("a shape");
    let originals: [&[u8]; 3] = [&[1, 2], &[3, 4], &[5]];
    let mut made = Vec::new();
    Encoder::new().encode(shape, originals.into_iter(), &mut made).expect("a block");
    assert_eq!(made, REPAIRS_OF_3_2);
}
const REPAIRS_OF_3_2: [u8; 4] = [165, 10, 162, 12];

#[test]
fn symbols_that_do_not_fit_the_shape_are_refused() {
    for scheme in [Scheme::Xor, Scheme::ReedSolomon] {
        let shape = Shape::new(scheme, 2, 2, 2).expect("a shape");
        let (mut encoder, mut decoder, mut made) = (Encoder::new(), Decoder::new(), Vec::new());
        let mut encode =
            |symbols: &[&[u8]]| encoder.encode(shape, symbols.iter().copied(), &mut made);
        let given = |given| Err(SymbolError::Originals { given, expected: 2 });
        let past = Err(SymbolError::Number { number: 2, end: 2 });
        let length = |length| Err(SymbolError::Length { length, symbol: 2 });
        assert_eq!(encode(&[]), given(0));
        assert_eq!(encode(&[&[1, 1]]), given(1));
        assert_eq!(encode(&[&[1, 1], &[1], &[1]]), past);
        assert_eq!(encode(&[&[1, 1], &[1, 2, 3]]), length(3));
        assert_eq!(encode(&[&[1, 1], &[1]]), Ok(()));

        let mut decode = |originals: &[(u16, &[u8])], repairs: &[(u16, &[u8])]| {
            let (originals, repairs) = (originals.iter().copied(), repairs.iter().copied());
            decoder
                .decode(shape, originals, repairs, |_, _| panic!("nothing is restored"))
                .map(drop)
        };
        assert_eq!(decode(&[(2, &[1, 1])], &[]), past);
        assert_eq!(decode(&[], &[(2, &[1, 1])]), past);
        assert_eq!(decode(&[(1, &[1; 3])], &[]), length(3));
        assert_eq!(decode(&[], &[(1, &[1; 3])]), length(3));
        assert_eq!(decode(&[], &[(1, &[1; 1])]), length(1));
        assert_eq!(decode(&[(1, &[1]), (1, &[1])], &[]), Err(SymbolError::Twice(1)));
        assert_eq!(decode(&[], &[(1, &[1; 2]), (1, &[1; 2])]), Err(SymbolError::Twice(1)));
    }
}

/// The result of decoding a block without its lost symbols. `same` is whether the restored
/// originals are right.
struct Trial {
    missing: u16,
    restored: Vec<u16>,
    same: bool,
}

fn trial(encoder: &mut Encoder, decoder: &mut Decoder, shape: Shape, lost: &[bool]) -> Trial {
    let (k, length) = (usize::from(shape.originals()), usize::from(shape.symbol()));
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 7) as u8;
    let mut block: Vec<u8> = (0..k * length).map(byte).collect();
    // The last original is one byte shorter, as at the end of an object.
    let short = block.len() - 1;
    block[short] = 0;
    let mut repairs = Vec::new();
    let originals = (0..k).map(|n| &block[n * length..short.min((n + 1) * length)]);
    encoder.encode(shape, originals, &mut repairs).expect("a block");
    assert_eq!(repairs.len(), usize::from(shape.repairs()) * length);
    let here = |offset: usize| {
        move |(n, symbol): (usize, _)| (!lost[offset + n]).then_some((n as u16, symbol))
    };
    let (mut restored, mut same) = (Vec::new(), true);
    let originals = block.chunks(length).enumerate().filter_map(here(0));
    let symbols = repairs.chunks(length).enumerate().filter_map(here(k));
    let missing = decoder.decode(shape, originals, symbols, |n, symbol| {
        same &= lost[usize::from(n)] && symbol == &block[usize::from(n) * length..][..length];
        restored.push(n);
    });
    Trial { missing: missing.expect("symbols of the block"), restored, same }
}

/// Marks `count` of `of` symbols as lost, chosen at random from `seed`.
fn drawn(of: usize, count: usize, seed: u64) -> Vec<bool> {
    let mut lost = vec![false; of];
    let (mut state, mut left) = (seed | 1, count);
    while left > 0 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) as usize % of;
        left -= usize::from(!core::mem::replace(&mut lost[at], true));
    }
    lost
}

proptest! {
    #[test]
    fn reed_solomon_restores_any_m_losses_and_none_of_m_plus_1(
        k in 1u16..150, m in 0u16..40, half in 1u16..20, seed: u64,
    ) {
        let shape = Shape::new(Scheme::ReedSolomon, k, m, 2 * half).expect("a shape");
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let total = usize::from(k) + usize::from(m);
        // The same encoder and decoder again: they keep no state of the previous block.
        for count in [usize::from(m), usize::from(m) + 1] {
            let lost = drawn(total, count, seed);
            let originals = lost[..k.into()].iter().filter(|lost| **lost).count();
            let Trial { missing, restored, same } = trial(&mut encoder, &mut decoder, shape, &lost);
            prop_assert!(same);
            let repairable = count <= m.into() || originals == 0;
            prop_assert_eq!(usize::from(missing), if repairable { 0 } else { originals });
            prop_assert_eq!(restored.len(), if repairable { originals } else { 0 });
            prop_assert!(restored.is_sorted());
        }
    }

    #[test]
    fn xor_restores_any_burst_of_m_originals(
        group in 1u16..5, burst in 1u16..12, at in 0u16..60, length in 1u16..9,
    ) {
        let shape = Shape::interleaved(group, burst, length).expect("a shape");
        let (k, m) = (shape.originals(), shape.repairs());
        let first = at % (k - m + 1);
        let lost: Vec<bool> = (0..k + m).map(|n| (first..first + m).contains(&n)).collect();
        let got = trial(&mut Encoder::new(), &mut Decoder::new(), shape, &lost);
        prop_assert!(got.same);
        prop_assert_eq!((got.missing, got.restored), (0, (first..first + m).collect::<Vec<_>>()));
    }

    #[test]
    fn xor_restores_an_original_if_its_group_lost_no_other_symbol(
        k in 1u16..40, m in 0u16..40, seed: u64, share in 0usize..101,
    ) {
        let m = m.min(k);
        let shape = Shape::new(Scheme::Xor, k, m, 3).expect("a shape");
        let (k, m) = (usize::from(k), usize::from(m));
        let lost = drawn(k + m, (k + m) * share / 100, seed);
        let alone = |n: usize| {
            m > 0 && !lost[k + n % m] && (0..k).filter(|o| o % m == n % m && lost[*o]).count() == 1
        };
        let expected: Vec<u16> =
            (0..k).filter(|n| lost[*n] && alone(*n)).map(|n| n as u16).collect();
        let got = trial(&mut Encoder::new(), &mut Decoder::new(), shape, &lost);
        prop_assert!(got.same);
        let gone = lost[..k].iter().filter(|lost| **lost).count();
        prop_assert_eq!(usize::from(got.missing), gone - expected.len());
        prop_assert_eq!(got.restored, expected);
    }

    #[test]
    fn a_lower_permitted_failure_ratio_needs_at_least_as_many_repairs(
        k in 1u16..60,
        loss in 0.001f64..0.4,
        burst in 1.0f64..4.0,
    ) {
        let losses = Losses::bursty(ratio(loss), burst);
        let m = repairs(k, losses, 1e-3).expect("enough repairs");
        prop_assert!(repairs(k, losses, 1e-2).expect("fewer") <= m);
        prop_assert!(repairs(k, losses, 1e-4).expect("more") >= m);
        prop_assert!(m == 0 || f64::from(m) > f64::from(k + m) * loss);
    }
}

#[test]
fn an_error_of_a_shape_names_the_number_and_its_limit() {
    let says = |error: ShapeError, number: &str, limit: &str| {
        let text = alloc::string::ToString::to_string(&error);
        assert!(text.contains(number) && text.contains(limit), "{text}");
    };
    says(ShapeError::Originals(0), " 0 originals", "32768");
    says(ShapeError::Repairs(40_000), " 40000 repairs", "32768");
    says(ShapeError::Symbol(3), " 3 bytes", "even");
    says(ShapeError::Block(1 << 27), " 134217728 bytes", "67108864");
}

#[test]
fn an_error_of_a_symbol_names_its_numbers() {
    for (error, parts) in [
        (SymbolError::Number { number: 9, end: 7 }, ["symbol 9 ", "7"]),
        (SymbolError::Twice(3), ["symbol 3 ", "twice"]),
        (SymbolError::Length { length: 5, symbol: 4 }, ["5 bytes", "have 4"]),
        (SymbolError::Originals { given: 2, expected: 6 }, ["2 originals", "6"]),
    ] {
        let text = alloc::string::ToString::to_string(&error);
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}
