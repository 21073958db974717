//! The properties of the terminal: whether it is one, its size, and whether we may use colours.

use std::io::IsTerminal;

/// Colours and weights. `Paint` returns the text unchanged if they are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum TerminalStyle {
    #[default]
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    on: bool,
}

impl Paint {
    pub(super) const OFF: Self = Self { on: false };
    #[cfg(test)]
    pub(super) const ON: Self = Self { on: true };

    pub(super) fn for_stdout() -> Self {
        Self::decide(std::io::stdout().is_terminal())
    }

    pub(super) fn for_stderr() -> Self {
        Self::decide(std::io::stderr().is_terminal())
    }

    fn decide(terminal: bool) -> Self {
        let set = |key: &str| std::env::var_os(key).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: terminal && !set("NO_COLOR") && !dumb }
    }

    /// Adds our own escapes around a text, which must be clean already.
    pub(super) fn style(self, style: TerminalStyle, text: &str) -> String {
        let code = match style {
            TerminalStyle::Plain => return text.to_owned(),
            TerminalStyle::Bold => "1",
            TerminalStyle::Dim => "2",
            TerminalStyle::Red => "31",
            TerminalStyle::Green => "32",
            TerminalStyle::Yellow => "33",
            TerminalStyle::Cyan => "36",
        };
        if self.on && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TerminalSize {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// Returns the size to lay out for, or `None` if stdout is not a terminal: then nothing is cut.
pub(super) fn stdout_size() -> Option<TerminalSize> {
    std::io::stdout().is_terminal().then(size)
}

/// Returns the width for advice: that of the terminal on stderr, or `COLUMNS` if stderr is a pipe to a reader.
pub(super) fn stderr_columns() -> Option<usize> {
    if std::io::stderr().is_terminal() { Some(size().columns) } else { from_env("COLUMNS") }
}

fn from_env(key: &str) -> Option<usize> {
    std::env::var(key).ok()?.parse().ok().filter(|number| *number > 0)
}

fn size() -> TerminalSize {
    let asked = terminal_size::terminal_size();
    TerminalSize {
        columns: from_env("COLUMNS").or(asked.map(|(columns, _)| columns.0.into())).unwrap_or(80),
        rows: from_env("LINES").or(asked.map(|(_, rows)| rows.0.into())).unwrap_or(24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_added_only_when_they_are_on() {
        assert_eq!(Paint::OFF.style(TerminalStyle::Red, "x"), "x");
        assert_eq!(Paint::ON.style(TerminalStyle::Red, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Paint::ON.style(TerminalStyle::Plain, "x"), "x");
        assert_eq!(Paint::ON.style(TerminalStyle::Red, ""), "");
    }
}
