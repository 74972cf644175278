//! Settings of a protocol: named numbers, each checked against its range. The base units are bit/s,
//! seconds, bytes, and fractions of 1.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

use crate::kind::Kind;
use crate::time::Span;
use crate::units::Rate;

/// A setting of a protocol: a number that [`Settings`] may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtocolOption {
    /// The setting's name in scenarios. A flag of the same name sets it for a copy.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Type and unit of the number.
    pub kind: Kind,
    /// Smallest allowed value, in base units.
    pub least: f64,
    /// Largest allowed value.
    pub most: f64,
    /// Value if the setting is not given.
    pub default: f64,
    /// Whether the setting belongs to the receiving host and so applies to all flows it receives.
    pub is_shared: bool,
}

impl ProtocolOption {
    /// A setting that may differ between flows, within `range`.
    pub(crate) const fn new(
        kind: Kind,
        name: &'static str,
        help: &'static str,
        range: (f64, f64),
        default: f64,
    ) -> ProtocolOption {
        let (least, most) = range;
        ProtocolOption { name, help, kind, least, most, default, is_shared: false }
    }

    pub(crate) const fn switch(
        name: &'static str,
        help: &'static str,
        default: bool,
    ) -> ProtocolOption {
        let default = if default { 1.0 } else { 0.0 };
        ProtocolOption::new(Kind::Switch, name, help, (0.0, 1.0), default)
    }

    /// One of `words`; the first is the default.
    pub(crate) const fn choice(
        name: &'static str,
        help: &'static str,
        words: &'static [&'static str],
    ) -> ProtocolOption {
        let most = (words.len() - 1) as f64;
        ProtocolOption::new(Kind::Choice(words), name, help, (0.0, most), 0.0)
    }

    /// Makes this a setting of the receiving host, which applies to all flows that the host
    /// receives.
    pub(crate) const fn shared(self) -> ProtocolOption {
        ProtocolOption { is_shared: true, ..self }
    }

    /// Reads a value and converts it to base units. The range is checked later, in `set`.
    ///
    /// # Errors
    /// As [`Kind::parse`].
    pub fn parse(&self, text: &str) -> Result<f64, String> {
        self.kind.parse(text)
    }

    /// Formats a value so that [`ProtocolOption::parse`] reads exactly the same number.
    pub fn written(&self, value: f64) -> String {
        self.kind.written(value)
    }

    fn allows(&self, value: f64) -> bool {
        let is_in_range = (self.least..=self.most).contains(&value);
        is_in_range && (!self.kind.is_whole() || libm::trunc(value) == value)
    }
}

/// The settings that a user or a scenario has given; all others have their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(BTreeMap<&'static str, f64>);

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingError {
    /// The protocol has no such setting.
    Unknown {
        /// The requested name.
        name: String,
        /// The protocol's name.
        protocol: &'static str,
    },
    /// The number is not finite, is outside its range, or is not whole where it must be.
    Range {
        /// The setting.
        option: &'static ProtocolOption,
        /// The given value, in base units.
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
                let ProtocolOption { name, kind, .. } = option;
                let [value, least, most] =
                    [*value, option.least, option.most].map(|number| kind.written(number));
                let whole = if *kind == Kind::Count { "a whole number " } else { "" };
                write!(f, "{name} {value} is not {whole}between {least} and {most}")
            }
        }
    }
}

impl core::error::Error for SettingError {}

impl Settings {
    pub(crate) fn set(
        mut self,
        option: &'static ProtocolOption,
        value: f64,
    ) -> Result<Self, SettingError> {
        if !option.allows(value) {
            return Err(SettingError::Range { option, value });
        }
        self.0.insert(option.name, value);
        Ok(self)
    }

    /// The value given for `option`, in base units; `None` if none was given.
    pub fn given(&self, option: &ProtocolOption) -> Option<f64> {
        self.0.get(option.name).copied()
    }

    /// The value given for `option`, or its default, in base units.
    pub fn value(&self, option: &ProtocolOption) -> f64 {
        self.given(option).unwrap_or(option.default)
    }

    /// The value as a whole number.
    pub fn count(&self, option: &ProtocolOption) -> u64 {
        self.value(option) as u64
    }

    /// The value as a rate.
    pub fn rate(&self, option: &ProtocolOption) -> Rate {
        Rate::from_bps_f64(self.value(option))
    }

    /// The value as a time.
    pub fn span(&self, option: &ProtocolOption) -> Span {
        Span::from_secs_f64(self.value(option))
    }

    /// The value as a switch.
    pub fn is_on(&self, option: &ProtocolOption) -> bool {
        self.value(option) > 0.0
    }

    /// The value as one of the option's words.
    pub fn word(&self, option: &ProtocolOption) -> &'static str {
        option.kind.word(self.value(option))
    }

    /// All given settings, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.0.iter().map(|(&name, &value)| (name, value))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    const ON: ProtocolOption = ProtocolOption::switch("on", "", true);
    const OFF: ProtocolOption = ProtocolOption::switch("off", "", false);
    const COUNT: ProtocolOption = ProtocolOption::new(Kind::Count, "count", "", (2.0, 9.0), 3.0);
    const WAIT: ProtocolOption = ProtocolOption::new(Kind::Time, "wait", "", (0.0, 1.0), 0.5);
    const WAY: ProtocolOption = ProtocolOption::choice("way", "", &["a", "b"]);

    #[test]
    fn a_setting_has_its_default_until_it_is_given() {
        let none = Settings::default();
        assert_eq!((none.is_on(&ON), none.is_on(&OFF), none.word(&WAY)), (true, false, "a"));
        assert_eq!((none.count(&COUNT), none.span(&WAIT)), (3, Span::from_millis(500)));
        let given = [(&ON, 0.0), (&OFF, 1.0), (&WAY, 1.0), (&COUNT, 9.0), (&WAIT, 1.0)];
        let set = |all: Settings, (option, value)| all.set(option, value).unwrap();
        let all = given.into_iter().fold(none, set);
        assert_eq!((all.is_on(&ON), all.is_on(&OFF), all.word(&WAY)), (false, true, "b"));
        assert_eq!((all.count(&COUNT), all.span(&WAIT)), (9, Span::from_secs(1)));
        assert_eq!(all.iter().count(), 5);
    }

    #[test]
    fn a_value_out_of_range_and_a_fractional_count_are_refused() {
        let refusal = |option, value: f64| {
            Settings::default().set(option, value).err().map(|error| error.to_string())
        };
        assert_eq!([2.0, 9.0].map(|value| refusal(&COUNT, value)), [None, None]);
        for value in [1.0, 10.0, 2.5] {
            let says = alloc::format!("count {value} is not a whole number between 2 and 9");
            assert_eq!(refusal(&COUNT, value), Some(says));
        }
        assert_eq!(refusal(&WAIT, 2.0), Some("wait 2s is not between 0s and 1s".to_string()));
        assert_eq!([f64::NAN, 2.0].map(|value| refusal(&WAY, value).is_some()), [true, true]);
    }
}
