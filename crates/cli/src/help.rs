//! `longhaul help cp`, `help sync` and `help cp PROTOCOL`: pages of one screen, beside what the
//! parser prints of every flag.

use std::ffi::OsString;
use std::fmt::Write;

use crate::error::{Error, ErrorKind};
use longhaul_proto::registry::{self, Row};
use longhaul_proto::settings::ProtocolOption;

use crate::cp::{EXAMPLES, TCP, protocols};
use crate::protocol_settings::range;
use crate::{console, exit, sync};

/// The flags of most copies, with what fits on their line.
const USUAL: [(&str, &str); 10] = [
    ("-r, --recursive", "folders with all that is in them"),
    ("-a, --archive", "the same, with permissions and times"),
    ("-n, --dry-run", "name what would be made, and copy nothing"),
    ("-P", "show a bar"),
    ("--exclude <GLOB>", "leave out what matches"),
    ("--rate <RATE>", "send at this rate and never react to loss"),
    ("--bwlimit <RATE>", "find the rate, up to this one"),
    ("--protocol <NAME>", "what carries the data"),
    ("--accept-new", "accept a server that was never seen, without asking"),
    ("--json", "write events as JSON"),
];

/// The flags of most calls of `sync`, beyond those of `cp`.
const OF_SYNC: [(&str, &str); 6] = [
    ("--delete", "delete what the source lacks, once all is verified"),
    ("--max-delete <COUNT>", "refuse if more names would be deleted"),
    ("-n, --dry-run", "name what would be made and deleted, and do nothing"),
    ("-v, --verbose", "name each file that is copied or deleted"),
    ("--exclude <GLOB>", "leave out what matches, and do not delete it"),
    ("-c, --checksum", "compare by content, not by size and time"),
];

/// Columns of a page.
const WIDTH: usize = 80;

/// Answers `longhaul help cp [PROTOCOL]` with the exit status; nothing for other words, which are
/// the parser's.
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

/// The names that `--protocol` takes.
fn names() -> String {
    protocols().join(", ")
}

fn of_cp() -> String {
    let ends = [
        "The same command again goes on where a copy stopped.".to_owned(),
        "All flags: longhaul cp --help, longhaul man cp".to_owned(),
        format!("Settings of a protocol: longhaul help cp NAME, of {}", names()),
    ];
    usual(EXAMPLES, &USUAL, &ends)
}

fn of_sync() -> String {
    let ends = [
        "As in rsync, run42 goes into the destination, and run42/ stands for what is in it. Times \
         and permissions are kept, as with cp -a. Without --delete nothing is deleted."
            .to_owned(),
        "All flags of cp work: longhaul sync --help, longhaul man sync".to_owned(),
    ];
    usual(sync::EXAMPLES, &OF_SYNC, &ends)
}

/// A page of examples, usual flags and what else to know.
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
        let streams = "Parallel TCP connections. --streams says how many; there are no settings.";
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
        "auto is the default. Scenarios and config.toml take the same names and values. \
         A setting for one of several sources: --NAME SOURCE=VALUE,…"
            .to_owned(),
        shared(row),
    ];
    page.push('\n');
    for text in rest.iter().filter(|text| !text.is_empty()) {
        page.push_str(&wrapped(text, 0));
    }
    page
}

/// Which settings are of this host, and so take no source.
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
    format!("One for all sources: {}.", shared.join(", "))
}

/// `text` in lines of the page's width, each behind so many spaces.
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
    fn every_usual_flag_is_one_of_its_subcommand() {
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
    fn other_words_are_the_parsers() {
        for line in [&["longhaul", "help"][..], &["longhaul", "help", "serve"], &["longhaul", "cp"]]
        {
            let argv: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert_eq!(answer(&argv), None, "{line:?}");
        }
    }
}
