//! `intercom acp`: an ACP agent on stdio, for editors and tools that start one. It relays messages to the daemon, and
//! keeps running while the daemon is restarted.

mod daemon_socket;
mod message;
mod pending_requests;
mod relay;
mod stdio;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use self::daemon_socket::DaemonConnector;
use self::relay::Relay;
use super::CliContext;
use super::start::DaemonStarter;
use super::url;
use intercom_types::OnClientLeft;

/// Run an ACP agent on stdio, for an editor or a tool that speaks the Agent Client Protocol
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Enter this command in your editor as the command of an agent. It starts a daemon in the background if there is none. \
Sessions are in `intercom ls`, in the console and in Slack as well. When the editor is closed, those that nobody else has \
used end a minute later; `--on-close keep` lets them stay.

Examples:
  intercom acp --agent claude
  intercom acp --attach shop
  intercom acp --agent claude --on-close keep
  INTERCOM_URL=https://box.example:7411 INTERCOM_TOKEN_FILE=~/.token intercom acp")]
pub(super) struct AcpArgs {
    /// The profile of new sessions; see `intercom agents`
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// An existing session, instead of a new one
    #[arg(long, value_name = "SESSION", value_parser = super::non_empty_id())]
    attach: Option<String>,
    /// Fail if no daemon is running, instead of starting one
    #[arg(long)]
    no_start: bool,
    /// When the client leaves, `close` ends all its sessions at once, `keep` leaves them running; default: `on_close`
    /// in the configuration
    #[arg(long, value_name = "HOW", value_parser = on_close())]
    on_close: Option<OnClientLeft>,
}

fn on_close() -> impl TypedValueParser<Value = OnClientLeft> {
    PossibleValuesParser::new(OnClientLeft::ALL.map(OnClientLeft::as_str))
        .try_map(|word| word.parse::<OnClientLeft>())
}

pub(super) async fn run(args: AcpArgs, cx: &CliContext) -> anyhow::Result<()> {
    let transport = cx.client.transport().clone();
    let starter = if args.no_start { None } else { DaemonStarter::local(cx) };
    let connector = DaemonConnector { transport, target: target(&args), starter };
    let link = connector.open().await?;
    Relay::new(&connector, link, args.on_close == Some(OnClientLeft::Close)).run().await
}

/// Returns the request target, whose query has the settings of the connection.
fn target(args: &AcpArgs) -> String {
    let on_close = args.on_close.map(OnClientLeft::as_str);
    let named =
        [("on_close", on_close), ("agent", args.agent.as_deref()), ("attach", args.attach.as_deref())];
    let named = named.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let query: Vec<(&str, &str)> = [("relay", "1")].into_iter().chain(named).collect();
    let mut target = "/acp".to_owned();
    url::query(&query, &mut target);
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_stays_in_its_place_in_the_address() {
        let args = |agent: Option<&str>, on_close| AcpArgs {
            agent: agent.map(Into::into),
            attach: agent.map(Into::into),
            no_start: false,
            on_close,
        };
        assert_eq!(target(&args(None, None)), "/acp?relay=1");
        assert_eq!(target(&args(None, Some(OnClientLeft::Keep))), "/acp?relay=1&on_close=keep");
        let typed = target(&args(Some("a&b=c d/é"), Some(OnClientLeft::Close)));
        assert_eq!(
            typed,
            "/acp?relay=1&on_close=close&agent=a%26b%3Dc%20d%2F%C3%A9&attach=a%26b%3Dc%20d%2F%C3%A9"
        );
    }
}
