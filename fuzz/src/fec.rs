//! Symbols (originals and repairs) of a block with an erasure code. A peer chooses the numbers and
//! lengths of the symbols.

use longhaul_proto::fec::{Decoder, Encoder, Scheme, Shape};

use super::input::Input;

/// Maximum bytes of a block and its repairs.
const MOST: usize = 1 << 16;

/// Checks that the decoder does not panic, and that Reed-Solomon restores a block of k originals
/// from any k symbols. With XOR, not every choice of k symbols is enough.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let scheme = if input.flag() { Scheme::Xor } else { Scheme::ReedSolomon };
    let (k, m) = (input.any() as u16, input.any() as u16);
    let Ok(shape) = Shape::new(scheme, k, m, input.any() as u16) else { return };
    let (k, m, length) = (usize::from(k), usize::from(m), usize::from(shape.symbol()));
    if (k + m) * length > MOST || k + m > 512 {
        return;
    }
    let mut decoder = Decoder::new();
    let honest = input.flag();
    if honest {
        restores(&mut decoder, shape, &mut input)
    } else {
        lies(&mut decoder, shape, &mut input)
    }
}

/// Loses symbols of an encoder's block; the input chooses which.
fn restores(decoder: &mut Decoder, shape: Shape, input: &mut Input) {
    let (k, length) = (usize::from(shape.originals()), usize::from(shape.symbol()));
    let block: Vec<u8> = (0..k * length).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut repairs = Vec::new();
    Encoder::new().encode(shape, block.chunks(length), &mut repairs).expect("a whole block");
    let lost: Vec<bool> = (0..k + usize::from(shape.repairs())).map(|_| input.flag()).collect();
    let originals = block.chunks(length).enumerate().filter(|(n, _)| !lost[*n]);
    let repairs = repairs.chunks(length).enumerate().filter(|(n, _)| !lost[k + n]);
    let mut restored = 0;
    let missing = decoder
        .decode(
            shape,
            originals.map(|(n, symbol)| (n as u16, symbol)),
            repairs.map(|(n, symbol)| (n as u16, symbol)),
            |n, symbol| {
                let n = usize::from(n);
                assert!(lost[n] && symbol == &block[n * length..][..length], "original {n}");
                restored += 1;
            },
        )
        .expect("symbols of the block");
    let gone = lost[..k].iter().filter(|lost| **lost).count();
    assert_eq!(restored + usize::from(missing), gone);
    let enough = lost.iter().filter(|lost| **lost).count() <= usize::from(shape.repairs());
    assert!(missing == 0 || !enough || shape.scheme() == Scheme::Xor);
}

/// Decodes symbols with any numbers and lengths.
fn lies(decoder: &mut Decoder, shape: Shape, input: &mut Input) {
    let (mut originals, mut repairs) = (Vec::<(u16, Vec<u8>)>::new(), Vec::<(u16, Vec<u8>)>::new());
    while !input.is_empty() && originals.len() + repairs.len() < 1024 {
        let kind = if input.flag() { &mut originals } else { &mut repairs };
        let number = input.mostly_below(u32::from(shape.originals())) as u16;
        let mut symbol = input.slice().to_vec();
        if input.flag() {
            symbol.resize(shape.symbol().into(), 0);
        }
        kind.push((number, symbol));
    }
    let mut restored = 0;
    let missing = decoder.decode(
        shape,
        originals.iter().map(|(n, symbol)| (*n, &symbol[..])),
        repairs.iter().map(|(n, symbol)| (*n, &symbol[..])),
        |n, symbol| {
            assert!(n < shape.originals() && symbol.len() == usize::from(shape.symbol()));
            restored += 1;
        },
    );
    if let Ok(missing) = missing {
        assert_eq!(
            restored + usize::from(missing) + originals.len(),
            usize::from(shape.originals())
        );
    }
}
