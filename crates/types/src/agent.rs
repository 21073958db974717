//! The information that an agent reports about itself: settings and usage.

use serde::{Deserialize, Serialize};

use super::{Json, Time};

/// The settings that can be changed while an agent runs, and their current values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Controls {
    pub mode: Option<String>,
    pub modes: Vec<NamedSetting>,
    pub model: Option<String>,
    pub models: Vec<NamedSetting>,
    /// All other options, as the agent reports them.
    pub options: Option<Json>,
}

/// The ids of the modes in which agents are known to ask before they act; the plainest comes first. A mode that only
/// plans is none of them.
const ASKING_MODES: &[&str] = &["ask", "always-ask", "manual", "read-only", "default"];

impl Controls {
    /// Returns the ids of the modes that the agent offers, in its own order. Newer agents offer them as an option.
    pub fn offered_modes(&self) -> Vec<String> {
        if !self.modes.is_empty() {
            return self.modes.iter().map(|mode| mode.id.clone()).collect();
        }
        let Some(option) = self.mode_option() else { return Vec::new() };
        let mut modes = Vec::new();
        for value in option["options"].as_array().into_iter().flatten() {
            // Values may be grouped.
            let group = value["options"].as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            modes.extend(group.iter().filter_map(|value| value["value"].as_str().map(str::to_owned)));
        }
        modes
    }

    /// Returns the id of the agent's current mode, if it reports one.
    pub fn current_mode(&self) -> Option<String> {
        let option = || self.mode_option()?["currentValue"].as_str().map(str::to_owned);
        self.mode.clone().or_else(option)
    }

    /// Returns an offered mode in which the agent is known to ask, other than its current one.
    pub fn asking_mode(&self) -> Option<String> {
        let (offered, current) = (self.offered_modes(), self.current_mode());
        let is_offered = |known: &&str| {
            let mut fitting = offered.iter().filter(|mode| mode.eq_ignore_ascii_case(known));
            fitting.find(|mode| current.as_ref() != Some(mode)).cloned()
        };
        ASKING_MODES.iter().find_map(is_offered)
    }

    /// Returns all other options, if the agent reports them as a list.
    pub fn option_list(&self) -> Option<Vec<serde_json::Value>> {
        serde_json::from_str(self.options.as_ref()?.as_str()).ok()
    }

    fn mode_option(&self) -> Option<serde_json::Value> {
        self.option_list()?.into_iter().find(|option| option["category"] == "mode")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Named")]
pub struct NamedSetting {
    pub id: String,
    pub name: String,
}

/// A change of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlChange {
    Mode(String),
    Model(String),
    Option { id: String, value: SettingValue },
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Setting")]
pub enum SettingValue {
    /// One of the offered values; for a switch, `true` or `false`.
    Value(String),
    /// The value of a switch.
    Switch(bool),
}

/// The tokens of one turn, as far as the agent reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnTokenCounts {
    pub input: u64,
    pub output: u64,
    pub total: u64,
}

/// The usage of a session, as far as its agents report it. Money is in millionths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    pub turns: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub total_tokens: u64,
    pub cost_micros: u64,
    pub currency: Option<String>,
    /// The last cost that its process reported, which is the sum since that process started.
    said_micros: u64,
    /// The day of `day_micros`, in days since 1970.
    day: i64,
    day_micros: u64,
}

impl UsageTotals {
    pub fn add_turn(&mut self, tokens: TurnTokenCounts) {
        self.turns += 1;
        self.input_tokens = self.input_tokens.saturating_add(tokens.input);
        self.output_tokens = self.output_tokens.saturating_add(tokens.output);
        self.total_tokens = self.total_tokens.saturating_add(tokens.total);
    }

    /// Adds a reported sum. A sum below the last one is a new sum from zero.
    pub fn add_cost(&mut self, sum_micros: u64, currency: Option<&str>, now: Time) {
        let more = sum_micros.checked_sub(self.said_micros).unwrap_or(sum_micros);
        self.said_micros = sum_micros;
        self.cost_micros = self.cost_micros.saturating_add(more);
        self.day_micros = self.cost_on_day(day(now)).saturating_add(more);
        self.day = day(now);
        self.currency = currency.map(str::to_owned).or(self.currency.take());
    }

    /// Starts a new sum: the agent's new session counts from zero.
    pub fn reset_process_cost(&mut self) {
        self.said_micros = 0;
    }

    /// Returns the cost of a day.
    pub fn cost_on_day(&self, day: i64) -> u64 {
        if self.day == day { self.day_micros } else { 0 }
    }
}

/// Returns the day of a time, in UTC.
pub fn day(time: Time) -> i64 {
    time.millis().div_euclid(24 * 60 * 60 * 1000)
}

/// One step of an agent's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Step")]
pub struct ProgressStep {
    pub text: String,
    pub status: String,
}

/// The limits of a recorded plan: more than people would read.
pub const MAX_STEPS: usize = 50;
const MAX_STEP: usize = 200;

impl ProgressStep {
    pub fn new(text: &str, status: &str) -> Self {
        let kept = |text: &str, most: usize| text.chars().take(most).collect();
        Self { text: kept(text, MAX_STEP), status: kept(status, 20) }
    }
}

/// The content that an agent accepts in a prompt besides text and links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(rename = "Takes")]
pub struct PromptCapabilities {
    pub image: bool,
    pub audio: bool,
    pub embedded_context: bool,
}

