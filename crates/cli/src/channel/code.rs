//! The values of `longhaul channel --code`.

use longhaul::ChannelCode;

/// Parses `none`, `xor:N` (one repair for each N datagrams) or `rs:N+M` (M repairs for each N).
pub(super) fn parse(text: &str) -> Result<ChannelCode, String> {
    let number = |text: &str, most: u8| {
        let number = text.parse::<u8>().ok();
        number.filter(|number| (1..=most).contains(number))
    };
    let code = match text.split_once(':') {
        None if text == "none" => Some(ChannelCode::None),
        Some(("xor", group)) => number(group, 64).map(ChannelCode::Xor),
        Some(("rs", numbers)) => numbers.split_once('+').and_then(|(group, repairs)| {
            Some(ChannelCode::ReedSolomon(number(group, 64)?, number(repairs, 32)?))
        }),
        _ => None,
    };
    code.ok_or_else(|| {
        "write none, xor:N or rs:N+M, with N from 1 to 64 and M from 1 to 32".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_code_or_a_number_outside_its_limits_is_refused() {
        assert_eq!(parse("none"), Ok(ChannelCode::None));
        assert_eq!(parse("xor:3"), Ok(ChannelCode::Xor(3)));
        assert_eq!(parse("rs:64+32"), Ok(ChannelCode::ReedSolomon(64, 32)));
        for wrong in ["", "xor", "xor:0", "xor:65", "xor:-1", "rs:3", "rs:0+1", "rs:1+33", "no"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
