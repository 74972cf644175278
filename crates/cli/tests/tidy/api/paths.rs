//! Finds the module that defines the item of a path, such as `a::b::Item`.

use std::fs;

use super::super::{Text, root};

pub(super) struct Module {
    pub(super) krate: String,
    /// The module's path from the crate's root.
    names: Vec<String>,
    pub(super) path: String,
    /// The module's text without unit tests.
    pub(super) text: String,
}

pub(super) enum Use {
    /// All of a module.
    Glob(Vec<String>),
    Name {
        path: Vec<String>,
        alias: String,
    },
}

impl Module {
    pub(super) fn root(krate: &str) -> Module {
        Module::open(krate, Vec::new()).expect("a crate has a root")
    }

    fn open(krate: &str, names: Vec<String>) -> Option<Module> {
        let base = format!("crates/{krate}/src/{}", names.join("/"));
        let files = match names.is_empty() {
            true => vec![format!("{base}lib.rs")],
            false => vec![format!("{base}.rs"), format!("{base}/mod.rs")],
        };
        let path = files.into_iter().find(|path| root().join(path).is_file())?;
        let text = fs::read_to_string(root().join(&path)).expect("a source is UTF-8");
        let text = Text { path: path.clone(), text }.code().join("\n");
        Some(Module { krate: krate.to_owned(), names, path, text })
    }

    /// The module `name` in its own file.
    pub(super) fn child(&self, name: &str) -> Option<Module> {
        Module::open(&self.krate, [&self.names[..], &[name.to_owned()]].concat())
    }

    /// The names of public modules with separate files.
    pub(super) fn public_modules(&self) -> Vec<String> {
        let lines = self.text.lines();
        let names = lines.filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        names.map(str::to_owned).collect()
    }

    /// The names in `pub use` lines. Each pair begins with the name of the inline module that
    /// contains the line; the name is empty if there is no such module.
    pub(super) fn uses(&self) -> Vec<(String, Use)> {
        let mut found = Vec::new();
        let (mut inner, mut open) = (String::new(), None::<String>);
        for line in self.text.lines() {
            let code = line.trim();
            if let Some(name) = line.strip_prefix("pub mod ").and_then(|l| l.strip_suffix(" {")) {
                inner = name.to_owned();
            } else if line == "}" {
                inner.clear();
            }
            let text = match (open.take(), code.strip_prefix("pub use ")) {
                (Some(before), _) => format!("{before} {code}"),
                (None, Some(path)) => path.to_owned(),
                (None, None) => continue,
            };
            match text.strip_suffix(';') {
                Some(whole) => found.extend(parse(whole).map(|import| (inner.clone(), import))),
                None => open = Some(text),
            }
        }
        found
    }

    /// The module that `path` names, relative to this module, or after `super`, `crate` or
    /// `longhaul_…`.
    pub(super) fn find(&self, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Module::root(&self.krate),
            "super" => Module::open(&self.krate, self.names[..self.names.len() - 1].to_vec())?,
            name => match name.strip_prefix("longhaul_") {
                Some(krate) => Module::root(krate),
                None => self.step(name)?,
            },
        };
        rest.iter().try_fold(start, |module, name| module.step(name))
    }

    /// The submodule `name`: in its own file, or made public by a `pub use`.
    fn step(&self, name: &str) -> Option<Module> {
        if let Some(child) = self.child(name) {
            return Some(child);
        }
        let uses = self.uses();
        let path = uses.into_iter().find_map(|(_, import)| match import {
            Use::Name { path, alias } if alias == name => Some(path),
            _ => None,
        });
        self.find(&path?)
    }

    /// The module that defines the item of `path`, and the item's name there.
    pub(super) fn definition(&self, path: &[String]) -> (Module, String) {
        let (name, modules) = path.split_last().expect("a path has a name");
        let home = self.find(modules).unwrap_or_else(|| panic!("{}: {path:?}", self.path));
        let passed_on = home.uses().into_iter().find_map(|(at, import)| match import {
            Use::Name { path, alias } if at.is_empty() && alias == *name => Some(path),
            _ => None,
        });
        match passed_on {
            Some(path) => home.definition(&path),
            None => (home, name.clone()),
        }
    }
}

/// The imports of one `pub use`, such as `a::b::{c, d as e}` or `a::*`.
fn parse(text: &str) -> impl Iterator<Item = Use> + use<> {
    let (base, names) = match text.split_once('{') {
        Some((base, names)) => (base.to_owned(), names.trim_end_matches('}').to_owned()),
        None => (String::new(), text.to_owned()),
    };
    let names: Vec<String> = names.split(',').map(str::trim).map(str::to_owned).collect();
    names.into_iter().filter(|name| !name.is_empty()).map(move |name| {
        let whole = format!("{base}{name}");
        let (path, alias) = match whole.split_once(" as ") {
            Some((path, alias)) => (path.to_owned(), Some(alias.to_owned())),
            None => (whole, None),
        };
        let mut path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
        if path.last().is_some_and(|last| last == "*") {
            path.pop();
            return Use::Glob(path);
        }
        let alias = alias.unwrap_or_else(|| path.last().expect("a path has a name").clone());
        Use::Name { path, alias }
    })
}
