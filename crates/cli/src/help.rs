//! Short help of `cp` and `sync` on one screen, and `help cp PROTOCOL`.

use std::ffi::OsString;
use std::fmt::Write;

use crate::error::{Error, ErrorKind};
use longhaul_proto::registry::{self, Row};
use longhaul_proto::settings::ProtocolOption;

use crate::cp::{EXAMPLES, TCP, protocols};
use crate::protocol_settings::range;
use crate::{console, exit, sync};

/// The most used flags of `cp`, each with a short help.
const USUAL: [(&str, &str); 10] = [
    ("-r, --recursive", "copy folders with their contents"),
    ("-a, --archive", "copy folders, with permissions and times"),
    ("-n, --dry-run", "print what would be created, and copy nothing"),
    ("-P", "show progress"),
    ("--exclude <GLOB>", "skip names that match"),
    ("--rate <RATE>", "send at this rate and ignore loss"),
    ("--bwlimit <RATE>", "limit the rate that longhaul searches for"),
    ("--protocol <NAME>", "protocol that carries the data"),
    ("--accept-new", "accept a new server without asking"),
    ("--json", "write events as JSON"),
];

/// The most used flags of `sync`, each with a short help.
const OF_SYNC: [(&str, &str); 6] = [
    ("--delete", "delete what the source lacks, after verification"),
    ("--max-delete <COUNT>", "refuse if more names would be deleted"),
    ("-n, --dry-run", "print what would be created and deleted"),
    ("-v, --verbose", "print each file that is copied or deleted"),
    ("--exclude <GLOB>", "skip names that match, and do not delete them"),
    ("-c, --checksum", "compare by content, not by size and time"),
];

/// Width of a page, in columns.
const WIDTH: usize = 80;

/// Prints the page of `longhaul help cp [PROTOCOL]` or `longhaul help sync`; `None` for other
/// arguments, which clap handles.
pub(crate) fn answer(argv: &[OsString]) -> Option<u8> {
    let words: Option<Vec<&str>> = argv.iter().skip(1).map(|word| word.to_str()).collect();
    let page = match words?.as_slice() {
        ["help", "cp"] => Ok(of_cp()),
        ["help", "sync"] => Ok(of_sync()),
        ["help", "cp", name] if !name.starts_with('-') => of_protocol(name),
        _ => return None,
    };
    Some(match page {
        Ok(text) => {
            console::out(text.trim_end());
            exit::DONE
        }
        Err(error) => exit::fail(&error),
    })
}

fn names() -> String {
    protocols().join(", ")
}

fn of_cp() -> String {
    let ends = [
        "To resume a copy, run the same command again.".to_owned(),
        "All flags: longhaul cp --help, longhaul man cp".to_owned(),
        format!("Settings of a protocol: longhaul help cp NAME, where NAME is one of {}", names()),
    ];
    usual(EXAMPLES, &USUAL, &ends)
}

fn of_sync() -> String {
    let ends = [
        "As in rsync, run42 is copied into the destination, and run42/ means its contents. Times \
         and permissions are kept, as with cp -a. Without --delete nothing is deleted."
            .to_owned(),
        "All flags of cp work: longhaul sync --help, longhaul man sync".to_owned(),
    ];
    usual(sync::EXAMPLES, &OF_SYNC, &ends)
}

/// A page of examples, usual flags and further notes.
fn usual(examples: &str, flags: &[(&str, &str)], ends: &[String]) -> String {
    let mut page = format!("{examples}\nThe usual flags:\n");
    let column = flags.iter().map(|(flag, _)| flag.len() + 2).fold(20, usize::max);
    for (flag, what) in flags {
        let _ = writeln!(page, "  {flag:<column$}{what}");
    }
    page.push('\n');
    for end in ends {
        page.push_str(&wrapped(end, 0));
    }
    page
}

fn of_protocol(name: &str) -> Result<String, Error> {
    if name == TCP {
        let streams = "Parallel TCP connections. --streams sets their number; no other settings.";
        return Ok(wrapped(streams, 0));
    }
    let row = registry::find(name).ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("there is no protocol '{name}'"))
            .advise(format!("choose one of {}", names()))
    })?;
    Ok(page(row))
}

