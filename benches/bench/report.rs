//! The figures of all rounds, as a table for people and as JSON for programs.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use comparison::Comparison;

mod comparison;

pub(crate) use comparison::{Row, Target};

#[derive(Debug)]
pub(crate) struct Report {
    rounds: usize,
    figures: Vec<Figure>,
    comparisons: Vec<Comparison>,
}

/// One line of the table: one sample per round.
#[derive(Debug)]
struct Figure {
    name: String,
    unit: &'static str,
    samples: Vec<f64>,
    target: Option<&'static str>,
}

impl Report {
    pub(crate) fn new(rounds: usize) -> Self {
        Self { rounds, figures: Vec::new(), comparisons: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: String, unit: &'static str, sample: f64) {
        self.put(name, unit, sample, None);
    }

    /// `target` is `> 1`, `>= 1` or `< 1`.
    pub(crate) fn add_target(&mut self, name: String, unit: &'static str, sample: f64, target: &'static str) {
        self.put(name, unit, sample, Some(target));
    }

    /// In milliseconds.
    pub(crate) fn add_percentile(&mut self, name: String, times: &[Duration], percent: usize) {
        self.put(name, "ms", percentile(times, percent), None);
    }

    pub(crate) fn put(
        &mut self,
        name: String,
        unit: &'static str,
        sample: f64,
        target: Option<&'static str>,
    ) {
        match self.figures.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.samples.push(sample),
            None => self.figures.push(Figure { name, unit, samples: vec![sample], target }),
        }
    }

    /// One side's sample of a row.
    pub(crate) fn compare(&mut self, row: Row, column: &str, sample: f64) {
        let known = self.comparisons.iter().position(|known| known.row.name == row.name);
        let at = known.unwrap_or_else(|| {
            self.comparisons.push(Comparison { row, columns: Vec::new() });
            self.comparisons.len() - 1
        });
        self.comparisons[at].add(column, sample);
    }

    pub(crate) fn json(&self) -> Value {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|figure| {
                let (min, median, max) = figure.spread();
                json!({
                    "name": figure.name, "unit": figure.unit, "median": median, "min": min, "max": max,
                    "samples": figure.samples, "target": figure.target, "met": figure.met(),
                })
            })
            .collect();
        let comparisons: Vec<Value> = self.comparisons.iter().map(Comparison::json).collect();
        json!({ "rounds": self.rounds, "cores": cores(), "figures": figures, "comparisons": comparisons })
    }
}

impl Figure {
    /// Smallest, middle, largest.
    fn spread(&self) -> (f64, f64, f64) {
        spread(&self.samples)
    }

    fn met(&self) -> Option<bool> {
        meets(self.target?, self.spread().1)
    }
}

/// Smallest, middle, largest.
pub(crate) fn spread(samples: &[f64]) -> (f64, f64, f64) {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    };
    (sorted[0], median, sorted[sorted.len() - 1])
}

/// Whether a value is within a limit such as `>= 1.2`.
pub(crate) fn meets(target: &str, value: f64) -> Option<bool> {
    let (sign, limit) = target.split_once(' ')?;
    let limit: f64 = limit.parse().ok()?;
    Some(match sign {
        "<" => value < limit,
        ">" => value > limit,
        "<=" => value <= limit,
        _ => value >= limit,
    })
}

pub(crate) fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.figures.is_empty() {
            self.table(f)?;
        }
        comparison::table(&self.comparisons, f)?;
        write!(f, "{} rounds on {} cores; a ratio is taken within each round", self.rounds, cores())
    }
}

impl Report {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
        writeln!(f, "{:width$}  {:>10}  {:>23}  unit  target", "figure", "median", "min – max")?;
        for figure in &self.figures {
            let (min, median, max) = figure.spread();
            let range = format!("{} – {}", number(min), number(max));
            write!(f, "{:width$}  {:>10}  {range:>23}  {:4}", figure.name, number(median), figure.unit)?;
            match (figure.target, figure.met()) {
                (Some(target), Some(true)) => writeln!(f, "  {target} met")?,
                (Some(target), _) => writeln!(f, "  {target} MISSED")?,
                (None, _) => writeln!(f)?,
            }
        }
        Ok(())
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Three digits or more, and thousands apart.
pub(crate) fn number(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.3}");
    }
    if value < 1000.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).expect("digits are ASCII"))
        .collect();
    groups.join(",")
}
