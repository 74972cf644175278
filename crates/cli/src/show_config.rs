//! `--show-config`: the values in force and their origins.

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::config::Setting;

/// Positional arguments, and switches that no configuration file can set.
const NOT_SHOWN: [&str; 13] = [
    "locations",
    "path",
    "paths",
    "places",
    "mount_point",
    "host",
    "url",
    "value",
    "show_config",
    "partial_progress",
    "_partial",
    "compress",
    "watch_stdin",
];

pub(crate) fn is_asked(matches: &ArgMatches) -> bool {
    matches.try_get_one::<bool>("show_config").is_ok_and(|asked| asked == Some(&true))
}

/// The flags in force, one line each, with the origins of their values. A switch that is off has a
/// line only if a configuration file turns it off. `own` has the flags of the command line,
/// `matches` also those from the `settings` of configuration files.
pub(crate) fn in_force(
    matches: &ArgMatches,
    own: &ArgMatches,
    settings: &[Setting],
) -> Vec<String> {
    let mut lines = Vec::new();
    // clap names a group of flags after its struct, so the id starts with a capital.
    let is_flag = |id: &&str| !id.starts_with(char::is_uppercase) && !NOT_SHOWN.contains(id);
    for id in matches.ids().map(clap::Id::as_str).filter(is_flag) {
        let values = |of: &ArgMatches| -> Vec<String> {
            let raw = of.try_get_raw(id).ok().flatten().unwrap_or_default();
            raw.map(|value| value.to_string_lossy().into_owned()).collect()
        };
        let key = id.replace('_', "-");
        let is_given = own.value_source(id) == Some(ValueSource::CommandLine);
        let (all, given) = (values(matches), if is_given { values(own) } else { Vec::new() });
        let mut origins: Vec<&str> = if is_given { vec!["flag"] } else { Vec::new() };
        if all.len() > given.len() {
            let from_files = settings.iter().filter(|setting| setting.key == key);
            origins.extend(from_files.map(|setting| &setting.origin[..]));
        }
        let origins = if origins.is_empty() { "default".to_owned() } else { origins.join(", ") };
        match &all[..] {
            [off] if off == "false" || (key == "verbose" && off == "0") => {}
            [on] if on == "true" => lines.push(format!("--{key}  # {origins}")),
            all => {
                let words: Vec<String> =
                    all.iter().map(|value| format!("--{key}={value}")).collect();
                lines.push(format!("{}  # {origins}", words.join(" ")));
            }
        }
    }
    for Setting { key, origin, .. } in settings.iter().filter(|setting| setting.words.is_empty()) {
        lines.push(format!("(no --{key})  # {origin}"));
    }
    lines.sort();
    lines
}
