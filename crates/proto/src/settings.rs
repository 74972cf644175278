//! Settings of a protocol: numbers by name, within the range of each option.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

/// A setting of a protocol: a number that [`Settings`] may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtocolOption {
    /// Its name in scenarios; a flag of the same name sets it for a copy.
    pub name: &'static str,
    /// What it does, and its unit.
    pub help: &'static str,
    /// The smallest that it may be.
    pub least: f64,
    /// The largest that it may be.
    pub most: f64,
    /// What it is where it is not set.
    pub default: f64,
    /// It is of the receiving host, and so one for all flows that it receives.
    pub is_shared: bool,
}

impl ProtocolOption {
    /// A setting that each flow may have its own of, from the least to the most of `range`.
    pub(crate) const fn own(
        name: &'static str,
        help: &'static str,
        range: (f64, f64),
        default: f64,
    ) -> ProtocolOption {
        let (least, most) = range;
        ProtocolOption { name, help, least, most, default, is_shared: false }
    }

    /// One of the receiving host, and so of all flows that it receives.
    pub(crate) const fn shared(
        name: &'static str,
        help: &'static str,
        range: (f64, f64),
        default: f64,
    ) -> ProtocolOption {
        ProtocolOption { is_shared: true, ..ProtocolOption::own(name, help, range, default) }
    }
}

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
    /// The same settings with one more. A value outside the option's range is refused.
    pub(crate) fn set(
        mut self,
        option: &'static ProtocolOption,
        value: f64,
    ) -> Result<Self, SettingError> {
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
