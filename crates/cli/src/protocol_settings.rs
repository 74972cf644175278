//! The settings of all protocols as flags.

use crate::error::{Error, ErrorKind};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use longhaul_proto::kind::Kind;
use longhaul_proto::registry::{self, Row};
use longhaul_proto::settings::{ProtocolOption, SettingError, Settings};

/// Settings that the user gave, for any protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProtocolSettings(Vec<(&'static str, Given)>);

/// A value for all sources, or for each named one; rates in bits a second, times in seconds.
#[derive(Clone, Debug, PartialEq)]
enum Given {
    /// For all sources; `None` for `auto`, the default.
    All(Option<f64>),
    /// For named sources; the others have the default.
    Each(Vec<(String, f64)>),
}

/// The source that a setting applies to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of<'a> {
    /// All sources without their own value.
    All,
    /// The source that has these names.
    Source(&'a [String]),
}

/// A flag, and its meaning for each protocol that has it.
struct Flag {
    name: &'static str,
    meanings: Vec<(&'static ProtocolOption, Vec<&'static str>)>,
}

/// Every setting once, in the order of the registry.
fn flags() -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for row in registry::all() {
        for option in row.options {
            let at = flags.iter().position(|flag| flag.name == option.name).unwrap_or_else(|| {
                flags.push(Flag { name: option.name, meanings: Vec::new() });
                flags.len() - 1
            });
            let meanings = &mut flags[at].meanings;
            match meanings.iter_mut().find(|(known, _)| *known == option) {
                Some((_, rows)) => rows.push(row.name),
                None => meanings.push((option, vec![row.name])),
            }
        }
    }
    flags
}

impl Flag {
    fn rows(&self) -> String {
        let names: Vec<_> = self.meanings.iter().flat_map(|(_, rows)| rows).copied().collect();
        names.join(", ")
    }

    /// The parser of the flag's value, the same for all protocols that have the flag.
    fn form(&self) -> Form {
        let (option, _) = self.meanings[0];
        Form { kind: option.kind, is_shared: option.is_shared }
    }

    fn help(&self) -> String {
        let one = |(option, rows): &(&'static ProtocolOption, Vec<&str>)| {
            let of = if self.meanings.len() > 1 { rows.join(", ") + ": " } else { String::new() };
            format!("{of}{} [{}]", option.help, range(option))
        };
        self.meanings.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

/// Range and default for help. The words of a switch or a choice are in the flag's value name.
pub(crate) fn range(option: &ProtocolOption) -> String {
    let default = format!("default: {}", shown(option, option.default));
    if matches!(option.kind, Kind::Switch | Kind::Choice(_)) {
        return default;
    }
    let [least, most] = [option.least, option.most].map(|value| shown(option, value));
    format!("{least} to {most}, {default}")
}

/// Whether a flag of `cp` is a protocol's setting.
pub(crate) fn is_setting(flag: &str) -> bool {
    registry::all().iter().any(|row| row.option(flag).is_ok())
}

/// Formats a value for help. A fraction without a unit is rounded to five significant digits. A
/// number without a unit and with more than six characters gets an exponent (`1e9`) if that is
/// shorter.
fn shown(option: &ProtocolOption, value: f64) -> String {
    if !matches!(option.kind, Kind::Number | Kind::Count) {
        return option.written(value);
    }
    let rounded = format!("{value:.4e}").parse().unwrap_or(value);
    let value = if value.fract() == 0.0 { value } else { rounded };
    let (plain, power) = (value.to_string(), format!("{value:e}"));
    if plain.len() > 6 && power.len() < plain.len() { power } else { plain }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    kind: Kind,
    /// Whether all sources must have the same value.
    is_shared: bool,
}

impl Form {
    /// Parses a value, `auto`, or values for sources: `h1=2,h2=1`.
    fn parse(self, text: &str) -> Result<Given, String> {
        if text == "auto" {
            return Ok(Given::All(None));
        }
        if !text.contains('=') {
            return self.kind.parse(text).map(|value| Given::All(Some(value)));
        }
        if self.is_shared {
            let what = "the setting applies to all sources: write only the value, without a host";
            return Err(what.to_owned());
        }
        let mut each: Vec<(String, f64)> = Vec::new();
        for part in text.split(',') {
            let (source, value) = part.rsplit_once('=').ok_or("expected SOURCE=VALUE")?;
            if each.iter().any(|(other, _)| other == source) {
                return Err(format!("{source} has two values"));
            }
            each.push((source.to_owned(), self.kind.parse(value)?));
        }
        Ok(Given::Each(each))
    }
}

impl Given {
    fn of(&self, source: Of<'_>) -> Option<f64> {
        match (self, source) {
            (Given::All(value), _) => *value,
            (Given::Each(_), Of::All) => None,
            (Given::Each(each), Of::Source(names)) => {
                let own = each.iter().find(|(name, _)| names.contains(name));
                own.map(|(_, value)| *value)
            }
        }
    }
}

impl ProtocolSettings {
    /// The settings of `row`'s protocol for a source. A value out of range is an error. A setting
    /// that this protocol lacks is ignored if it comes from the configuration file (`is_default`),
    /// and otherwise an error.
    pub(crate) fn of(
        &self,
        row: &'static Row,
        source: Of<'_>,
        is_default: impl Fn(&str) -> bool,
    ) -> Result<Settings, Error> {
        self.0.iter().try_fold(Settings::default(), |settings, (name, given)| {
            let (name, value) = (*name, given.of(source));
            let of_row = row.options.iter().find(|option| option.name == name);
            if of_row.is_none() && is_default(name) {
                return Ok(settings);
            }
            let value = value.or(of_row.map(|option| option.default)).unwrap_or_default();
            settings.with(row, name, value).map_err(|error| {
                let advice = match &error {
                    SettingError::Range { .. } => "choose a value in this range".to_owned(),
                    SettingError::Unknown { .. } => {
                        let having = flags().into_iter().find(|flag| flag.name == name);
                        let rows = having.map(|flag| flag.rows()).unwrap_or_default();
                        format!("--{name} belongs to --protocol {rows}")
                    }
                };
                Error::new(ErrorKind::Usage, error.to_string()).advise(advice)
            })
        })
    }

    /// The sources named in the settings, each after the flag that names it.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().flat_map(|(name, given)| {
            let each = match given {
                Given::All(_) => &[][..],
                Given::Each(each) => each,
            };
            each.iter().map(|(source, _)| (*name, source.as_str()))
        })
    }

    /// The first given flag that is not a default of the configuration file.
    pub(crate) fn first(&self, is_default: impl Fn(&str) -> bool) -> Option<&'static str> {
        self.0.iter().map(|(name, _)| *name).find(|name| !is_default(name))
    }
}

