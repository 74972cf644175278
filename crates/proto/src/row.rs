//! A row of the registry, the list of all protocols. Each protocol defines its row in its own
//! folder and the registry imports the protocols, so no protocol imports the registry.

use alloc::string::ToString;

use crate::endpoint::{BoxedReceiver, BoxedSender, Setup};
use crate::settings::{ProtocolOption, SettingError, Settings};

/// A protocol, or a variant of one. A variant has a row named `PROTOCOL-VARIANT` in the same
/// folder.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The value of `--protocol`.
    pub name: &'static str,
    /// The protocol's name in a sentence.
    pub title: &'static str,
    /// Where the protocol was published.
    pub paper: &'static str,
    /// Purpose and use of the protocol, one paragraph.
    pub summary: &'static str,
    /// The experiments that reproduce published results.
    pub experiments: &'static [&'static str],
    /// Whether a block is sent again only after a report that it is missing, or after a timeout.
    /// The extra copies of small last rounds (`tail-copies`) are an exception.
    pub frugal: bool,
    /// Whether one receiver serves all flows that arrive at a host and divides the host's capacity
    /// among them.
    pub many: bool,
    /// The protocol's settings.
    pub options: &'static [ProtocolOption],
    /// Creates the sending end of a flow.
    pub sender: fn(&Setup) -> BoxedSender,
    /// Creates the receiving end, for any number of flows.
    pub receiver: fn() -> BoxedReceiver,
}

impl Row {
    /// The setting called `name`.
    ///
    /// # Errors
    /// [`SettingError::Unknown`] if the protocol has no setting of this name.
    pub fn option(&self, name: &str) -> Result<&'static ProtocolOption, SettingError> {
        let option = self.options.iter().find(|option| option.name == name);
        option.ok_or_else(|| SettingError::Unknown { name: name.to_string(), protocol: self.name })
    }
}

impl Settings {
    /// Returns the settings plus one more setting of `row`'s protocol.
    ///
    /// # Errors
    /// [`SettingError`] for an unknown name or a value that the setting does not allow.
    pub fn with(self, row: &'static Row, name: &str, value: f64) -> Result<Self, SettingError> {
        self.set(row.option(name)?, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;

    #[test]
    fn a_setting_has_its_default_until_it_is_set_and_takes_only_values_in_its_range() {
        let row = find("rbudp").unwrap();
        let option = &row.options[0];
        let settings = Settings::default();
        assert_eq!(settings.value(option), option.default);
        let settings = settings.with(row, option.name, option.most).unwrap();
        assert_eq!(settings.count(option), option.most as u64);
        assert_eq!(settings.iter().collect::<alloc::vec::Vec<_>>(), [(option.name, option.most)]);
        let error = settings.clone().with(row, option.name, option.most + 1.0).unwrap_err();
        assert_eq!(error.to_string(), "tail-copies 9 is not a whole number between 1 and 8");
        assert!(settings.clone().with(row, option.name, 1.5).is_err());
        assert!(settings.clone().with(row, option.name, f64::NAN).is_err());
        let error = settings.with(row, "no-such", 1.0).unwrap_err();
        assert_eq!(error.to_string(), "rbudp has no setting no-such");
    }

    #[test]
    fn an_error_names_values_and_ranges_with_their_units() {
        let said = |protocol, name, text| {
            let row = find(protocol).unwrap();
            let value = row.option(name).unwrap().parse(text).unwrap();
            Settings::default().with(row, name, value).unwrap_err().to_string()
        };
        assert_eq!(
            said("gtp", "receive-rate", "2Tbit/s"),
            "receive-rate 2Tbit/s is not between 0bit/s and 1Tbit/s"
        );
        assert_eq!(
            said("gtp", "loss-threshold", "80%"),
            "loss-threshold 80% is not between 0% and 50%"
        );
        assert_eq!(
            said("tsunami", "report-interval", "2m"),
            "report-interval 120s is not between 1ms and 60s"
        );
    }
}
