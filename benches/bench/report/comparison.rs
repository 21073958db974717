//! Figures side by side: intercom, other builds of it, and the reference.

use std::fmt;

use serde_json::{Value, json};

use super::{meets, number, spread};

/// What a row is about.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) target: Option<Target>,
    /// The column that the others are divided by.
    pub(crate) reference: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// Of the figure itself.
    Value(&'static str),
    /// Of its ratio to the reference.
    Ratio(&'static str),
}

/// A row with one sample per round and column.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) row: Row,
    pub(super) columns: Vec<(String, Vec<f64>)>,
}

impl Comparison {
    pub(super) fn add(&mut self, column: &str, sample: f64) {
        match self.columns.iter_mut().find(|(known, _)| known == column) {
            Some((_, samples)) => samples.push(sample),
            None => self.columns.push((column.to_owned(), vec![sample])),
        }
    }

    fn of_reference(&self) -> Option<&[f64]> {
        let reference = self.columns.iter().find(|(column, _)| column == self.row.reference);
        reference.map(|(_, samples)| samples.as_slice())
    }

    /// The columns that are compared, in the order of their names: the build under test is first.
    fn compared(&self) -> Vec<&(String, Vec<f64>)> {
        let others = self.columns.iter().filter(|(column, _)| column != self.row.reference);
        let mut others: Vec<_> = others.collect();
        others.sort_by(|(one, _), (other, _)| one.cmp(other));
        others
    }

    /// The median of the ratios within each round.
    fn ratio(&self, samples: &[f64]) -> Option<f64> {
        let ratios = samples.iter().zip(self.of_reference()?).map(|(sample, reference)| sample / reference);
        Some(spread(&ratios.collect::<Vec<_>>()).1)
    }

    fn met(&self, samples: &[f64]) -> Option<bool> {
        match self.row.target? {
            Target::Value(target) => meets(target, spread(samples).1),
            Target::Ratio(target) => meets(target, self.ratio(samples)?),
        }
    }

    fn target(&self) -> Option<String> {
        Some(match self.row.target? {
            Target::Value(target) => format!("{target} {}", self.row.unit),
            Target::Ratio(target) => format!("ratio {target}"),
        })
    }

    pub(super) fn json(&self) -> Value {
        let columns: Vec<Value> = self
            .columns
            .iter()
            .map(|(column, samples)| {
                let (min, median, max) = spread(samples);
                let compared = column != self.row.reference;
                let ratio = compared.then(|| self.ratio(samples)).flatten();
                let met = compared.then(|| self.met(samples)).flatten();
                json!({
                    "column": column, "median": median, "min": min, "max": max, "samples": samples,
                    "ratio": ratio, "met": met,
                })
            })
            .collect();
        json!({ "name": self.row.name, "unit": self.row.unit, "target": self.target(), "columns": columns })
    }
}

/// One line for each row and build.
pub(super) fn table(comparisons: &[Comparison], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if comparisons.is_empty() {
        return Ok(());
    }
    let width = |text: &Comparison| text.row.name.chars().count();
    let width = comparisons.iter().map(width).max().unwrap_or(0);
    writeln!(
        f,
        "{:width$}  {:20}  {:>10}  {:>10}  unit  {:>6}  target",
        "side by side", "", "median", "reference", "ratio"
    )?;
    for comparison in comparisons {
        let reference =
            comparison.of_reference().map_or("–".to_owned(), |samples| number(spread(samples).1));
        for (column, samples) in comparison.compared() {
            let median = number(spread(samples).1);
            let ratio = comparison.ratio(samples).map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
            let Row { name, unit, .. } = &comparison.row;
            write!(f, "{name:width$}  {column:20}  {median:>10}  {reference:>10}  {unit:4}  {ratio:>6}")?;
            match (comparison.target(), comparison.met(samples)) {
                (Some(target), Some(true)) => writeln!(f, "  {target} met")?,
                (Some(target), _) => writeln!(f, "  {target} MISSED")?,
                (None, _) => writeln!(f)?,
            }
        }
    }
    Ok(())
}