fn page(row: &Row) -> String {
    let mut page = format!("{} (--protocol {})\n\n", row.title, row.name);
    page.push_str(&wrapped(row.summary, 0));
    page.push_str("\nSettings:\n");
    for option in row.options {
        let ProtocolOption { name, kind, .. } = option;
        let _ = writeln!(page, "  --{name} <{}>  [{}]", kind.value_name(), range(option));
        page.push_str(&wrapped(option.help, 6));
    }
    let rest = [
        "The value auto means the default. Scenarios and config.toml take the same names and \
         values. To set a value for one of several sources, write --NAME SOURCE=VALUE,…"
            .to_owned(),
        shared(row),
    ];
    page.push('\n');
    for text in rest.iter().filter(|text| !text.is_empty()) {
        page.push_str(&wrapped(text, 0));
    }
    page
}

/// The settings that apply to all sources together.
fn shared(row: &Row) -> String {
    let shared = row
        .options
        .iter()
        .filter(|option| option.is_shared)
        .map(|option| format!("--{}", option.name));
    let shared: Vec<String> = shared.collect();
    if shared.is_empty() {
        return String::new();
    }
    format!("These apply to all sources together: {}.", shared.join(", "))
}

/// Wraps `text` to the page's width, with `indent` spaces before each line.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let wide = word.chars().count();
        if column > 0 && column + 1 + wide > WIDTH {
            lines.push('\n');
            column = 0;
        }
        if column == 0 {
            lines.extend(core::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += wide;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn the_pages_of_cp_and_sync_fit_on_a_screen_and_begin_with_examples() {
        for (page, name) in [(of_cp(), "cp"), (of_sync(), "sync")] {
            assert!(page.starts_with(&format!("Examples:\n  longhaul {name} ")), "{page}");
            assert!(page.lines().count() <= 24, "{page}");
            assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
        }
    }

    #[test]
    fn every_flag_of_the_short_help_exists_in_its_subcommand() {
        let root = Cli::command();
        let of_cp = USUAL.iter().map(|(flag, _)| ("cp", flag));
        for (name, flag) in of_cp.chain(OF_SYNC.iter().map(|(flag, _)| ("sync", flag))) {
            let cp = root.find_subcommand(name).expect("it is a subcommand");
            let word = flag.split([',', ' ']).next().unwrap_or_default().trim_start_matches('-');
            let is_it = |arg: &clap::Arg| {
                arg.get_long() == Some(word)
                    || arg.get_short().is_some_and(|short| word == short.to_string())
            };
            assert!(cp.get_arguments().any(is_it), "{flag}");
        }
    }

    #[test]
    fn the_page_of_a_protocol_has_each_setting_with_type_range_and_default() {
        for row in registry::all() {
            let page = of_protocol(row.name).unwrap();
            for option in row.options {
                assert!(page.contains(&format!("--{} <", option.name)), "{page}");
            }
            assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
        }
        let gtp = of_protocol(registry::of_many().name).unwrap();
        for line in [
            "  --receive-rate <RATE>  [0bit/s to 1Tbit/s, default: 0bit/s]\n",
            "  --loss-threshold <PERCENT>  [0% to 50%, default: 0.5%]\n",
            "  --own-loss <off|on>  [default: on]\n",
        ] {
            assert!(gtp.contains(line), "{line} in {gtp}");
        }
        assert!(of_protocol(TCP).unwrap().contains("--streams"));
        let error = of_protocol("udt").unwrap_err();
        assert!(error.advice.unwrap().contains("rbudp, fobs"));
    }

    #[test]
    fn other_command_lines_are_left_to_the_parser() {
        for line in [&["longhaul", "help"][..], &["longhaul", "help", "serve"], &["longhaul", "cp"]]
        {
            let argv: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert_eq!(answer(&argv), None, "{line:?}");
        }
    }
}
