//! docs/wire.md lists every field of every message of the source.

use std::env;
use std::fmt::Write;
use std::fs;

use super::{Text, files, root};

const PAGE: &str = "docs/wire.md";
const MARK: &str = "<!-- The text below is generated from the source; a test compares it. -->\n";
/// If this variable is set, the test writes the page.
const WRITE: &str = "LONGHAUL_WRITE_WIRE";

/// The sources of messages in the order of the page, with their headings.
const SOURCES: [(&str, &str); 18] = [
    ("crates/session/src/hello.rs", "The first message in each direction"),
    ("crates/session/src/frame.rs", "The last message"),
    ("crates/transfer/src/control/mod.rs", "Frames of the control stream"),
    ("crates/transfer/src/control/request.rs", "The request"),
    ("crates/transfer/src/control/transfer.rs", "A transfer under way"),
    ("crates/transfer/src/control/ranges.rs", "Ranges"),
    ("crates/files/src/manifest/wire.rs", "The manifest"),
    ("crates/transfer/src/control/survey.rs", "A survey"),
    ("crates/transfer/src/control/probe.rs", "A probe"),
    ("crates/transfer/src/control/list.rs", "A listing"),
    ("crates/transfer/src/control/file.rs", "Ranges of a remote file"),
    ("crates/transfer/src/control/server_status.rs", "The status of a server"),
    ("crates/transfer/src/control/pipe.rs", "A pipe"),
    ("crates/share/src/messages.rs", "The shared tree"),
    ("crates/stream/src/messages.rs", "A stream"),
    ("crates/stream/src/channel/messages.rs", "A channel"),
    ("crates/rpc/src/messages.rs", "Remote procedure calls"),
    ("crates/proto/src/wire/messages.rs", "Messages of the protocols"),
];
const HEADER: &str = "crates/proto/src/wire/header.rs";

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let rest = &text[text.find(from)? + from.len()..];
    rest.find(to).map(|end| &rest[..end])
}

/// The text of a doc comment: links become their texts, and `|` is escaped.
fn plain(doc: &[String]) -> String {
    let mut text = doc.join(" ").replace("[`", "`");
    while let Some(at) = text.find("`]") {
        let link = text[at + 2..].starts_with('(').then(|| text[at..].find(')')).flatten();
        text.replace_range(at + 1..link.map_or(at + 2, |end| at + end + 1), "");
    }
    text.trim().replace('|', "\\|")
}

/// The type of a field, from its attribute (such as `uint64, optional`) and its Rust type.
fn kind(attribute: &str, of: &str) -> String {
    let words = attribute.split(", ").map(str::trim);
    let words: Vec<&str> = words.filter(|word| !word.starts_with("tag")).collect();
    let inner = of.trim_end_matches(['>', ')', ',']);
    let inner = inner.rsplit(['<', '(', ' ']).next().unwrap_or_default();
    let name = match words[0] {
        "message" => format!("`{inner}`"),
        word if word.starts_with("bytes") => "bytes".to_owned(),
        word => word.to_owned(),
    };
    let is = |word: &str| words.contains(&word);
    match () {
        () if is("repeated") => format!("{name}, any number"),
        () if is("optional") && words[0] != "message" => format!("{name}, or nothing"),
        () => name,
    }
}

/// The messages of a source file, each as a heading and a table of its fields.
fn messages(source: &Text) -> String {
    let (mut out, mut doc, mut attribute) = (String::new(), Vec::new(), None::<String>);
    let (mut derives, mut within, mut has_rows) = (false, false, false);
    for line in source.code() {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim().to_owned());
        } else if line.starts_with("#[derive(") {
            derives = line.contains("Message") || line.contains("Oneof");
        } else if let Some(rest) = line.strip_prefix("#[prost(") {
            attribute = Some(rest.trim_end_matches(")]").to_owned());
        } else if line.starts_with("#[") || line.starts_with("tags = ") || line == ")]" {
        } else if let Some(field) = attribute.take().filter(|_| within) {
            let field = field.as_str();
            let Some(tag) = between(&format!("{field}\""), "tag = \"", "\"").map(str::to_owned)
            else {
                doc.clear();
                continue;
            };
            let name = line.trim_start_matches("pub(super) ").trim_start_matches("pub ");
            let (name, of) = name.split_once([':', '(']).unwrap_or((name, ""));
            let (kind, doc) = (kind(field, of), plain(&std::mem::take(&mut doc)));
            if !std::mem::replace(&mut has_rows, true) {
                out += "\n| tag | field | type | what |\n| --- | --- | --- | --- |\n";
            }
            writeln!(out, "| {tag} | {name} | {kind} | {doc} |").expect("text grows");
        } else if derives && (line.contains("struct ") || line.contains("enum ")) {
            let name = line.split("struct ").last().unwrap_or_default();
            let name =
                name.split("enum ").last().unwrap_or_default().trim_end_matches([' ', '{', '}']);
            let doc = plain(&std::mem::take(&mut doc));
            out += format!("\n### {name}\n\n{doc}").trim_end();
            out += "\n";
            (derives, within, has_rows) = (false, true, false);
        } else {
            within &= line != "}";
            doc.clear();
        }
    }
    out
}

