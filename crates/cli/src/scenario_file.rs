//! Reads scenario files and the traces that they name.

use std::fs::{File, FileType};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::error::{Error, ErrorKind};
use longhaul_testbed::scenario::{Reading, Scenario};

/// Size limit of a scenario, in bytes.
const MOST_SCENARIO: u64 = 64 << 20;
/// Size limit of a trace, in bytes.
const MOST_TRACE: u64 = 64 << 20;

/// Reads a scenario from a file or a pipe.
pub(crate) fn text(path: &Path) -> Result<String, Error> {
    let fits = |kind: FileType| kind.is_file() || kind.is_fifo();
    read(path, MOST_SCENARIO, fits).map_err(|why| {
        Error::new(ErrorKind::LocalFile, format!("{} cannot be read: {why}", path.display()))
    })
}

/// `settings` override keys of the scenario. Paths of traces are relative to the file's folder.
pub(crate) fn parse(
    path: &Path,
    text: &str,
    settings: &[(String, String)],
) -> Result<Scenario, Error> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let folder = path.parent().unwrap_or(Path::new(""));
    // A scenario from somebody else could name a pipe that blocks forever, so pipes are refused.
    let trace = |file: &str| read(&folder.join(file), MOST_TRACE, |kind| kind.is_file());
    let reading = Reading { settings, trace: &trace };
    Scenario::parse(&name, text, &reading).map_err(|error| {
        // The line in `error` has the file's value, so the settings must be named too.
        let of: String = settings.iter().map(|(key, value)| format!(", {key}={value}")).collect();
        Error::new(ErrorKind::Usage, format!("{}{of}: {error}", path.display()))
    })
}

/// The file must have at most `most` bytes, and its type must fit.
fn read(path: &Path, most: u64, fits: impl Fn(FileType) -> bool) -> Result<String, String> {
    let kind = std::fs::metadata(path).map_err(|error| error.to_string())?.file_type();
    if !fits(kind) {
        return Err(format!("it is {}, not a file", named(kind)));
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    // Check the length before the encoding: the limit may cut a character.
    if bytes.len() as u64 > most {
        return Err(format!("it has more than {} MiB", most >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

fn named(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_limit_is_refused_without_reading_it_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let any = |_: FileType| true;
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(read(&path, 4, any).as_deref(), Ok("1234"));
        assert!(read(&path, 3, any).unwrap_err().contains("more than"));
        std::fs::write(&path, "aéé").unwrap();
        assert!(read(&path, 1, any).unwrap_err().contains("more than"));
        assert_eq!(read(&path, 5, any).as_deref(), Ok("aéé"));
        std::fs::write(&path, [0xff]).unwrap();
        assert!(read(&path, 4, any).unwrap_err().contains("not UTF-8"));
        assert!(
            read(Path::new("/dev/zero"), 1 << 20, any).unwrap_err().contains("more than 1 MiB")
        );
    }

    #[test]
    fn the_error_for_a_scenario_that_is_not_a_file_names_its_type() {
        let folder = tempfile::tempdir().unwrap();
        let error = text(folder.path()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::LocalFile);
        assert!(error.what.ends_with("it is a folder, not a file"), "{}", error.what);
        assert!(text(Path::new("/dev/zero")).unwrap_err().what.ends_with("a device, not a file"));
        let scenario = "[topology]\nkind = \"pair\"\nlink = { loss = { gaps = \"/dev/zero\" } }";
        let error = parse(&folder.path().join("a.toml"), scenario, &[]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        assert!(error.what.contains("line 3: /dev/zero: it is a device"), "{}", error.what);
    }

    #[test]
    fn the_error_for_an_invalid_setting_names_its_key_and_value() {
        let scenario = "[topology]\nkind = \"pair\"\n\n[[flow]]\nname = \"copy\"\nfrom = \"a\"\n\
            to = \"b\"\nprotocol = \"rbudp\"\nsize = \"1MB\"\nrate = \"900M\"\n";
        let settings = [("flow.copy.rate".to_owned(), "0".to_owned())];
        assert!(parse(Path::new("wan.toml"), scenario, &[]).is_ok());
        let error = parse(Path::new("wan.toml"), scenario, &settings).unwrap_err();
        let expected = "wan.toml, flow.copy.rate=0: line 4: flow copy has a rate of zero";
        assert_eq!(error.what, expected);
    }
}
