//! `intercom token`: tokens for the API on the network.

use serde_json::json;

use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::time::date_time;
use super::url::url;
use super::{CliContext, non_empty_id, output};
use intercom_types::text::clean;
use intercom_types::{CreatedToken, ListedToken, Time, Token, TokenRequest};

/// Make, list and revoke tokens for the API on the network
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A token is sent as `Authorization: Bearer …`. For the command line, set INTERCOM_URL, and INTERCOM_TOKEN or \
INTERCOM_TOKEN_FILE; INTERCOM_CA_FILE names the certificate of a daemon that signed its own.")]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    verb: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    /// Create a token; its secret is shown only once
    Create {
        /// The name of its owner
        #[arg(long)]
        name: String,
        /// The role: viewer, operator, approver or admin
        #[arg(long, value_parser = ["viewer", "operator", "approver", "admin"])]
        role: String,
        /// The lifetime, such as 30d or 12h; without it, the token does not expire
        #[arg(long)]
        ttl: Option<String>,
    },
    /// List the tokens, with the time and the address of their last use
    #[command(alias = "ls")]
    List,
    /// Revoke a token; its connections end at once
    Revoke {
        /// The token's id, a prefix of it, or its owner's name, if the owner has only one token
        #[arg(value_name = "TOKEN", value_parser = non_empty_id())]
        id: String,
    },
}

pub(super) async fn run(args: TokenArgs, cx: &CliContext) -> anyhow::Result<()> {
    match args.verb {
        TokenCommand::Create { name, role, ttl } => {
            let body = TokenRequest { name, role, ttl };
            let answer = cx.client.post(&url(&["tokens"], &[]), &json!(body)).await?;
            cx.print_answer(&answer, || {
                let CreatedToken { secret, listed } = answer.parse()?;
                let (id, name, role) = (listed.token.id.short(), clean(&body.name), &body.role);
                output::print_note(&format!("token {id} for {name} ({role}), shown only once:"));
                Ok(secret)
            })
        }
        TokenCommand::List => {
            let list = cx.client.list(&["tokens"], &[]).await?;
            if cx.json {
                return output::print_json(&list.body);
            }
            let mut table = TerminalTable::new(&["TOKEN", "NAME", "ROLE", "STATE", "MADE", "LAST USED"])
                .fit(&["TOKEN", "NAME", "ROLE"], TerminalColumnFit::Whole)
                .fit(&["STATE", "MADE", "LAST USED"], TerminalColumnFit::Below);
            for ListedToken { token, valid } in list.items()? {
                let used = match (token.last_used_at, &token.last_used_from) {
                    (Some(at), Some(from)) => format!("{} from {from}", date_time(&at.to_string())),
                    _ => "never".to_owned(),
                };
                table.row([
                    TerminalCell::new(&token.id.short()),
                    TerminalCell::new(&token.name),
                    TerminalCell::new(token.role.as_str()),
                    TerminalCell::new(&state(&token, valid)),
                    TerminalCell::new(&date_time(&token.created_at.to_string())),
                    TerminalCell::new(&used),
                ]);
            }
            cx.table(&table, "there are no tokens; `intercom token create` makes one")
        }
        TokenCommand::Revoke { id } => {
            let answer = cx.client.delete(&url(&["tokens", &id], &[])).await?;
            cx.print_answer(&answer, || Ok(format!("{} revoked", clean(&id))))
        }
    }
}

fn state(token: &Token, valid: bool) -> String {
    let at = |at: Time| date_time(&at.to_string());
    match (token.revoked_at, token.expires_at) {
        (Some(revoked), _) => format!("revoked {}", at(revoked)),
        (None, Some(end)) if valid => format!("valid until {}", at(end)),
        (None, Some(end)) => format!("expired {}", at(end)),
        (None, None) => "valid".to_owned(),
    }
}