fn header(source: &Text) -> String {
    let rows = source.text.lines().filter_map(|line| line.strip_prefix("//! |"));
    let mut out = String::from("\n## The header of a datagram\n\n");
    for row in rows {
        let row = plain(&[row.to_owned()]).replace("\\|", "|");
        writeln!(out, "| {row}").expect("text grows");
    }
    out += "\n| kind | what |\n| --- | --- |\n";
    for (code, what) in kinds(&source.text) {
        writeln!(out, "| {code} | {what} |").expect("text grows");
    }
    out
}

fn kinds(text: &str) -> Vec<(String, String)> {
    let list = between(text, "pub enum Kind {", "\n}").expect("there are kinds");
    let lines: Vec<&str> = list.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter(|pair| pair[0].starts_with("///"));
    let of = |pair: &[&str]| {
        let name = pair[1].trim_end_matches(',');
        let code = between(text, &format!("Kind::{name} => "), ",").expect("it has a number");
        (code.to_owned(), pair[0].trim_start_matches("/// ").to_owned())
    };
    pairs.map(of).collect()
}

/// The text of the page after its mark.
fn made() -> String {
    let sources = files("crates", "rs");
    let find = |path: &str| {
        sources.iter().find(|text| text.path == path).unwrap_or_else(|| panic!("no {path}"))
    };
    let mut out = header(find(HEADER));
    for (path, title) in SOURCES {
        write!(out, "\n## {title}\n\n`{path}`\n{}", messages(find(path))).expect("text grows");
    }
    out
}

#[test]
fn the_page_of_the_wire_agrees_with_the_source() {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).expect("there is the page");
    let (told, listed) = page.split_once(MARK).expect("the page has its mark");
    let made = made();
    if env::var_os(WRITE).is_some() {
        fs::write(&path, format!("{told}{MARK}{made}")).expect("it can be written");
    } else {
        let differs = listed.lines().zip(made.lines()).find(|(page, source)| page != source);
        assert!(
            listed == made,
            "{PAGE} differs from the source (page, source: {differs:?}); {WRITE}=1 writes the page"
        );
    }
}

#[test]
fn every_message_is_on_the_page() {
    let known = |path: &str| SOURCES.iter().any(|(source, _)| *source == path);
    let sources = files("crates", "rs").into_iter().filter(|text| !text.is_test());
    let speaks = sources.filter(|text| text.code().iter().any(|line| line.contains("#[prost(")));
    let lost: Vec<String> = speaks
        .map(|text| text.path)
        .filter(|path| path.contains("/src/") && !known(path))
        .collect();
    super::none(lost, "each source with messages is listed in tidy/wire.rs");
    let made = made();
    for said in ["### Outcome", "### EntryWire", "| 9 | failed_bytes | uint64 |"] {
        assert!(made.contains(said), "{said}");
    }
    let is_field = |line: &&str| {
        line.strip_prefix("| ")
            .is_some_and(|row| row.starts_with(|first: char| first.is_ascii_digit()))
    };
    let fields = made.lines().filter(is_field).count();
    let written: usize = SOURCES
        .iter()
        .map(|(path, _)| {
            let text = fs::read_to_string(root().join(path)).expect("there is the source");
            text.matches("tag = \"").count()
        })
        .sum();
    assert!(fields >= written, "{fields} rows, {written} fields");
}
