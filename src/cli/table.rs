//! Tables for people: aligned, and cut to the width of the terminal.

use super::gutter::{TEXT_GUTTER, block};
use super::terminal::{Paint, TerminalStyle};
use intercom_types::text::{clean, columns, cut_middle, cut_words};

const GAP: usize = 2;
/// The minimum width of a column.
const LEAST: usize = 8;

/// A table of cleaned text: every cell passes `clean` when it is added.
#[derive(Debug)]
pub(super) struct TerminalTable {
    titles: Vec<&'static str>,
    rows: Vec<Vec<TerminalCell>>,
    /// The fit of each column, in the order of the titles.
    fits: Vec<TerminalColumnFit>,
}

/// The treatment of a column if the terminal is too narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminalColumnFit {
    CutEnd,
    CutMiddle,
    /// Moved below its row, in whole words, if it does not fit beside the others.
    Below,
    /// Never cut, because people type it again.
    Whole,
}

#[derive(Debug)]
pub(super) struct TerminalCell {
    text: String,
    style: TerminalStyle,
}

impl TerminalCell {
    pub(super) fn new(text: &str) -> Self {
        Self::styled(TerminalStyle::Plain, text)
    }

    pub(super) fn styled(style: TerminalStyle, text: &str) -> Self {
        Self { text: clean(text), style }
    }

    fn goes_below(&self, width: usize, fit: TerminalColumnFit) -> bool {
        fit == TerminalColumnFit::Below && columns(&self.text) > width
    }
}

