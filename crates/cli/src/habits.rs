//! Advice for flags that longhaul lacks but that scp, rsync, rclone or other servers have.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags of other tools, and the advice for them.
type Habits = [(&'static [&'static str], &'static str)];

const OF_CP: &Habits = &[
    (&["--timeout"], "use --stall 30s to give up after 30 s without progress"),
    (
        &["--delete", "--delete-before", "--delete-after", "--delete-during", "--delete-delay"],
        "cp never deletes; after the copy, longhaul sync --delete removes what the source lacks",
    ),
    (&["-C"], "data are not compressed; leave it out, or compress the files first"),
    (
        &["--transfers", "--checkers", "--multi-thread-streams"],
        "small files are sent together and one large file fills the path; leave it out",
    ),
    (
        &["--chown", "--usermap", "--groupmap"],
        "owners are not copied; files belong to the user who writes them",
    ),
    (
        &["-i", "-F", "-o", "-J", "--port"],
        "for options of ssh, use -e 'ssh -i KEY -J gate -p PORT'; for rsync's -i, use -v; rsync's \
         -o has no equivalent, because owners are not copied",
    ),
    (
        &["-l", "--links"],
        "symbolic links are always copied as links; leave it out; for scp's -l, use --bwlimit",
    ),
    (&["-4", "-6", "--ipv4", "--ipv6"], "use an address of that family, or -e 'ssh -4'"),
    (
        &["-t", "--times", "--perms", "-g", "--group", "--owner", "-D"],
        "-p keeps permissions and times; owners and devices are not copied",
    ),
    (
        &["-u", "--update"],
        "files of equal size and time are skipped, others are copied, whatever their age",
    ),
    (
        &["-L", "--copy-links", "-H", "--hard-links"],
        "symbolic links are copied as links, hard links as separate files; leave it out",
    ),
    (
        &["-A", "--acls", "-X", "--xattrs"],
        "ACLs and extended attributes are not copied; a tar archive keeps them",
    ),
    (&["-S", "--sparse"], "holes in files are always kept; leave it out"),
    (
        &["--inplace", "--append", "--append-verify", "--whole-file", "-W"],
        "a file gets its name only after all of it is verified; leave it out",
    ),
    (
        &["--size-only", "-I", "--ignore-times"],
        "files of equal size and time are skipped; --checksum compares their content instead",
    ),
    (
        &["--ignore-existing", "--existing"],
        "files that differ are replaced and missing ones are created; use --exclude to skip some",
    ),
    (&["--rsync-path"], "use --remote-path PATH, the path of longhaul on the remote host"),
    (
        &["-x", "--one-file-system"],
        "other file systems below a source are copied too; use --exclude to skip them",
    ),
    (
        &["-R", "--relative"],
        "only the last part of a source's path is kept; name the other folders in the destination",
    ),
    (
        &["-b", "--backup", "--backup-dir", "--suffix"],
        "a replaced file is not kept; to keep it, copy into another folder",
    ),
    (
        &["-k", "--copy-dirlinks", "-K", "--keep-dirlinks"],
        "links to folders are copied as links, and not followed at the destination",
    ),
    (&["-f", "--filter"], "use --exclude and --include; the first one that matches decides"),
    (
        &["-E", "--executability", "--chmod"],
        "-p keeps all permissions; without it, new files get the source's mode minus the umask",
    ),
    (
        &["--safe-links", "--copy-unsafe-links", "--munge-links"],
        "links are copied as they are and never followed; use --exclude to skip some",
    ),
    (&["--numeric-ids"], "owners and groups are not copied; leave it out"),
    (
        &["--itemize-changes", "--log-file", "--out-format", "--log-file-format"],
        "-v prints each created file, -vv also skipped ones; for programs, use --json",
    ),
    (&["--blocking-io", "-O", "-s"], "longhaul has no such option; leave it out"),
    (&["--partial-dir", "-T", "--temp-dir"], "partial files are kept in the destination folder"),
    (&["--stats", "--info", "--human-readable"], "use -v for details, --json for programs"),
    (
        &["--remove-source-files"],
        "longhaul never deletes sources; remove them after the copy has succeeded",
    ),
    (&["--daemon"], "cp is a client; to run a server, use longhaul serve"),
    (&["-3"], "the data always go directly between the two hosts; leave it out"),
];

const OF_SERVE: &Habits = &[
    (&["-p", "--port"], "use --listen :PORT, or --listen ADDRESS:PORT"),
    (
        &["-d", "-D", "--daemon", "--detach"],
        "serve stays in the foreground; run it with systemd, or with nohup and &",
    ),
    (
        &["--user", "--pass", "--password", "--auth"],
        "clients have ids, not passwords: use --allow ID; `longhaul id` on the client prints it",
    ),
    (
        &["--cert", "--key", "--tls"],
        "longhaul uses its own key; leave it out; for HTTPS, use --http-cert and --http-key",
    ),
    (&["-v", "--verbose"], "serve logs clients by default; --quiet turns that off"),
    (&["--path", "--dir", "--folder"], "use --root FOLDER"),
];

const OF_LS: &Habits = &[(
    &["-R", "--recursive", "-r"],
    "ls lists one folder; longhaul cp -rnv PATH . lists a tree without copying it",
)];

fn habits(subcommand: &str) -> &'static Habits {
    match subcommand {
        "cp" | "sync" => OF_CP,
        "serve" => OF_SERVE,
        "ls" => OF_LS,
        _ => &[],
    }
}

/// Advice for a negative number, which clap would offer to treat as a file.
fn negative(flag: &str) -> Option<&'static str> {
    let digit = flag.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit());
    digit.then_some("rates, sizes, times and ratios are never negative")
}

/// Whether `flag` could be `near` with a typing error: one letter, or up to a third of the letters,
/// may differ.
fn is_typing_error(flag: &str, near: &str) -> bool {
    let plain = |word: &str| word.trim_start_matches('-').to_owned();
    let (flag, near) = (plain(flag), plain(near));
    strsim::damerau_levenshtein(&flag, &near) * 3 <= flag.chars().count().max(3)
}

/// Adds advice about an unknown flag. Without advice, removes clap's suggestion if the suggested
/// flag is not similar to the unknown one.
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
    fn every_flag_of_another_tool_is_unknown_to_the_command_and_explained() {
        for (command, table) in [("cp", OF_CP), ("serve", OF_SERVE), ("ls", OF_LS)] {
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
    fn a_flag_is_suggested_only_if_it_is_similar_to_the_unknown_one() {
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
    fn a_negative_number_is_refused_as_negative() {
        for number in ["-1", "-1.5G"] {
            let words = ["longhaul", "cp", "--rate", number, "a", "h:b"];
            let error = Cli::command().try_get_matches_from(words).expect_err(number);
            let text = explain(error, "cp").to_string();
            assert!(text.contains("never negative") && !text.contains("-- -1"), "{text}");
        }
    }

    #[test]
    fn a_typing_error_in_a_flag_with_a_value_suggests_the_nearest_flag() {
        let words = ["longhaul", "cp", "--bwlimt=1M", "a", "h:b"];
        let error = Cli::command().try_get_matches_from(words).expect_err("it is unknown");
        assert!(explain(error, "cp").to_string().contains("--bwlimit"));
    }
}
