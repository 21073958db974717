//! `intercom acp`: an ACP agent on stdio, for editors and tools that start one. It relays to the daemon, which does the
//! work, and stays where it is when the daemon is restarted.

mod ledger;
mod link;
mod message;
mod relay;
mod start;
mod stdio;

use clap::ValueEnum;

use self::link::Door;
use self::relay::Relay;
use self::start::Starter;
use super::Context;
use super::transport::Transport;
use super::url;

/// Be an ACP agent on stdio, for an editor or a tool that speaks the Agent Client Protocol
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Give this command to your editor as the command of an agent. It starts a daemon in the background if there is none. \
Sessions live on when the editor is closed: they are in `intercom ls`, in the console and in Slack, and can be attached \
to again.

Examples:
  intercom acp --agent claude
  intercom acp --attach shop
  INTERCOM_URL=https://box.example:7411 INTERCOM_TOKEN_FILE=~/.token intercom acp")]
pub(super) struct Args {
    /// The profile that new sessions are started with; see `intercom agents`
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// A session that runs already, instead of a new one
    #[arg(long, value_name = "SESSION", value_parser = super::id())]
    attach: Option<String>,
    /// Fail if no daemon is running, instead of starting one
    #[arg(long)]
    no_start: bool,
    /// What becomes of the client's sessions when it goes
    #[arg(long, value_name = "HOW", value_enum, default_value_t = OnClose::Keep)]
    on_close: OnClose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnClose {
    Keep,
    Close,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let transport = cx.client.transport().clone();
    let may_start = !args.no_start && matches!(transport, Transport::Unix(_));
    let starter = may_start.then(|| Starter::new(cx));
    let door = Door { transport, target: target(&args), starter };
    let link = door.open().await?;
    Relay::new(&door, link, args.on_close == OnClose::Close).run().await
}

/// What the daemon is told with the request for a connection.
fn target(args: &Args) -> String {
    let on_close = match args.on_close {
        OnClose::Keep => "keep",
        OnClose::Close => "close",
    };
    let named = [("agent", &args.agent), ("attach", &args.attach)];
    let named = named.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
    let query: Vec<(&str, &str)> =
        [("relay", "1"), ("on_close", on_close)].into_iter().chain(named).collect();
    let mut target = "/acp".to_owned();
    url::query(&query, &mut target);
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_stays_in_its_place_in_the_address() {
        let args = |agent: Option<&str>, on_close| Args {
            agent: agent.map(Into::into),
            attach: agent.map(Into::into),
            no_start: false,
            on_close,
        };
        assert_eq!(target(&args(None, OnClose::Keep)), "/acp?relay=1&on_close=keep");
        let typed = target(&args(Some("a&b=c d/é"), OnClose::Close));
        assert_eq!(
            typed,
            "/acp?relay=1&on_close=close&agent=a%26b%3Dc%20d%2F%C3%A9&attach=a%26b%3Dc%20d%2F%C3%A9"
        );
    }
}
