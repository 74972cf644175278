//! A table of a scenario file; errors name the line.

use core::fmt;
use core::ops::Range;

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The line, from 1; `None` for a value from outside the file.
    pub line: Option<usize>,
    /// The error.
    pub what: String,
    /// The suggested action, if known.
    pub advice: Option<String>,
}

impl FileError {
    pub(super) fn advise(self, advice: impl Into<String>) -> FileError {
        FileError { advice: Some(advice.into()), ..self }
    }

    /// Adds advice for a word that is not `known`: the nearest known word, or `otherwise` and all
    /// known words.
    pub(super) fn among<'k>(
        self,
        word: &str,
        known: impl Iterator<Item = &'k str> + Clone,
        otherwise: &str,
    ) -> FileError {
        match nearest(word, known.clone()) {
            Some(near) => self.advise(format!("did you mean '{near}'?")),
            None => self.advise(format!("{otherwise}: {}", list(known))),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.what)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl core::error::Error for FileError {}

/// A value's place in the text; empty for a value from outside the file.
pub(super) type Extent = Range<usize>;

#[derive(Clone, Copy)]
pub(super) struct Source<'a>(pub(super) &'a str);

impl Source<'_> {
    pub(super) fn error(self, at: &Extent, what: impl Into<String>) -> FileError {
        let before = self.0.as_bytes().get(..at.start).unwrap_or(self.0.as_bytes());
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        // Text from the file must not control the terminal.
        let what = what.into().replace(char::is_control, "?");
        FileError { line: (!at.is_empty()).then_some(line), what, advice: None }
    }
}

type Found<T> = Result<Option<T>, FileError>;

