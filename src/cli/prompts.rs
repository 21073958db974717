//! `intercom prompts`: the prompts of a session, sent and queued.

use jiff::Timestamp;

use super::style::status_style;
use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::time::age;
use super::url::url;
use super::{CliContext, output};
use intercom_types::Prompt;
use intercom_types::text::{clean, cut_words, short};

/// List the prompts of a session, or withdraw one
#[derive(Debug, clap::Args)]
pub(super) struct PromptsArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    /// Withdraw this prompt, if it has not been delivered
    #[arg(long, value_name = "PRM", value_parser = super::non_empty_id())]
    remove: Option<String>,
}

/// The maximum width of a prompt in the list; the log has all of it.
const MAX_TEXT: usize = 400;

pub(super) async fn run(args: PromptsArgs, cx: &CliContext) -> anyhow::Result<()> {
    if let Some(prompt) = args.remove {
        let answer = cx.client.delete(&url(&["prompts", &prompt], &[("session", &args.session)])).await?;
        return cx.print_answer(&answer, || Ok(format!("{} withdrawn", clean(&prompt))));
    }
    let list = cx.client.list(&["sessions", &args.session, "prompts"], &[]).await?;
    if cx.json {
        return output::print_json(&list.body);
    }
    let now = Timestamp::now();
    let mut table = TerminalTable::new(&["ID", "STATE", "AGE", "BY", "TEXT"])
        .fit(&["ID", "STATE", "AGE", "BY"], TerminalColumnFit::Whole)
        .fit(&["TEXT"], TerminalColumnFit::Below);
    for prompt in list.items::<Prompt>()? {
        table.row([
            TerminalCell::new(&short(&prompt.id)),
            TerminalCell::styled(status_style(prompt.state.as_str()), prompt.state.as_str()),
            TerminalCell::new(&age(Some(prompt.at), now)),
            TerminalCell::new(&prompt.by),
            TerminalCell::new(&cut_words(&prompt.text, MAX_TEXT)),
        ]);
    }
    cx.table(&table, "no prompts")
}
