//! The location of each key in the file: its full path, its line, and the type of its value.
//!
//! The parser knows byte spans but not paths, its errors know a span or a path but not both, and spans repeat (the
//! implicit tables of `a.b.c = 1`). So before the document is handed to serde, every span in it is replaced by a
//! number, its index in [`DocumentMap`]. The span of an error then identifies its location without guessing.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

#[derive(Debug, Clone, PartialEq, Eq)]
enum KeySegment {
    Key(String),
    Index(usize),
}

/// The path of a key from the top of the file, printed as TOML writes it: `agents.claude.args[1]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct KeyPath(Vec<KeySegment>);

impl KeyPath {
    pub(super) fn of<const N: usize>(keys: [&str; N]) -> Self {
        Self(keys.iter().map(|key| KeySegment::Key((*key).to_owned())).collect())
    }

    #[must_use]
    pub(super) fn key(&self, key: &str) -> Self {
        self.with(KeySegment::Key(key.to_owned()))
    }

    #[must_use]
    pub(super) fn index(&self, index: usize) -> Self {
        self.with(KeySegment::Index(index))
    }

    fn with(&self, last: KeySegment) -> Self {
        let mut path = self.clone();
        path.0.push(last);
        path
    }

    pub(super) fn last_key(&self) -> Option<&str> {
        match self.0.last() {
            Some(KeySegment::Key(key)) => Some(key),
            _ => None,
        }
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                KeySegment::Index(index) => write!(f, "[{index}]")?,
                KeySegment::Key(key) => {
                    let dot = if i == 0 { "" } else { "." };
                    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                    if !key.is_empty() && key.chars().all(bare) {
                        write!(f, "{dot}{key}")?;
                    } else {
                        write!(f, "{dot}{key:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct KeyLocation {
    pub(super) path: KeyPath,
    /// The line of the key, or of the element in a list.
    pub(super) line: usize,
    /// The type of the value, never the value: it may be a secret.
    pub(super) found: &'static str,
    /// The bytes of the value, or of the header if the table has one.
    span: Range<usize>,
    /// True if the value follows its key, in contrast to a table that a header or a dotted key opens.
    inline: bool,
}

impl KeyLocation {
    pub(super) fn is_table(&self) -> bool {
        self.found == TABLE
    }

    pub(super) fn is_list(&self) -> bool {
        self.found == LIST
    }
}

/// A section's name in earlier releases, which is still read, and its present name.
pub(super) const RENAMED_SECTION: (&str, &str) = ("seats", "acp_server");

fn current_name<'k>(parent: &KeyPath, key: &'k str) -> &'k str {
    if parent.0.is_empty() && key == RENAMED_SECTION.0 { RENAMED_SECTION.1 } else { key }
}

/// All locations of a document; parents precede their children.
#[derive(Debug)]
pub(super) struct DocumentMap<'t> {
    text: &'t str,
    all: Vec<KeyLocation>,
}

impl<'t> DocumentMap<'t> {
    /// Collects the locations of the document and numbers its spans.
    pub(super) fn number<'i>(text: &'t str, root: Spanned<DeTable<'i>>) -> (Self, Spanned<DeTable<'i>>) {
        let mut places = Self { text, all: Vec::new() };
        let path = KeyPath::default();
        places.all.push(KeyLocation { path: path.clone(), line: 1, found: TABLE, span: 0..0, inline: false });
        let table = places.table(root.into_inner(), &path);
        (places, Spanned::new(0..0, table))
    }