/// A table, with a title for error messages.
pub(super) struct Section<'a> {
    pub(super) source: Source<'a>,
    pub(super) title: &'static str,
    pub(super) extent: Extent,
    table: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    /// The table at `value`; an error for a key not in `keys`.
    pub(super) fn new(
        source: Source<'a>,
        title: &'static str,
        value: &'a Spanned<DeValue<'a>>,
        keys: &[&[&str]],
    ) -> Result<Section<'a>, FileError> {
        let extent = value.span();
        let Some(table) = value.get_ref().as_table() else {
            return Err(source.error(&extent, format!("{title} must be a table with keys")));
        };
        Section::of_table(source, title, extent, table, keys)
    }

    /// Like [`Section::new`], for a table.
    pub(super) fn of_table(
        source: Source<'a>,
        title: &'static str,
        extent: Extent,
        table: &'a DeTable<'a>,
        keys: &[&[&str]],
    ) -> Result<Section<'a>, FileError> {
        let section = Section { source, title, extent, table };
        let known = || keys.iter().flat_map(|keys| keys.iter().copied());
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known().any(|known| known == name) {
                let error = source.error(&key.span(), format!("unknown key '{name}' in {title}"));
                return Err(error.among(name, known(), "its keys"));
            }
        }
        Ok(section)
    }

    pub(super) fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The place of `key`'s value, or of the whole table.
    pub(super) fn extent_of(&self, key: &str) -> Extent {
        self.value(key).map_or_else(|| self.extent.clone(), Spanned::span)
    }

    pub(super) fn error(&self, key: &str, what: impl Into<String>) -> FileError {
        self.source.error(&self.extent_of(key), what)
    }

    pub(super) fn missing(&self, key: &str) -> FileError {
        self.source.error(&self.extent, format!("{} lacks '{key}'", self.title))
    }

    fn wrong_kind(&self, key: &str, wanted: &str) -> FileError {
        self.error(key, format!("'{key}' in {} must be {wanted}", self.title))
    }

    pub(super) fn text(&self, key: &str) -> Found<&'a str> {
        let Some(value) = self.value(key) else { return Ok(None) };
        value.get_ref().as_str().map(Some).ok_or_else(|| self.wrong_kind(key, "a text in quotes"))
    }

    pub(super) fn flag(&self, key: &str) -> Found<bool> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let given = match value.get_ref() {
            DeValue::String(word) => word.parse().ok(),
            value => value.as_bool(),
        };
        given.map(Some).ok_or_else(|| self.wrong_kind(key, "true or false"))
    }

    /// A quantity, quoted with its unit or a bare number.
    pub(super) fn quantity<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Found<T> {
        let Some(value) = self.value(key) else { return Ok(None) };
        self.parsed(key, value, parse).map(Some)
    }

    /// A protocol's setting: a quantity or a switch.
    pub(super) fn setting(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<f64, String>,
    ) -> Found<f64> {
        match self.value(key).map(Spanned::get_ref) {
            Some(DeValue::Boolean(on)) => parse(if *on { "true" } else { "false" })
                .map(Some)
                .map_err(|what| self.error(key, format!("'{key}' in {}: {what}", self.title))),
            _ => self.quantity(key, parse),
        }
    }

    fn parsed<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, FileError> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.wrong_kind(key, "a quantity such as \"100M\" or \"5ms\"")),
        };
        let named = |what: String| {
            self.source.error(&value.span(), format!("'{key}' in {}: {what}", self.title))
        };
        parse(text).map_err(named)
    }

    pub(super) fn rate(&self, key: &str) -> Found<Rate> {
        self.quantity(key, longhaul_proto::quantity::parse_rate)
    }

    pub(super) fn bytes(&self, key: &str) -> Found<Bytes> {
        self.quantity(key, longhaul_proto::quantity::parse_bytes)
    }

    pub(super) fn span(&self, key: &str) -> Found<Span> {
        self.quantity(key, longhaul_proto::quantity::parse_span)
    }

    pub(super) fn ratio(&self, key: &str) -> Found<LossRatio> {
        // `parse_loss` does not accept an exponent (`1e-7`).
        let bare = |text: &str| text.parse().ok().and_then(LossRatio::new);
        let parse = longhaul_proto::quantity::parse_loss;
        self.quantity(key, |text| bare(text).map_or_else(|| parse(text), Ok))
    }

    /// A number, not necessarily whole.
    pub(super) fn number(&self, key: &str) -> Found<f64> {
        let parse = |text: &str| match text.replace('_', "").parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(format!("'{text}' is not a number")),
        };
        self.quantity(key, parse)
    }

    /// A whole number, not negative.
    pub(super) fn count<T: core::str::FromStr>(&self, key: &str) -> Found<T> {
        let parse = |text: &str| {
            text.replace('_', "")
                .parse()
                .map_err(|_| format!("'{text}' is not a whole number in its range"))
        };
        self.quantity(key, parse)
    }

    pub(super) fn word<T: Clone>(&self, key: &str, words: &[(&str, T)]) -> Found<T> {
        let Some(given) = self.text(key)? else { return Ok(None) };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == given) {
            return Ok(Some(meaning.clone()));
        }
        let known = || words.iter().map(|(word, _)| *word);
        let error = self.error(key, format!("'{key}' in {} cannot be '{given}'", self.title));
        Err(error.among(given, known(), "it is one of"))
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<(&'a str, Extent)>, FileError> {
        let text = |value: &'a Spanned<DeValue<'a>>| {
            let text = value.get_ref().as_str();
            let text = text.ok_or_else(|| self.wrong_kind(key, "a list of texts in quotes"))?;
            Ok((text, value.span()))
        };
        self.list(key)?.iter().map(text).collect()
    }

    pub(super) fn spans(&self, key: &str) -> Result<Vec<Span>, FileError> {
        let parse = longhaul_proto::quantity::parse_span;
        self.list(key)?.iter().map(|value| self.parsed(key, value, parse)).collect()
    }

    pub(super) fn list(&self, key: &str) -> Result<&'a [Spanned<DeValue<'a>>], FileError> {
        let Some(value) = self.value(key) else { return Ok(&[]) };
        let list = value.get_ref().as_array();
        list.map(|list| &**list).ok_or_else(|| self.wrong_kind(key, "a list in [brackets]"))
    }

    pub(super) fn table(
        &self,
        key: &str,
        title: &'static str,
        keys: &[&[&str]],
    ) -> Found<Section<'a>> {
        let value = self.value(key);
        value.map(|value| Section::new(self.source, title, value, keys)).transpose()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Spanned<DeValue<'a>>)> {
        self.table.iter().map(|(key, value)| (&**key.get_ref(), value))
    }
}

pub(super) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let scored = known.map(|known| (strsim::jaro_winkler(known, word), known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.7).map(|(_, known)| known)
}

pub(super) fn list<'k>(words: impl Iterator<Item = &'k str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
