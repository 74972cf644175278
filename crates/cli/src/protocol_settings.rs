//! The settings of all protocols as flags, made from the registry.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use longhaul_proto::registry::{self, ProtocolOption, Row};
use longhaul_proto::settings::{SettingError, Settings};
use longhaul_transfer::error::{Class, Error};

/// What the user set, whichever protocol has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProtocolSettings(Vec<(&'static str, f64)>);

/// Every setting once, and the protocols that have it.
fn options() -> Vec<(&'static ProtocolOption, Vec<&'static str>)> {
    let mut options: Vec<(&'static ProtocolOption, Vec<&'static str>)> = Vec::new();
    for row in registry::all() {
        for option in row.options {
            match options.iter_mut().find(|(known, _)| known.name == option.name) {
                Some((_, rows)) => rows.push(row.name),
                None => options.push((option, vec![row.name])),
            }
        }
    }
    options
}

/// Reads a number; `auto` is nought, where a setting has that.
fn parse(text: &str) -> Result<f64, String> {
    let number = if text == "auto" { Ok(0.0) } else { text.parse() };
    let number: f64 = number.map_err(|_| "expected a number".to_owned())?;
    if number.is_finite() { Ok(number) } else { Err("expected a finite number".to_owned()) }
}

impl ProtocolSettings {
    /// The settings for `row`'s protocol.
    ///
    /// # Errors
    /// A setting that this protocol does not have, or a number out of its range.
    pub(crate) fn of(&self, row: &'static Row) -> Result<Settings, Error> {
        self.0.iter().try_fold(Settings::default(), |settings, &(name, value)| {
            settings.with(row, name, value).map_err(|error| {
                let advice = match &error {
                    SettingError::Range { .. } => "choose a number within".to_owned(),
                    SettingError::Unknown { .. } => {
                        let having = options().into_iter().find(|(option, _)| option.name == name);
                        let rows = having.map(|(_, rows)| rows.join(", ")).unwrap_or_default();
                        format!("--{name} belongs to --protocol {rows}")
                    }
                };
                Error::new(Class::Usage, error.to_string()).advise(advice)
            })
        })
    }

    /// The first flag that was given.
    pub(crate) fn first(&self) -> Option<&'static str> {
        self.0.first().map(|(name, _)| *name)
    }
}

impl Args for ProtocolSettings {
    fn augment_args(command: Command) -> Command {
        let args = options().into_iter().map(|(option, rows)| {
            let ProtocolOption { name, help, least, most, default } = option;
            let auto = if *least == 0.0 { ", 0 is auto" } else { "" };
            let help = format!(
                "{}: {help} [{least} to {most}{auto}, default: {default}]",
                rows.join(", ")
            );
            let arg = Arg::new(*name).long(*name).value_name("NUMBER").value_parser(parse);
            arg.help(help).help_heading("Settings of protocols")
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
        for (option, _) in options() {
            let value = matches.try_get_one::<f64>(option.name);
            let value = value.map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error))?;
            self.0.extend(value.map(|value| (option.name, *value)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_one_flag_and_reads_numbers_and_auto() {
        let command = ProtocolSettings::augment_args(Command::new("cp"));
        let matches = command.try_get_matches_from(["cp", "--tail-copies", "3"]).unwrap();
        let given = ProtocolSettings::from_arg_matches(&matches).unwrap();
        let row = registry::find("rbudp").unwrap();
        let settings = given.of(row).unwrap();
        assert_eq!(settings.iter().collect::<Vec<_>>(), [("tail-copies", 3.0)]);
        let wrong = ProtocolSettings(vec![("tail-copies", 99.0)]);
        assert!(wrong.of(row).unwrap_err().what.contains("not within"));
        assert_eq!(parse("auto"), Ok(0.0));
        assert!(parse("inf").is_err() && parse("x").is_err());
    }
}
