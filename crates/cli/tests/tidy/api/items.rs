//! The public items of a file, with their signatures.

use std::path::Path;

use super::super::files;
use super::paths::Module;

pub(super) struct Item {
    pub(super) name: String,
    /// The item's attributes, declaration and public parts, then its functions and traits.
    pub(super) lines: Vec<String>,
}

const KINDS: [&str; 10] = [
    "pub struct ",
    "pub enum ",
    "pub trait ",
    "pub fn ",
    "pub async fn ",
    "pub const fn ",
    "pub const ",
    "pub static ",
    "pub type ",
    "pub union ",
];

const HIDDEN: &str = "#[doc(hidden)]";

/// The public items of a module, except hidden items and items under `#[cfg]`.
pub(super) fn public_items(module: &Module) -> Vec<Item> {
    let lines: Vec<&str> = module.text.lines().collect();
    let mut items = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(name) = stream(&lines, at) {
            items.push(of_stream(&name, line.trim()));
            continue;
        }
        let Some(rest) = KINDS.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
        let attributes = attributes(&lines, at);
        let is_hidden = |attribute: &String| attribute == HIDDEN || attribute.starts_with("#[cfg");
        if attributes.iter().any(is_hidden) {
            continue;
        }
        let name = word(rest);
        let mut found: Vec<String> = attributes;
        found.extend(declaration(&lines[at..]));
        found.extend(implemented(module, &name));
        items.push(Item { name, lines: found });
    }
    items
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The attributes above a line that matter to callers.
fn attributes(lines: &[&str], at: usize) -> Vec<String> {
    let above = lines[..at].iter().rev().map(|line| line.trim());
    let above = above.take_while(|line| line.starts_with("#[") || line.starts_with("///"));
    let seen = ["#[derive", "#[non_exhaustive]", "#[must_use", "#[cfg", HIDDEN];
    let mut found: Vec<String> = above
        .filter(|line| seen.iter().any(|start| line.starts_with(start)))
        .map(|line| {
            line.split_once(" = ").map_or(line.to_owned(), |(start, _)| format!("{start}]"))
        })
        .collect();
    found.reverse();
    found
}

/// A declaration up to its `{` or `;`, on one line.
fn signature(lines: &[&str]) -> String {
    let end = lines.iter().position(|line| line.ends_with(['{', ';', '}'])).unwrap_or(0);
    let parts: Vec<&str> = lines[..=end].iter().map(|line| line.trim()).collect();
    let text = parts.join(" ").replace("( ", "(").replace(", )", ")").replace("(mut self", "(self");
    let text = match text.find(" { ") {
        // A body on the same line.
        Some(body) if text.ends_with('}') => text[..body].to_owned(),
        _ => text,
    };
    text.trim_end_matches(['{', ';']).trim_end().to_owned()
}

