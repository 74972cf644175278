//! Settings of a protocol: numbers by name, within the ranges that its registry row gives.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use core::fmt;

use crate::registry::{ProtocolOption, Row};

/// What a user or a scenario has set; everything else has its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(BTreeMap<&'static str, f64>);

/// Why a setting is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingError {
    /// The protocol has no such setting.
    Unknown {
        /// What was asked for.
        name: String,
        /// The protocol's name.
        protocol: &'static str,
    },
    /// The number is none, or outside its range.
    Range {
        /// The setting.
        option: &'static ProtocolOption,
        /// What was asked for.
        value: f64,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingError::Unknown { name, protocol } => {
                write!(f, "{protocol} has no setting {name}")
            }
            SettingError::Range { option, value } => {
                let ProtocolOption { name, least, most, .. } = option;
                write!(f, "{name} {value} is not within {least} and {most}")
            }
        }
    }
}

impl core::error::Error for SettingError {}

impl Settings {
    /// The same settings with one more for `row`'s protocol.
    ///
    /// # Errors
    /// [`SettingError`] for a name that the protocol does not have, or a number out of range.
    pub fn with(mut self, row: &'static Row, name: &str, value: f64) -> Result<Self, SettingError> {
        let Some(option) = row.options.iter().find(|option| option.name == name) else {
            let name = name.to_string();
            return Err(SettingError::Unknown { name, protocol: row.name });
        };
        if !(option.least..=option.most).contains(&value) {
            return Err(SettingError::Range { option, value });
        }
        self.0.insert(option.name, value);
        Ok(self)
    }

    /// What was set for `option`, or its default.
    pub fn value(&self, option: &ProtocolOption) -> f64 {
        self.0.get(option.name).copied().unwrap_or(option.default)
    }

    /// The same, as a whole number.
    pub fn count(&self, option: &ProtocolOption) -> u64 {
        self.value(option) as u64
    }

    /// All that was set, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.0.iter().map(|(&name, &value)| (name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;

    #[test]
    fn a_setting_has_its_default_until_it_is_set_within_its_range() {
        let row = find("rbudp").unwrap();
        let option = &row.options[0];
        let settings = Settings::default();
        assert_eq!(settings.value(option), option.default);
        let settings = settings.with(row, option.name, option.most).unwrap();
        assert_eq!(settings.count(option), option.most as u64);
        assert_eq!(settings.iter().collect::<alloc::vec::Vec<_>>(), [(option.name, option.most)]);
        let error = settings.clone().with(row, option.name, option.most + 1.0).unwrap_err();
        assert!(error.to_string().contains("is not within"), "{error}");
        assert!(settings.clone().with(row, option.name, f64::NAN).is_err());
        let error = settings.with(row, "no-such", 1.0).unwrap_err();
        assert_eq!(error.to_string(), "rbudp has no setting no-such");
    }
}
