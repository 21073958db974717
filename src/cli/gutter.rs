//! Text of others in a column of its own: each of its lines begins with our gutter, even where a terminal would wrap
//! it, so that no text of an agent looks like a line of intercom.

use super::terminal::{Paint, TerminalStyle, stdout_size};
use intercom_types::text::{clean_block, columns, most_columns};

/// The minimum width of a text, however narrow the terminal is.
const LEAST: usize = 8;

/// A text that may arrive in pieces. The result of `write` is printed unchanged; the last word may still be held back.
#[derive(Debug)]
pub(super) struct TextColumn {
    gutter: String,
    indent: usize,
    /// The width for text beside the gutter; without a terminal nothing is wrapped.
    room: Option<usize>,
    style: TerminalStyle,
    paint: Paint,
    used: usize,
    word: String,
    word_columns: usize,
    spaces: usize,
    breaks: usize,
}

impl TextColumn {
    /// Returns a column whose first gutter takes `indent` columns, as `gutter` does on every further line.
    pub(super) fn new(
        gutter: String,
        indent: usize,
        width: Option<usize>,
        style: TerminalStyle,
        paint: Paint,
    ) -> Self {
        let room = width.map(|width| width.saturating_sub(indent).max(LEAST));
        let (word, word_columns, used, spaces, breaks) = (String::new(), 0, 0, 0, 0);
        Self { gutter, indent, room, style, paint, used, word, word_columns, spaces, breaks }
    }

    pub(super) fn write(&mut self, text: &str) -> String {
        let mut out = String::new();
        for c in clean_block(text).chars() {
            match c {
                '\n' => {
                    self.put_word(&mut out);
                    (self.spaces, self.breaks) = (0, self.breaks + 1);
                }
                ' ' => {
                    self.put_word(&mut out);
                    self.spaces += 1;
                }
                c => {
                    if self.room.is_some_and(|room| self.word_columns + most_columns(c) > room) {
                        self.put_word(&mut out);
                    }
                    self.word.push(c);
                    self.word_columns += most_columns(c);
                }
            }
        }
        out
    }

    /// Returns the word that was held back; more of it may follow.
    pub(super) fn pause(&mut self) -> String {
        let mut out = String::new();
        self.put_word(&mut out);
        out
    }

    fn put_word(&mut self, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        for _ in 0..std::mem::take(&mut self.breaks) {
            out.truncate(out.trim_end_matches(' ').len()); // the gutter of an empty line
            self.new_line(out);
        }
        let mut spaces = std::mem::take(&mut self.spaces);
        if let Some(room) = self.room.filter(|room| self.used + spaces + self.word_columns > *room) {
            if self.used > 0 {
                self.new_line(out);
                spaces = 0;
            }
            spaces = spaces.min(room - self.word_columns.min(room));
        }
        out.extend(std::iter::repeat_n(' ', spaces));
        out.push_str(&self.paint.style(self.style, &self.word));
        self.used += spaces + self.word_columns;
        self.word.clear();
        self.word_columns = 0;
    }

    fn new_line(&mut self, out: &mut String) {
        out.push('\n');
        out.push_str(&self.gutter);
        self.used = 0;
        debug_assert!(self.indent > 0, "without a gutter a line could be anybody's");
    }
}

/// Returns a text with `gutter` before each line; a line feed ends the last one.
pub(super) fn block(
    text: &str,
    gutter: &str,
    width: Option<usize>,
    style: TerminalStyle,
    paint: Paint,
) -> String {
    let indent = columns(gutter);
    let gutter = paint.style(TerminalStyle::Dim, gutter);
    let mut column = TextColumn::new(gutter.clone(), indent, width, style, paint);
    let text = column.write(text.trim_end()) + &column.pause();
    format!("{gutter}{text}\n")
}

/// The gutter of text below a line of ours: a description, a question, an agent's stderr.
pub(super) const TEXT_GUTTER: &str = "  │ ";

/// Returns a [`block`] with the width of our terminal, if there is one.
pub(super) fn indented_block(text: &str, paint: Paint) -> String {
    if text.trim().is_empty() {
        return String::new();
    }
    block(text, TEXT_GUTTER, stdout_size().map(|size| size.columns), TerminalStyle::Plain, paint)
}

/// Wraps a line of ours that already takes `used` columns: if it is too long for the terminal, it continues indented,
/// between two words.
pub(super) fn wrapped(text: &str, used: usize, indent: usize, width: Option<usize>) -> String {
    let mut column = TextColumn::new(" ".repeat(indent), indent, width, TerminalStyle::Plain, Paint::OFF);
    column.used = used.saturating_sub(indent);
    column.write(text) + &column.pause()
}

/// Wraps advice to `width` columns, between words and indented after the first line. A command between backticks stays
/// on one line, so that it can be pasted; a wider one is wrapped by the terminal.
pub(super) fn advice_lines(text: &str, width: Option<usize>) -> Vec<String> {
    const INDENT: &str = "  ";
    let Some(width) = width else { return vec![text.to_owned()] };
    let mut is_command = false;
    let words = text.split(|c| {
        is_command ^= c == '`';
        c == ' ' && !is_command
    });
    lines_of(words, width, INDENT)
}

/// Distributes words over lines of at most `width` columns; all but the first are indented.
pub(super) fn lines_of<'a>(words: impl Iterator<Item = &'a str>, width: usize, indent: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words {
        let line = lines.last_mut().expect("there is always one");
        if line.trim().is_empty() {
            line.push_str(word);
        } else if columns(line) + 1 + columns(word) <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines
}

/// Wraps a line of ours that quotes others: if it is too long for the terminal, it continues indented.
pub(super) fn hanging(first: &str, text: &str, indent: usize, style: TerminalStyle, paint: Paint) -> String {
    let width = stdout_size().map(|size| size.columns);
    let mut column = TextColumn::new(" ".repeat(indent), indent, width, style, paint);
    format!("{first}{}{}", column.write(text), column.pause())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_wrapped_between_words_and_a_command_stays_whole() {
        let text = "hint: log in: run `claude` and `/login` there; then restart it: `intercom stop shop && intercom resume shop`; done";
        insta::assert_snapshot!(advice_lines(text, Some(40)).join("\n"), @r"
        hint: log in: run `claude` and `/login`
          there; then restart it:
          `intercom stop shop && intercom resume shop`;
          done
        ");
        assert_eq!(advice_lines(text, None), [text]);
        assert_eq!(advice_lines("an odd ` mark is no end of the world", Some(12)).len(), 2);
    }

    #[test]
    fn a_long_line_goes_on_indented_and_no_word_is_parted() {
        let text = "session.created shop by person ana: claude, in /home/ana/src/customers/shop";
        insta::assert_snapshot!(wrapped(text, 15, 8, Some(40)), @r"
        session.created shop by
                person ana: claude, in
                /home/ana/src/customers/shop
        ");
        assert_eq!(wrapped(text, 15, 8, None), text);
    }
}
