//! `intercom resume`: the next generation of a session.

use serde_json::json;

use super::Context;
use super::url::url;
use crate::answers::Session;
use crate::text::clean;

/// Start the agent of an ended session again
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A session
    #[arg(value_name = "SES", value_parser = super::id())]
    session: String,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let answer = cx.client.post(&url(&["sessions", &args.session, "resume"], &[]), &json!({})).await?;
    cx.answer(&answer, || {
        let session: Session = answer.parse()?;
        let life = session.generation.map(|number| format!(", generation {number}")).unwrap_or_default();
        Ok(format!("{} {}{life}", clean(&session.label()), clean(&session.phase)))
    })
}
