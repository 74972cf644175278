//! Recorded losses: parses the text of a trace.

use super::{Loss, SpecError};

/// Maximum number of packets in a trace.
const MAX_PACKETS: usize = 1 << 24;

impl Loss {
    /// Parses losses packet by packet: `1` for a lost packet, `0` for one that arrived. The pattern
    /// repeats after its end. Ignores white space, and comments from `#` to the end of the line.
    ///
    /// # Errors
    /// Another character, no packet, or more than 16,777,216 packets.
    pub fn from_bits(text: &str) -> Result<Loss, SpecError> {
        let mut pattern = Vec::new();
        for (line, content) in lines(text) {
            for letter in content.chars().filter(|letter| !letter.is_whitespace()) {
                match letter {
                    '0' | '1' => pattern.push(letter == '1'),
                    other => {
                        let what = format!("line {line}: '{other}' is neither 0 nor 1");
                        return Err(SpecError::new(what));
                    }
                }
            }
            bounded(pattern.len())?;
        }
        finished(pattern)
    }

    /// Parses the gaps between losses, separated by white space: how many packets arrive before
    /// each lost one. The pattern repeats after its end. Ignores comments from `#` to the end of
    /// the line.
    pub(crate) fn from_gaps(text: &str) -> Result<Loss, SpecError> {
        let mut pattern = Vec::new();
        for (line, content) in lines(text) {
            for word in content.split_whitespace() {
                let Ok(gap) = word.parse::<usize>() else {
                    let what = format!("line {line}: '{word}' is not a number of packets");
                    return Err(SpecError::new(what));
                };
                let len = pattern.len().saturating_add(gap);
                bounded(len.saturating_add(1))?;
                pattern.resize(len, false);
                pattern.push(true);
            }
        }
        finished(pattern)
    }
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let content = |line: &'_ str| line.split('#').next().map_or(0, str::len);
    (1..).zip(text.lines()).map(move |(number, line)| (number, &line[..content(line)]))
}

fn bounded(packets: usize) -> Result<(), SpecError> {
    if packets <= MAX_PACKETS {
        return Ok(());
    }
    Err(SpecError::new(format!("the trace has more than {MAX_PACKETS} packets")))
}

fn finished(pattern: Vec<bool>) -> Result<Loss, SpecError> {
    if pattern.is_empty() {
        return Err(SpecError::new("the trace is empty; it needs at least one packet".into()));
    }
    Ok(Loss::Pattern(pattern.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(packets: &[u8]) -> Result<Loss, SpecError> {
        Ok(Loss::Pattern(packets.iter().map(|lost| *lost == 1).collect()))
    }

    #[test]
    fn both_forms_of_a_trace_say_the_same() {
        let bits = "0010 # recorded on a Tuesday\n1 0 0 0 1\n";
        assert_eq!(Loss::from_bits(bits), pattern(&[0, 0, 1, 0, 1, 0, 0, 0, 1]));
        assert_eq!(Loss::from_gaps("2 1\n3 # three\n"), Loss::from_bits(bits));
        assert_eq!(Loss::from_gaps("0 0"), pattern(&[1, 1]));
    }

    #[test]
    fn a_wrong_trace_is_refused_with_the_reason_and_a_wrong_entry_with_its_line() {
        for (wrong, reason) in [
            (Loss::from_bits("01\n012"), "line 2: '2'"),
            (Loss::from_bits("# nothing\n"), "trace is empty"),
            (Loss::from_gaps("1\n-4"), "line 2: '-4'"),
            (Loss::from_gaps("18446744073709551615"), "more than 16777216"),
            (Loss::from_gaps("99999999999999999999999"), "not a number of packets"),
        ] {
            let error = wrong.expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_trace_has_at_most_16777216_packets() {
        let bits = |packets| Loss::from_bits(&"0".repeat(packets));
        assert!(bits(MAX_PACKETS).is_ok() && bits(MAX_PACKETS + 1).is_err());
        let gap = |packets: usize| Loss::from_gaps(&packets.to_string());
        assert!(gap(MAX_PACKETS - 1).is_ok() && gap(MAX_PACKETS).is_err());
    }
}
