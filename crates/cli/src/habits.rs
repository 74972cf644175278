//! Flags of scp, rsync, rclone and of other servers that `longhaul cp` and `serve` do not have:
//! what to write instead, or why not.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags that fingers know, and what is said of them.
type Habits = [(&'static [&'static str], &'static str)];

/// Of a copy.
const OF_CP: &Habits = &[
    (&["--timeout"], "write --stall 30s: how long without progress before a copy is given up"),
    (
        &["--delete", "--delete-before", "--delete-after", "--delete-during", "--delete-delay"],
        "cp never deletes; longhaul sync --delete removes what only the destination has, once all \
         of the copy is there",
    ),
    (&["-C"], "data are not compressed on the way; leave it out, or compress the files first"),
    (
        &["--transfers", "--checkers", "--multi-thread-streams"],
        "small files go together and large ones fill the path; leave it out",
    ),
    (
        &["--chown", "--usermap", "--groupmap"],
        "owners are not copied; files belong to the user that writes them",
    ),
    (
        &["-i", "-F", "-o", "-J", "--port"],
        "options of ssh go into the command: -e 'ssh -i KEY -J gate -p PORT'; rsync's -i is -v, \
         its -o is not here: owners are not copied",
    ),
    (
        &["-l", "--links"],
        "symbolic links are always copied as links; leave it out; a limit, as scp's -l, is \
         --bwlimit",
    ),
    (&["-4", "-6", "--ipv4", "--ipv6"], "name an address of that family, or -e 'ssh -4'"),
    (
        &["-t", "--times", "--perms", "-g", "--group", "--owner", "-D"],
        "-p keeps permissions and times; owners and devices are not copied",
    ),
    (
        &["-u", "--update"],
        "files of equal size and time are left alone, others are copied; there is no choice by age",
    ),
    (
        &["-L", "--copy-links", "-H", "--hard-links"],
        "symbolic links are copied as links, hard links as files of their own; leave it out",
    ),
    (
        &["-A", "--acls", "-X", "--xattrs"],
        "no ACLs and no extended attributes are copied; an archive of the files keeps them",
    ),
    (&["-S", "--sparse"], "files with holes keep them always; leave it out"),
    (
        &["--inplace", "--append", "--append-verify", "--whole-file", "-W"],
        "a file gets its name when all of it is verified, never before; leave it out",
    ),
    (
        &["--size-only", "-I", "--ignore-times"],
        "files of equal size and time are left alone; --checksum compares their content instead",
    ),
    (
        &["--ignore-existing", "--existing"],
        "files that are there and differ are replaced, others are made; name what to leave out \
         with --exclude",
    ),
    (&["--rsync-path"], "write --remote-path PATH: where longhaul is on the far side of ssh"),
    (
        &["-x", "--one-file-system"],
        "other file systems below a source are copied too; leave them out with --exclude",
    ),
    (
        &["-R", "--relative"],
        "a source goes below the destination by its last name; name the rest in the destination",
    ),
    (
        &["-b", "--backup", "--backup-dir", "--suffix"],
        "a file that is replaced is kept nowhere; copy into another folder, and compare there",
    ),
    (
        &["-k", "--copy-dirlinks", "-K", "--keep-dirlinks"],
        "links to folders are copied as links, and not followed at the destination",
    ),
    (&["-f", "--filter"], "write --exclude and --include; the first one that matches decides"),
    (
        &["-E", "--executability", "--chmod"],
        "-p keeps all permissions; without it new files get those of the source under the umask",
    ),
    (
        &["--safe-links", "--copy-unsafe-links", "--munge-links"],
        "links are copied as they are and never followed; name those to leave out with --exclude",
    ),
    (&["--numeric-ids"], "owners and groups are not copied; leave it out"),
    (
        &["--itemize-changes", "--log-file", "--out-format", "--log-file-format"],
        "-v names each file as it is made, -vv those that are skipped; --json tells programs",
    ),
    (&["--blocking-io", "-O", "-s"], "there is no such choice here; leave it out"),
    (&["--partial-dir", "-T", "--temp-dir"], "what is unfinished waits beside its destination"),
    (&["--stats", "--info", "--human-readable"], "-v tells more, --json tells programs"),
    (
        &["--remove-source-files"],
        "longhaul never deletes; remove them once the copy has ended well",
    ),
    (&["-3"], "copies are between this host and others; run longhaul on one of the two"),
];

/// Of a server.
const OF_SERVE: &Habits = &[
    (&["-p", "--port"], "write --listen :PORT, or --listen ADDRESS:PORT"),
    (
        &["-d", "-D", "--daemon", "--detach"],
        "serve stays in the foreground; systemd, or nohup with &, keeps it in the background",
    ),
    (
        &["--user", "--pass", "--password", "--auth"],
        "ids stand for users: write --allow ID, which `longhaul id` prints at the client's",
    ),
    (&["--cert", "--key", "--tls"], "each host has a key of its own; leave it out"),
    (&["-v", "--verbose"], "what clients do is told without it; --quiet hides it"),
    (&["--path", "--dir", "--folder"], "write --root FOLDER"),
];

fn habits(subcommand: &str) -> &'static Habits {
    match subcommand {
        "cp" | "sync" => OF_CP,
        "serve" => OF_SERVE,
        _ => &[],
    }
}