/// The declaration, with the parts that callers see.
fn declaration(lines: &[&str]) -> Vec<String> {
    let first = lines[0];
    if first.starts_with("pub const ") && !first.starts_with("pub const fn ") {
        return vec![first.split(" = ").next().unwrap_or(first).to_owned()];
    }
    if first.starts_with("pub struct ") && first.contains('(') {
        let is_private = first.contains("pub(") || !first.contains("(pub ");
        let name = first.split('(').next().unwrap_or(first);
        return vec![if is_private { format!("{name}(..)") } else { signature(lines) }];
    }
    let mut found = vec![signature(lines)];
    let is_struct = first.starts_with("pub struct ");
    let is_whole = is_struct || first.starts_with("pub enum ") || first.starts_with("pub trait ");
    if !is_whole || !first.ends_with('{') {
        return found;
    }
    let end = lines.iter().position(|line| *line == "}").unwrap_or(lines.len());
    let mut at = 1;
    while at < end {
        let (line, part) = (lines[at], lines[at].trim());
        let is_seen = !part.is_empty() && !part.starts_with("//") && !part.starts_with("#[");
        if first.starts_with("pub trait ") {
            let is_part =
                ["fn ", "async fn ", "type ", "const "].iter().any(|k| part.starts_with(k));
            if is_part && indent(line) == 4 {
                found.push(format!("    {}", signature(&lines[at..end])));
            }
        } else if is_seen && (!is_struct || part.starts_with("pub ")) {
            found.push(line.trim_end_matches(',').to_owned());
        }
        at += 1;
    }
    found
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The public functions and constants of a type, and its traits. For a module directly in `src`,
/// the other files of `src` are left out: they may have types of the same name.
fn implemented(module: &Module, name: &str) -> Vec<String> {
    let (mut own, mut traits) = (Vec::new(), Vec::new());
    let below = module.path.trim_end_matches("mod.rs").trim_end_matches(".rs");
    let folder = Path::new(&module.path).parent().filter(|folder| !folder.ends_with("src"));
    for file in files(&format!("crates/{}/src", module.krate), "rs") {
        let is_below = file.path.strip_prefix(below).is_some_and(|rest| {
            rest == ".rs" || rest == "mod.rs" || rest.starts_with('/') || below.ends_with('/')
        });
        let is_beside = folder.is_some_and(|folder| Path::new(&file.path).parent() == Some(folder));
        if !is_below && !is_beside || file.is_test() {
            continue;
        }
        let lines = file.code();
        for (at, line) in lines.iter().enumerate() {
            let Some(header) = impl_of(line, name) else { continue };
            if header.contains(" for ") {
                traits.push(header);
                continue;
            }
            let end = lines[at..].iter().position(|line| *line == "}").unwrap_or(0);
            own.extend(functions(&lines[at..at + end]));
        }
    }
    traits.sort();
    own.extend(traits);
    own
}

fn impl_of(line: &str, name: &str) -> Option<String> {
    let header = line.strip_prefix("impl")?;
    let header = header.trim_end_matches(['{', '}']).trim_end();
    let of = header.rsplit_once(" for ").map_or(header, |(_, of)| of);
    let of = of.trim_start();
    // Generic parameters of the block itself.
    let of = if of.starts_with('<') { of.split_once("> ").map_or(of, |(_, of)| of) } else { of };
    let rest = of.strip_prefix(name)?;
    let ends = rest.is_empty() || rest.starts_with('<') || rest.starts_with(" where");
    ends.then(|| format!("impl{header}"))
}

fn functions(lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let part = line.trim();
        if indent(line) != 4 || !part.starts_with("pub ") {
            continue;
        }
        if attributes(lines, at).iter().any(|attribute| attribute == HIDDEN) {
            continue;
        }
        if part.starts_with("pub const ") && !part.starts_with("pub const fn ") {
            found.push(part.split(" = ").next().unwrap_or(part).to_owned());
        } else {
            found.push(signature(&lines[at..]));
        }
    }
    found
}

/// The name of the stream that a line of `stream!` generates.
fn stream(lines: &[&str], at: usize) -> Option<String> {
    let above = lines[..at].iter().rev().find(|line| !line.trim().starts_with("///"))?;
    let (name, _) = lines[at].trim().split_once(" of ")?;
    (*above == "stream! {" && indent(lines[at]) == 4 && !name.starts_with("//"))
        .then(|| name.to_owned())
}

/// The items that `stream!` generates from `NAME of ITEM, read by READER`.
fn of_stream(name: &str, line: &str) -> Item {
    let item = line.split_once(" of ").and_then(|(_, rest)| rest.split_once(", read by "));
    let item = item.map_or("", |(item, _)| item);
    let lines = vec![
        format!("pub struct {name}(..)"),
        format!("pub async fn next(&mut self) -> Option<{item}>"),
        format!("impl Stream for {name}"),
        format!("impl fmt::Debug for {name}"),
    ];
    Item { name: name.to_owned(), lines }
}