    fn table<'i>(&mut self, table: DeTable<'i>, parent: &KeyPath) -> DeTable<'i> {
        let number = |(key, value): (Spanned<DeString<'i>>, Spanned<DeValue<'i>>)| {
            let path = parent.key(current_name(parent, key.get_ref()));
            let inline = value.span().start >= key.span().end;
            let id = self.push(&path, key.span().start, &value, inline);
            let value = self.value(value.into_inner(), &path, inline);
            (Spanned::new(id.clone(), key.into_inner()), Spanned::new(id, value))
        };
        table.into_iter().map(number).collect()
    }

    fn value<'i>(&mut self, value: DeValue<'i>, path: &KeyPath, inline: bool) -> DeValue<'i> {
        match value {
            DeValue::Table(table) => DeValue::Table(self.table(table, path)),
            DeValue::Array(array) => {
                let number = |(index, value): (usize, Spanned<DeValue<'i>>)| {
                    let path = path.index(index);
                    let id = self.push(&path, value.span().start, &value, inline);
                    Spanned::new(id, self.value(value.into_inner(), &path, inline))
                };
                DeValue::Array(array.into_iter().enumerate().map(number).collect())
            }
            scalar => scalar,
        }
    }

    fn push(
        &mut self,
        path: &KeyPath,
        start: usize,
        value: &Spanned<DeValue<'_>>,
        inline: bool,
    ) -> Range<usize> {
        let id = self.all.len();
        self.all.push(KeyLocation {
            path: path.clone(),
            line: line_of(self.text, start),
            found: sort_of(value.get_ref()),
            span: value.span(),
            inline,
        });
        id..id
    }

    /// Returns the location of a numbered span.
    pub(super) fn at(&self, id: Option<Range<usize>>) -> &KeyLocation {
        &self.all[id.map_or(0, |id| id.start.min(self.all.len() - 1))]
    }

    /// Returns the line of a key, or of the nearest table around it if the key is missing.
    pub(super) fn line(&self, path: &KeyPath) -> usize {
        let around = self.all.iter().filter(|place| path.0.starts_with(&place.path.0));
        around.max_by_key(|place| place.path.0.len()).map_or(1, |place| place.line)
    }

    /// Returns the innermost wanted value around a byte of the text.
    pub(super) fn value_around(
        &self,
        offset: usize,
        wanted: impl Fn(&KeyLocation) -> bool,
    ) -> Option<&KeyLocation> {
        let around =
            |place: &KeyLocation| place.inline && place.span.start <= offset && offset <= place.span.end;
        self.all.iter().rfind(|place| around(place) && wanted(place))
    }

    /// Returns the table whose header, `[…]`, is the last one before a byte of the text.
    pub(super) fn section_around(&self, offset: usize) -> Option<&KeyLocation> {
        let opened = |place: &&KeyLocation| {
            let header = self.text.as_bytes().get(place.span.start) == Some(&b'[');
            header && !place.inline && place.span.start <= offset
        };
        self.all.iter().filter(opened).max_by_key(|place| place.span.start)
    }
}

/// Returns the line of a byte, counted from 1 as editors do.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    lines(&text.as_bytes()[..offset.min(text.len())])
}

/// Returns the number of lines in the bytes; the last one need not end.
pub(super) fn lines(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count()
}

const TABLE: &str = "a table";
const LIST: &str = "a list";

fn sort_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(number) => sort_of_integer(number),
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => LIST,
        DeValue::Table(_) => TABLE,
    }
}

fn sort_of_integer(number: &DeInteger<'_>) -> &'static str {
    if number.as_str().starts_with('-') {
        "a negative number"
    } else if u64::from_str_radix(number.as_str(), number.radix()).is_err() {
        "a number that is too large"
    } else {
        "a whole number"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_toml_writes_them() {
        let path = KeyPath::of(["agents", "claude", "args"]).index(1);
        assert_eq!(path.to_string(), "agents.claude.args[1]");
        assert_eq!(KeyPath::of(["agents", "a b", "", "ü"]).to_string(), r#"agents."a b".""."ü""#);
        assert_eq!(KeyPath::default().to_string(), "");
    }

    #[test]
    fn every_place_has_the_line_of_its_own_key() {
        let text = "\u{feff}top = 1\r\n[a.b]\r\nx.y = [\r\n  1,\r\n  { z = 2 },\r\n]\r\n[a]\r\nw = '''\r\n'''\r\n[[l]]\r\n[[l]]\r\nk = 1\r\n";
        let (places, _) = DocumentMap::number(text, DeTable::parse(text).unwrap());
        let mut seen: Vec<_> = places.all.iter().map(|p| format!("{} {}", p.line, p.path)).collect();
        seen.sort_by_key(|line| line.split(' ').next().and_then(|n| n.parse::<usize>().ok()));
        let expect = [
            "1 ",
            "1 top",
            "2 a.b",
            "3 a.b.x",
            "3 a.b.x.y",
            "4 a.b.x.y[0]",
            "5 a.b.x.y[1]",
            "5 a.b.x.y[1].z",
            "7 a",
            "8 a.w",
            "10 l",
            "10 l[0]",
            "11 l[1]",
            "12 l[1].k",
        ];
        assert_eq!(seen, expect);
    }

    #[test]
    fn a_key_that_is_missing_has_the_line_of_its_table() {
        let text = "\n\n[agents.x]\nargs = []\n";
        let (places, _) = DocumentMap::number(text, DeTable::parse(text).unwrap());
        assert_eq!(places.line(&KeyPath::of(["agents", "x", "args"])), 4);
        assert_eq!(places.line(&KeyPath::of(["agents", "x", "command"])), 3);
        assert_eq!(places.line(&KeyPath::of(["limits", "max_sessions"])), 1);
    }
}