/// What is said of a flag that is a number: clap would offer to take it for a file.
fn negative(flag: &str) -> Option<&'static str> {
    let digit = flag.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit());
    digit.then_some("rates, sizes, times and shares are never negative")
}

/// Whether `near` is `flag` with a typing error: at most one letter in three is wrong.
fn is_typing_error(flag: &str, near: &str) -> bool {
    let plain = |word: &str| word.trim_start_matches('-').to_owned();
    let (flag, near) = (plain(flag), plain(near));
    strsim::damerau_levenshtein(&flag, &near) * 3 <= flag.chars().count().max(3)
}

/// Adds to an error about an unknown flag of `subcommand` what such a flag is called here, and
/// takes away a name that is not near.
pub(crate) fn explain(mut error: clap::Error, subcommand: &str) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    let name = flag.split('=').next().unwrap_or_default();
    let habit = || Some(habits(subcommand).iter().find(|(flags, _)| flags.contains(&name))?.1);
    let Some(said) = habit().or_else(|| negative(name)) else {
        let near = match error.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(near)) => is_typing_error(name, near),
            _ => true,
        };
        if !near {
            error.remove(ContextKind::SuggestedArg);
        }
        return error;
    };
    for near in [ContextKind::SuggestedArg, ContextKind::TrailingArg, ContextKind::Suggested] {
        error.remove(near);
    }
    let said = vec![said.into()];
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(said));
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_habit_is_unknown_to_its_command_and_is_explained() {
        for (command, table) in [("cp", OF_CP), ("serve", OF_SERVE)] {
            let each = table.iter().flat_map(|(flags, said)| flags.iter().map(move |f| (f, said)));
            for (flag, said) in each {
                let words = ["longhaul", command, flag, "a", "h:b"];
                let error = Cli::command().try_get_matches_from(words).expect_err(flag);
                let text = explain(error, command).to_string();
                let first = said.split_whitespace().next().expect("it has words");
                assert!(text.contains(first) && text.contains(flag), "{text}");
                assert!(!text.contains("similar argument"), "{text}");
            }
        }
    }

    #[test]
    fn a_flag_that_is_near_to_none_is_offered_none() {
        let said = |words: &[&str]| {
            let error = Cli::command().try_get_matches_from(words).expect_err("it is unknown");
            explain(error, words[1]).to_string()
        };
        for words in [["longhaul", "cp", "--transform"], ["longhaul", "serve", "--wrong"]] {
            assert!(!said(&words).contains("similar"), "{}", said(&words));
        }
        assert!(said(&["longhaul", "serve", "--alow"]).contains("'--allow'"));
    }

    #[test]
    fn a_negative_number_is_told_to_be_one() {
        for number in ["-1", "-1.5G"] {
            let words = ["longhaul", "cp", "--rate", number, "a", "h:b"];
            let error = Cli::command().try_get_matches_from(words).expect_err(number);
            let text = explain(error, "cp").to_string();
            assert!(text.contains("never negative") && !text.contains("-- -1"), "{text}");
        }
    }

    #[test]
    fn other_mistakes_keep_the_nearest_name() {
        let words = ["longhaul", "cp", "--bwlimt=1M", "a", "h:b"];
        let error = Cli::command().try_get_matches_from(words).expect_err("it is unknown");
        assert!(explain(error, "cp").to_string().contains("--bwlimit"));
    }
}