impl PromptCapabilities {
    /// Our own protocol accepts text only; a resource can be embedded as text.
    pub const TEXT_ONLY: Self = Self { image: false, audio: false, embedded_context: true };
}

/// The maximum characters of a title, which is one line.
const MAX_TITLE: usize = 200;
/// The maximum characters of a title made from a prompt.
const MAX_FIRST_LINE: usize = 80;

/// Shortens a title to its first line; `None` if that is blank.
pub fn title(text: &str) -> Option<String> {
    truncate_first_line(text, MAX_TITLE)
}

/// Shortens the first line of a prompt to a title.
pub fn first_line(text: &str) -> Option<String> {
    truncate_first_line(text, MAX_FIRST_LINE)
}

fn truncate_first_line(text: &str, most: usize) -> Option<String> {
    let line = text.trim().lines().next()?.trim_end();
    let Some((end, _)) = line.char_indices().nth(most) else { return Some(line.to_owned()) };
    // The ellipsis replaces the last character.
    let last = line[..end].char_indices().next_back().map_or(0, |(at, _)| at);
    let kept = &line[..last];
    let is_word_end = line[last..].starts_with(char::is_whitespace);
    let words = kept.rsplit_once(char::is_whitespace).map(|(words, _)| words);
    let kept = match words {
        Some(words) if !is_word_end && words.chars().count() * 2 >= most => words,
        _ => kept,
    };
    Some(format!("{}…", kept.trim_end()))
}

/// The information about an agent that every bridge shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    pub controls: Controls,
    pub spent: UsageTotals,
    /// The reason why no new turn begins; `None` if turns may begin.
    pub capped: Option<String>,
    /// Its last reported plan and progress.
    #[serde(default)]
    pub steps: Vec<ProgressStep>,
    /// The agent's title for the session.
    #[serde(default)]
    pub title: Option<String>,
    /// The beginning of the first prompt.
    #[serde(default)]
    pub first_prompt: Option<String>,
    /// Unknown before the agent was ready, and for agents that do not report it.
    #[serde(default)]
    pub takes: Option<PromptCapabilities>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_that_asks_is_one_of_the_offered_modes_and_not_the_current_one() {
        let named = |id: &&str| NamedSetting { id: (*id).to_owned(), name: (*id).to_owned() };
        let check = |current: &str, modes: &[&str], expected: Option<&str>| {
            let modes = modes.iter().map(named).collect();
            let controls = Controls { mode: Some(current.to_owned()), modes, ..Controls::default() };
            assert_eq!(controls.asking_mode().as_deref(), expected, "{current} {controls:?}");
        };
        check("agent", &["read-only", "workspace-write", "agent"], Some("read-only"));
        check("acceptEdits", &["default", "acceptEdits", "plan"], Some("default"));
        check("default", &["default", "plan", "yolo"], None);
        check("build", &["build", "plan"], None);
        let options = r#"[{"id":"m","category":"mode","currentValue":"auto","options":
            [{"group":"g","options":[{"value":"auto"},{"value":"Ask"}]}]}]"#;
        let controls = Controls { options: Some(Json::trusted(options)), ..Controls::default() };
        assert_eq!(controls.offered_modes(), ["auto", "Ask"]);
        assert_eq!(controls.asking_mode().as_deref(), Some("Ask"));
        let odd = Controls { options: Some(Json::trusted(r#"{"a":1}"#)), ..Controls::default() };
        assert_eq!((odd.offered_modes().len(), odd.asking_mode()), (0, None));
    }

    #[test]
    fn a_first_line_is_cut_at_the_end_of_a_word_and_says_so() {
        assert_eq!(first_line("\n  Fix it \nand that").as_deref(), Some("Fix it"));
        assert_eq!(first_line(&"é".repeat(80)).unwrap(), "é".repeat(80));
        assert_eq!(first_line(&"é".repeat(100)).unwrap(), format!("{}…", "é".repeat(79)));
        let long = "Please look through the whole repository for places where prices are rounded twice and mend them";
        let cut = "Please look through the whole repository for places where prices are rounded…";
        assert_eq!(first_line(long).as_deref(), Some(cut));
        assert_eq!(first_line(&format!("{} b", "a".repeat(79))).unwrap(), format!("{}…", "a".repeat(79)));
        assert_eq!(first_line(" \n"), None);
    }

    #[test]
    fn costs_are_sums_of_one_life_and_of_one_day() {
        let at = |hours: i64| Time::from_millis(hours * 3_600_000);
        let mut spent = UsageTotals::default();
        spent.add_cost(100, Some("USD"), at(1));
        spent.add_cost(250, None, at(2));
        assert_eq!((spent.cost_micros, spent.cost_on_day(0)), (250, 250));
        spent.reset_process_cost();
        spent.add_cost(50, None, at(3));
        assert_eq!((spent.cost_micros, spent.cost_on_day(0)), (300, 300));
        spent.add_cost(20, None, at(4)); // a sum that falls is a new one
        assert_eq!(spent.cost_micros, 320);
        spent.add_cost(30, None, at(25));
        assert_eq!((spent.cost_micros, spent.cost_on_day(0), spent.cost_on_day(1)), (330, 0, 10));
        assert_eq!(spent.currency.as_deref(), Some("USD"));
    }
}
