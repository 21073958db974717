//! Rules as sentences for people.

use super::launch::Options;
use super::rule::{CommandEntry, Commands, Names, RiskLimit, Rule, RuleAction};

/// Describes a rule in a sentence.
pub fn sentence(rule: &Rule) -> String {
    let names = |names: &Names| match names {
        Names::One(name) => name.clone(),
        Names::Any(names) => names.join(" or "),
    };
    let mut parts = Vec::new();
    parts.extend(rule.agent.as_ref().map(|agent| format!("of {}", names(agent))));
    parts.extend(rule.tool.as_ref().map(|tool| format!("to {}", names(tool))));
    parts.extend(rule.path.as_ref().map(|path| format!("at {}", names(path))));
    parts.extend(rule.command.as_ref().map(|command| {
        format!("{} `{}`", if rule.exact { "exactly" } else { "beginning with" }, words(command))
    }));
    parts.extend((rule.options == Options::Any).then(|| "with any options".to_owned()));
    parts.extend(rule.workspace.as_ref().map(|workspace| format!("in {workspace}")));
    parts.extend(rule.max_diff_lines.map(|lines| format!("changing at most {lines} lines")));
    parts.extend(rule.risk.as_ref().map(|risk| match risk {
        RiskLimit::UpTo(risk) => format!("up to {} risk", risk.as_str()),
        RiskLimit::Exactly(risks) => {
            format!("of {} risk", risks.iter().map(|risk| risk.as_str()).collect::<Vec<_>>().join(" or "))
        }
    }));
    parts.extend(rule.until.as_ref().map(|until| format!("until {until}")));
    parts.extend(rule.lasts.as_ref().map(|lasts| format!("for {lasts}")));
    let what =
        if parts.is_empty() { "everything".to_owned() } else { format!("requests {}", parts.join(", ")) };
    let verb = match rule.then {
        then @ (RuleAction::Allow | RuleAction::Deny) => then.to_string(),
        RuleAction::Ask => match &rule.ask {
            Some(whom) => format!("ask {} about", whom.join(" or ")),
            None => "ask about".to_owned(),
        },
    };
    let name = rule.name.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
    let reason = rule.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{name}{verb} {what}{reason}")
}

fn words(commands: &Commands) -> String {
    match commands {
        Commands::Line(line) => line.clone(),
        Commands::Words(words) => words.join(" "),
        Commands::Any(entries) => {
            let entry = |entry: &CommandEntry| match entry {
                CommandEntry::Line(line) => line.clone(),
                CommandEntry::Words(words) => words.join(" "),
            };
            entries.iter().map(entry).collect::<Vec<_>>().join("` or `")
        }
    }
}