impl Args for ProtocolSettings {
    fn augment_args(command: Command) -> Command {
        let args = flags().into_iter().map(|flag| {
            let form = flag.form();
            let arg = Arg::new(flag.name).long(flag.name);
            let arg = arg.value_name(form.kind.value_name());
            let arg = arg.value_parser(move |text: &str| form.parse(text));
            // The help of `cp` omits the settings: `longhaul help cp PROTOCOL` and the manual list
            // them. This is not done by clap's `hide`, because a configuration file cannot set
            // hidden flags.
            let arg = arg.help(flag.help()).hide_short_help(true).hide_long_help(true);
            arg.help_heading(format!("Settings of --protocol {}", flag.rows()))
        });
        command.args(args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ProtocolSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = ProtocolSettings::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.clear();
        for Flag { name, .. } in flags() {
            let value = matches.try_get_one::<Given>(name);
            let value = value
                .map_err(|error| clap::Error::raw(clap::error::ErrorKind::InvalidValue, error))?;
            self.0.extend(value.map(|value| (name, value.clone())));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_need_their_units_and_shared_settings_are_not_per_source() {
        let row = registry::of_many();
        for rate in ["940M", "940Mbit/s", "0.94G", "117.5MB/s"] {
            let given = given(&["--receive-rate", rate]);
            let settings = given.of(row, Of::All, |_| false).unwrap();
            assert_eq!(settings.iter().collect::<Vec<_>>(), [("receive-rate", 940e6)], "{rate}");
        }
        for option in row.options {
            let text = option.written(option.most);
            let refused = flag(option.name).form().parse(&format!("h1={text}")).err();
            assert_eq!(refused.is_some(), option.is_shared, "{}", option.name);
            assert!(refused.is_none_or(|error| error.contains("applies to all sources")));
        }
        assert!(["receive-rate", "others"].iter().all(|name| flag(name).form().is_shared));
        for (name, bare, form) in [
            ("receive-rate", "940", "950Mbit/s"),
            ("report-interval", "0.35", "100ms"),
            ("loss-threshold", "0.5", "0.5%"),
            ("chunk", "100", "64MiB"),
        ] {
            let error = flag(name).form().parse(bare).unwrap_err();
            assert!(error.contains("has no unit") && error.contains(form), "{error}");
        }
        assert_eq!(flag("loss-threshold").form().parse("0.5%"), Ok(Given::All(Some(0.005))));
        assert_eq!(flag("report-interval").form().parse("350ms"), Ok(Given::All(Some(0.35))));
        assert!(flag("weight").form().parse("2M").is_err());
    }

    fn flag(name: &str) -> Flag {
        flags().into_iter().find(|flag| flag.name == name).unwrap()
    }

    fn given(words: &[&str]) -> ProtocolSettings {
        let command = ProtocolSettings::augment_args(Command::new("cp"));
        let matches = command.try_get_matches_from([&["cp"], words].concat()).unwrap();
        ProtocolSettings::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn each_setting_is_one_flag_and_reads_numbers_and_auto() {
        let rbudp = registry::find("rbudp").unwrap();
        let settings = given(&["--tail-copies", "3"]).of(rbudp, Of::All, |_| false).unwrap();
        assert_eq!(settings.iter().collect::<Vec<_>>(), [("tail-copies", 3.0)]);
        let error = given(&["--tail-copies=99"]).of(rbudp, Of::All, |_| false).unwrap_err();
        assert!(error.what.contains("not a whole number between 1 and 8"), "{error:?}");
        // The default of `--burst` depends on the protocol.
        for (name, default) in [("fobs-table", 25.0), ("netblt", 0.0)] {
            let row = registry::find(name).unwrap();
            let settings = given(&["--burst=auto"]).of(row, Of::All, |_| false).unwrap();
            assert_eq!(settings.iter().collect::<Vec<_>>(), [("burst", default)]);
        }
        let error = given(&["--burst=auto"]).of(rbudp, Of::All, |_| false).unwrap_err();
        assert_eq!(
            error.advice.as_deref(),
            Some("--burst belongs to --protocol fobs-table, netblt")
        );
        let mixed = given(&["--burst=9", "--tail-copies=1"]);
        let settings = mixed.of(rbudp, Of::All, |name| name == "burst").unwrap();
        assert_eq!(settings.iter().collect::<Vec<_>>(), [("tail-copies", 1.0)]);
        assert_eq!(mixed.first(|name| name == "burst"), Some("tail-copies"));
        let weight = flag("weight").form();
        assert!(weight.parse("inf").is_err() && weight.parse("x").is_err());
    }

    #[test]
    fn a_setting_may_differ_by_source_and_be_a_percentage() {
        let row = registry::of_many();
        let given = given(&["--weight", "h1=2,::1=0.5", "--receive-share=85%"]);
        assert_eq!(given.sources().collect::<Vec<_>>(), [("weight", "h1"), ("weight", "::1")]);
        let of = |source: Of<'_>| {
            let settings = given.of(row, source, |_| false).unwrap();
            settings.iter().collect::<Vec<_>>()
        };
        let names = ["h1".to_owned(), "me@h1".to_owned()];
        assert_eq!(of(Of::Source(&names)), [("receive-share", 0.85), ("weight", 2.0)]);
        assert_eq!(of(Of::All), [("receive-share", 0.85), ("weight", 1.0)]);
        let weight = flag("weight").form();
        assert!(weight.parse("h1=").is_err() && weight.parse("2,h1=1").is_err());
        assert!(weight.parse("h1=2,h1=3").is_err());
    }

    #[test]
    fn each_meaning_of_a_flag_is_listed_with_its_range() {
        for row in registry::all() {
            for option in row.options {
                let flag = flags().into_iter().find(|flag| flag.name == option.name).unwrap();
                assert!(flag.rows().split(", ").any(|name| name == row.name));
                let (range, help) = (range(option), flag.help());
                assert!(help.contains(option.help) && help.contains(&range), "{help}");
                assert!(is_setting(option.name) && !is_setting("recursive"));
            }
        }
    }

    #[test]
    fn help_rounds_fractions_and_writes_an_exponent_if_that_is_shorter() {
        let option = |name| registry::find("tsunami").unwrap().option(name).unwrap();
        let number = [25.0 / 24.0, 1e9, 4_294_967_295.0, 1.2e-5, 0.001, 1e4]
            .map(|value| shown(option("slow-down"), value));
        assert_eq!(number, ["1.0417", "1e9", "4294967295", "1.2e-5", "0.001", "10000"]);
        assert_eq!(shown(option("error-rate"), 0.079), "7.9%");
    }
}
