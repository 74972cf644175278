//! `--sweep KEY=A,B,C`: the values of a key, and the combinations of several sweeps.

use crate::error::{Error, ErrorKind};

/// A key and one of its values.
pub(super) type Setting = (String, String);

/// Maximum number of runs.
const MOST: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sweep {
    key: String,
    values: Vec<String>,
}

impl Sweep {
    pub(super) fn is_of(&self, key: &str) -> bool {
        self.key == key
    }
}

/// Parses `KEY=A,B,C`.
pub(super) fn parse(text: &str) -> Result<Sweep, String> {
    let expected = "expected a key and values such as topology.link.loss=0,0.1%,1%";
    let (key, values) = text.split_once('=').ok_or(expected)?;
    let key = key.trim().to_owned();
    let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    if key.is_empty() || values.iter().any(String::is_empty) {
        return Err(expected.into());
    }
    Ok(Sweep { key, values })
}

/// Returns the settings of each run. The values of the last sweep change fastest. Without a sweep
/// there is one run, without settings.
pub(super) fn combinations(sweeps: &[Sweep]) -> Result<Vec<Vec<Setting>>, Error> {
    let mut keys: Vec<&str> = sweeps.iter().map(|sweep| &*sweep.key).collect();
    keys.sort_unstable();
    if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        let what = format!("there are two sweeps of {}", twice[0]);
        return Err(Error::new(ErrorKind::Usage, what).advise("give all its values in one --sweep"));
    }
    let runs = sweeps.iter().try_fold(1usize, |n, sweep| n.checked_mul(sweep.values.len()));
    if runs.is_none_or(|runs| runs > MOST) {
        let what = format!("the sweeps together make more than {MOST} runs");
        return Err(Error::new(ErrorKind::Usage, what).advise("give fewer values"));
    }
    let mut all = vec![Vec::new()];
    for sweep in sweeps {
        let longer = |settings: &Vec<Setting>| {
            let settings = settings.clone();
            sweep
                .values
                .iter()
                .map(move |value| [&settings[..], &[(sweep.key.clone(), value.clone())]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_a_key_and_values() {
        let sweep = parse("link.0.loss=0, 1%").unwrap();
        assert_eq!(
            (sweep.key.as_str(), &sweep.values[..]),
            ("link.0.loss", &["0".into(), "1%".into()][..])
        );
        for text in ["loss", "=1", "loss=", "loss=1,,2"] {
            assert!(parse(text).unwrap_err().contains("topology.link.loss="), "{text}");
        }
    }

    #[test]
    fn every_combination_runs_once_and_the_last_key_changes_fastest() {
        let sweeps = ["a=1,2", "b=x,y,z"].map(|text| parse(text).unwrap());
        let combinations = combinations(&sweeps).unwrap();
        let words =
            |settings: &Vec<Setting>| settings.iter().map(|(_, v)| &**v).collect::<String>();
        let all: Vec<String> = combinations.iter().map(words).collect();
        assert_eq!(all, ["1x", "1y", "1z", "2x", "2y", "2z"]);
        assert_eq!(super::combinations(&[]).unwrap(), [[]]);
        let many = format!("a={}", vec!["1"; 101].join(","));
        let many = [parse(&many).unwrap(), parse(&many.replace('a', "b")).unwrap()];
        assert!(super::combinations(&many).unwrap_err().to_string().contains("10000"));
        let twice = ["a=1,2", "b=1", "a=3"].map(|text| parse(text).unwrap());
        assert!(super::combinations(&twice).unwrap_err().to_string().contains("sweeps of a"));
    }
}