impl TerminalTable {
    pub(super) fn new(titles: &[&'static str]) -> Self {
        Self {
            titles: titles.to_vec(),
            rows: Vec::new(),
            fits: vec![TerminalColumnFit::CutEnd; titles.len()],
        }
    }

    /// Returns the table with another fit for these columns.
    pub(super) fn fit(mut self, titles: &[&str], fit: TerminalColumnFit) -> Self {
        for (title, slot) in self.titles.iter().zip(&mut self.fits) {
            if titles.contains(title) {
                *slot = fit;
            }
        }
        self
    }

    /// Returns the table without empty columns.
    pub(super) fn without_empty(mut self) -> Self {
        for at in (0..self.titles.len()).rev() {
            if self.rows.iter().all(|row| row[at].text.is_empty()) {
                self.titles.remove(at);
                self.fits.remove(at);
                self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
            }
        }
        self
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [TerminalCell; N]) {
        debug_assert_eq!(N, self.titles.len());
        self.rows.push(cells.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the header and one line per row, each followed by the text below it; without a width, nothing is cut.
    pub(super) fn lines(&self, width: Option<usize>, paint: Paint) -> Vec<String> {
        let widths = self.widths(width);
        let header: Vec<TerminalCell> =
            self.titles.iter().map(|title| TerminalCell::styled(TerminalStyle::Dim, title)).collect();
        let plain = widths.iter().map(|width| (*width, TerminalColumnFit::CutEnd));
        let mut lines = vec![line(&header, plain, paint)];
        for row in &self.rows {
            lines.push(self.line(row, &widths, paint));
            lines.extend(self.below(row, &widths, width, paint));
        }
        lines
    }

    pub(super) fn render(&self, width: Option<usize>, paint: Paint) -> String {
        self.lines(width, paint).join("\n")
    }

    /// Returns the cells of a row that do not fit beside the others. If there are several columns, each is named.
    fn below(
        &self,
        row: &[TerminalCell],
        widths: &[usize],
        width: Option<usize>,
        paint: Paint,
    ) -> Vec<String> {
        let several = self.fits.iter().filter(|fit| **fit == TerminalColumnFit::Below).count() > 1;
        let mut lines = Vec::new();
        for (at, cell) in
            row.iter().enumerate().filter(|(at, cell)| cell.goes_below(widths[*at], self.fits[*at]))
        {
            let title = if several { format!("{}: ", self.titles[at].to_lowercase()) } else { String::new() };
            let text = block(&format!("{title}{}", cell.text), TEXT_GUTTER, width, cell.style, paint);
            lines.extend(text.lines().map(str::to_owned));
        }
        lines
    }

    /// Returns the widths of the columns; 0 for a column that is moved below its rows, so that the others get its room.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let widths = self.widths_without(&[], limit);
        let is_empty = |at: usize| {
            let stays = |row: &Vec<TerminalCell>| {
                !row[at].text.is_empty() && !row[at].goes_below(widths[at], self.fits[at])
            };
            self.fits[at] == TerminalColumnFit::Below && !self.rows.iter().any(stays)
        };
        let hidden: Vec<usize> = (0..self.titles.len()).filter(|at| is_empty(*at)).collect();
        if hidden.is_empty() { widths } else { self.widths_without(&hidden, limit) }
    }

    /// Returns the widths of the content; if that is too much, the widest column shrinks first.
    fn widths_without(&self, hidden: &[usize], limit: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.titles.iter().map(|title| columns(title)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(columns(&cell.text));
            }
        }
        for at in hidden {
            widths[*at] = 0;
        }
        let Some(limit) = limit else { return widths };
        let gaps = GAP * widths.len().saturating_sub(1 + hidden.len());
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(limit);
        while excess > 0 {
            // Of equal columns the last shrinks: people look for the columns on the left.
            let flexible =
                widths.iter_mut().zip(&self.fits).filter(|(_, fit)| **fit != TerminalColumnFit::Whole);
            let widest = flexible.map(|(width, _)| width).max_by_key(|width| **width);
            let Some(widest) = widest.filter(|width| **width > LEAST) else { break };
            *widest -= 1;
            excess -= 1;
        }
        self.narrowed(widths, limit)
    }

    /// Drops columns at the right if even the minimum widths are too much, because their remains would be meaningless.
    fn narrowed(&self, mut widths: Vec<usize>, limit: usize) -> Vec<usize> {
        let mut left = limit;
        for (width, fit) in widths.iter_mut().zip(&self.fits) {
            if *fit != TerminalColumnFit::Whole && *width > left {
                *width = if left < LEAST { 0 } else { left };
            }
            left = left.saturating_sub(*width + GAP);
        }
        widths
    }

    fn line(&self, cells: &[TerminalCell], widths: &[usize], paint: Paint) -> String {
        let columns = widths.iter().copied().zip(self.fits.iter().copied());
        line(cells, columns, paint)
    }
}

fn line(
    cells: &[TerminalCell],
    widths: impl Iterator<Item = (usize, TerminalColumnFit)>,
    paint: Paint,
) -> String {
    let mut line = String::new();
    let mut owed = 0;
    for (cell, (width, fit)) in cells.iter().zip(widths) {
        let text = match fit {
            TerminalColumnFit::CutMiddle => cut_middle(&cell.text, width),
            TerminalColumnFit::Below if cell.goes_below(width, fit) => String::new(),
            TerminalColumnFit::CutEnd | TerminalColumnFit::Whole | TerminalColumnFit::Below => {
                cut_words(&cell.text, width)
            }
        };
        if !text.is_empty() {
            line.extend(std::iter::repeat_n(' ', owed));
            owed = 0;
        }
        line.push_str(&paint.style(cell.style, &text));
        owed += width - columns(&text).min(width) + GAP;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TerminalTable {
        let mut table = TerminalTable::new(&["ID", "TITLE", "AGE"]);
        table.row([
            TerminalCell::new("ses_1"),
            TerminalCell::new("a long title of many words"),
            TerminalCell::new("3m"),
        ]);
        table.row([TerminalCell::new("ses_22"), TerminalCell::new("世界"), TerminalCell::new("")]);
        table
    }

    #[test]
    fn columns_are_aligned_and_lines_end_without_spaces() {
        insta::assert_snapshot!(table().render(None, Paint::OFF), @r"
        ID      TITLE                       AGE
        ses_1   a long title of many words  3m
        ses_22  世界
        ");
    }

    #[test]
    fn the_widest_column_is_cut_to_the_terminal() {
        insta::assert_snapshot!(table().render(Some(28), Paint::OFF), @r"
        ID      TITLE            AGE
        ses_1   a long title…    3m
        ses_22  世界
        ");
    }

    #[test]
    fn a_column_that_is_whole_is_never_cut_and_an_empty_one_is_left_out() {
        let mut table = TerminalTable::new(&["ID", "NONE", "PLACE"]);
        table.row([
            TerminalCell::new("ses_01234567"),
            TerminalCell::new(""),
            TerminalCell::new("/home/ana/src/customers/shop"),
        ]);
        let table = table
            .fit(&["ID"], TerminalColumnFit::Whole)
            .fit(&["PLACE"], TerminalColumnFit::CutMiddle)
            .without_empty();
        insta::assert_snapshot!(table.render(Some(30), Paint::OFF), @r"
        ID            PLACE
        ses_01234567  /home…omers/shop
        ");
        assert!(table.render(Some(5), Paint::OFF).contains("ses_01234567"));
    }

    #[test]
    fn a_reason_that_does_not_fit_goes_below_its_row_in_whole_words() {
        let mut table = TerminalTable::new(&["ID", "WHY"])
            .fit(&["ID"], TerminalColumnFit::Whole)
            .fit(&["WHY"], TerminalColumnFit::Below);
        let why = "exited with code 1 before it answered: no log-in";
        table.row([TerminalCell::new("ses_01234567"), TerminalCell::new(why)]);
        table.row([TerminalCell::new("ses_76543210"), TerminalCell::new("1 question")]);
        insta::assert_snapshot!(table.render(Some(36), Paint::OFF), @r"
        ID            WHY
        ses_01234567
          │ exited with code 1 before it
          │ answered: no log-in
        ses_76543210  1 question
        ");
        assert!(table.render(None, Paint::OFF).contains(&format!("ses_01234567  {why}")));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 0..60 {
            for line in table().lines(Some(width), Paint::OFF) {
                assert!(columns(&line) <= width, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn cells_are_cleaned_and_then_coloured() {
        let mut table = TerminalTable::new(&["A"]);
        table.row([TerminalCell::styled(TerminalStyle::Red, "x\x1b[0m\ny")]);
        assert_eq!(table.lines(None, Paint::ON)[1], "\x1b[31mx<U+001B>[0m⏎y\x1b[0m");
    }
}
