//! Calls to Slack's Web API, with a time limit. Failures are classified by what can be done about them.

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};
use hyper::{Method, Request};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use slack_morphism::errors::SlackClientError;
use slack_morphism::hyper_tokio::SlackClientHyperConnector;
use slack_morphism::{
    SlackApiToken, SlackApiTokenValue, SlackClient, SlackClientApiCallContext, SlackClientHttpConnector,
};
use tokio::task::JoinSet;
use tracing::Span;

use intercom_daemon::config;
use intercom_daemon::remote::RemoteUrl;

pub(super) type Connector = SlackClientHyperConnector<HttpsConnector<HttpConnector>>;

const APP_TOKEN: &str = "INTERCOM_SLACK_APP_TOKEN";
const BOT_TOKEN: &str = "INTERCOM_SLACK_BOT_TOKEN";
const CONNECT: Duration = Duration::from_secs(10);
/// The wait after a rate limit without a time.
const SLOW: Duration = Duration::from_secs(30);
const MISSING_SCOPE: &str = "missing_scope";
/// The missing scope of the app's token, which needs only this one.
const LACKS_CONNECTIONS: &str = "missing_scope: connections:write";
/// The size limit of an answer of which only the headers matter.
const MAX_ANSWER: usize = 256 * 1024;

/// The required scopes and their purposes.
pub const SCOPES: &[(&str, &str)] = &[
    ("chat:write", "to post threads and cards"),
    ("channels:history", "to read replies in threads, and to find a message after an interrupted post"),
    ("groups:history", "the same in private channels"),
    ("channels:read", "to check that the channel exists"),
    ("groups:read", "the same for private channels"),
    ("reactions:write", "to acknowledge replies"),
    ("files:write", "to attach long diffs"),
    ("commands", "for /intercom and the message shortcut"),
];

/// The failure of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlackCallError {
    /// The same call will never succeed: Slack's error code and its explanation.
    Refused(String),
    /// A person must fix the setup first: tokens, scopes, channels.
    Setup(String),
    /// The rate limit, with the time to wait.
    Slow(Duration),
    /// The call had no effect; a later one may succeed.
    Later(String),
    /// The call had no effect; the error code is unknown to us.
    Unknown(String),
    /// The call may or may not have had its effect.
    Unsure(String),
}

impl std::fmt::Display for SlackCallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(why)
            | Self::Setup(why)
            | Self::Later(why)
            | Self::Unknown(why)
            | Self::Unsure(why) => f.write_str(why),
            Self::Slow(wait) => write!(f, "rate limited for {} s", wait.as_secs()),
        }
    }
}

/// The two tokens.
pub(super) struct SlackTokens {
    pub(super) app: String,
    pub(super) bot: String,
}

impl SlackTokens {
    /// Reads the tokens from the configured files, else from the environment.
    pub(super) fn read(slack: &config::SlackConfig) -> Result<Self, String> {
        let token = |file: Option<&Path>, variable: &str, begin: &str| {
            let text = match file {
                Some(file) => std::fs::read_to_string(file)
                    .map_err(|error| format!("{} cannot be read: {error}", file.display()))?,
                None => std::env::var(variable)
                    .map_err(|_| format!("there is no token: set its file in [slack], or {variable}"))?,
            };
            let text = text.trim().to_owned();
            let place = file.map_or_else(|| variable.to_owned(), |file| file.display().to_string());
            if !text.starts_with(begin) || text.contains(char::is_whitespace) {
                return Err(format!("{place} does not hold a token that begins with {begin}"));
            }
            Ok(text)
        };
        Ok(Self {
            app: token(slack.app_token_file.as_deref(), APP_TOKEN, "xapp-")?,
            bot: token(slack.bot_token_file.as_deref(), BOT_TOKEN, "xoxb-")?,
        })
    }
}

/// The client of the Web API.
pub(super) struct WebApi {
    pub(super) client: SlackClient<Connector>,
    /// Connections for cards that people wait for: no edit is ahead of them.
    urgent: Connector,
    pub(super) app: SlackApiToken,
    bot: SlackApiToken,
    api_url: String,
    limit: Duration,
}

impl std::fmt::Debug for WebApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Web").field("api_url", &self.api_url).finish_non_exhaustive()
    }
}

impl WebApi {
    pub(super) fn new(slack: &config::SlackConfig, tokens: &SlackTokens) -> std::io::Result<Self> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        // HTTP/1.1 only: a call that times out closes its connection, and no other call shares it.
        let https = HttpsConnectorBuilder::new().with_native_roots()?.https_or_http().enable_http1();
        let https = https.wrap_connector(tcp);
        let urgent = Connector::with_connector(https.clone()).with_slack_api_url(&slack.api_url);
        let connector = Connector::with_connector(https).with_slack_api_url(&slack.api_url);
        let token = |text: &str| SlackApiToken::new(SlackApiTokenValue(text.to_owned()));
        Ok(Self {
            client: SlackClient::new(connector),
            urgent,
            app: token(&tokens.app),
            bot: token(&tokens.bot),
            api_url: slack.api_url.clone(),
            limit: Duration::from_secs(slack.timeout_seconds),
        })
    }

    fn connector(&self) -> &Connector {
        &self.client.http_api.connector
    }

    /// Checks that an answer is Slack's: a proxy may answer with a page of its own.
    fn is_answer(answer: Value) -> Result<Value, SlackCallError> {
        if answer["ok"] == Value::Bool(true) {
            return Ok(answer);
        }
        Err(SlackCallError::Unsure("the answer is not Slack's".to_owned()))
    }

    async fn with_timeout<T>(
        &self,
        call: impl Future<Output = Result<T, SlackClientError>>,
    ) -> Result<T, SlackCallError> {
        match tokio::time::timeout(self.limit, call).await {
            Ok(result) => result.map_err(|error| classify_client_error(&error)),
            Err(_) => Err(SlackCallError::Unsure(format!("no answer within {} s", self.limit.as_secs()))),
        }
    }

    /// Calls a method with a JSON body.
    pub(super) async fn call(&self, method: &str, body: &Value) -> Result<Value, SlackCallError> {
        self.call_on(self.connector(), method, body).await
    }

    /// Like [`Self::call`], on connections of its own.
    pub(super) async fn call_urgently(&self, method: &str, body: &Value) -> Result<Value, SlackCallError> {
        self.call_on(&self.urgent, method, body).await
    }

    async fn call_on(
        &self,
        connector: &Connector,
        method: &str,
        body: &Value,
    ) -> Result<Value, SlackCallError> {
        let span = Span::none();
        self.with_timeout(connector.http_post(method, body, context(Some(&self.bot), &span)))
            .await
            .and_then(Self::is_answer)
    }

    /// Uses a connection for urgent calls, so that the next one need not open it first.
    pub(super) async fn keep_warm(&self) -> Result<(), SlackCallError> {
        self.call_urgently("api.test", &json!({})).await.map(drop)
    }

    /// Calls a method with a query string.
    pub(super) async fn query(
        &self,
        method: &str,
        params: &[(&str, String)],
    ) -> Result<Value, SlackCallError> {
        let span = Span::none();
        let params: Vec<(&str, Option<&String>)> =
            params.iter().map(|(name, value)| (*name, Some(value))).collect();
        self.with_timeout(self.connector().http_get(method, &params, context(Some(&self.bot), &span)))
            .await
            .and_then(Self::is_answer)
    }

    /// Checks that the app's token permits a connection.
    pub(super) async fn can_connect(&self) -> Result<(), SlackCallError> {
        let (span, nothing) = (Span::none(), json!({}));
        let open = self.connector().http_post::<_, Value>(
            "apps.connections.open",
            &nothing,
            context(Some(&self.app), &span),
        );
        match self.with_timeout(open).await.and_then(Self::is_answer) {
            Err(SlackCallError::Setup(code)) if code == MISSING_SCOPE => {
                Err(SlackCallError::Setup(LACKS_CONNECTIONS.to_owned()))
            }
            opened => opened.map(drop),
        }
    }

    /// Sends a private answer to an envelope's response URL.
    pub(super) async fn answer(&self, url: &str, body: &Value) -> Result<(), SlackCallError> {
        let url = url.parse().map_err(|_| SlackCallError::Refused("it is no URL".to_owned()))?;
        let span = Span::none();
        let context = SlackClientApiCallContext { is_sensitive_url: true, ..context(None, &span) };
        self.with_timeout(self.connector().http_post_uri::<_, Value>(url, body, context)).await.map(drop)
    }

    /// Uploads a file to a thread.
    pub(super) async fn upload(&self, file: &FileUpload<'_>) -> Result<(), SlackCallError> {
        let FileUpload { name, content, channel, thread, title } = *file;
        let length = content.len().to_string();
        let place = self
            .query("files.getUploadURLExternal", &[("filename", name.to_owned()), ("length", length)])
            .await
            .map_err(SlackCallError::into_retryable)?;
        let (Some(url), Some(id)) = (place["upload_url"].as_str(), place["file_id"].as_str()) else {
            return Err(SlackCallError::Refused("Slack offers no upload URL".to_owned()));
        };
        let url = url.parse().map_err(|_| SlackCallError::Refused("it is no URL".to_owned()))?;
        let span = Span::none();
        let kind = "application/octet-stream".to_owned();
        let put = self.connector().http_post_uri_binary::<Value>(
            url,
            kind,
            content.as_bytes(),
            context(None, &span),
        );
        self.with_timeout(put).await.map_err(SlackCallError::into_retryable)?;
        let body = json!({
            "files": [{ "id": id, "title": title }], "channel_id": channel, "thread_ts": thread,
        });
        self.call("files.completeUploadExternal", &body).await.map(drop)
    }

    /// Returns our bot's identity and its scopes, which are in a header of the answer.
    pub(super) async fn identify(&self) -> Result<BotIdentity, SlackCallError> {
        let later = |error: &dyn std::fmt::Display| SlackCallError::Later(error.to_string());
        let url = RemoteUrl::parse(&format!("{}/auth.test", self.api_url))
            .map_err(|why| SlackCallError::Setup(why.to_owned()))?;
        let asked = async {
            let stream = url.connect(None).await.map_err(|error| later(&error))?;
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|error| later(&error))?;
            let mut tasks = JoinSet::new(); // aborts the connection's task when this future is dropped
            tasks.spawn(connection);
            let request = Request::builder()
                .method(Method::POST)
                .uri(&url.path)
                .header(HOST, url.authority())
                .header(CONTENT_LENGTH, 0)
                .header(AUTHORIZATION, format!("Bearer {}", self.bot.token_value.0))
                .body(Full::<bytes::Bytes>::default())
                .map_err(|error| later(&error))?;
            let response = sender.send_request(request).await.map_err(|error| later(&error))?;
            let scopes = response.headers().get("x-oauth-scopes").and_then(|head| head.to_str().ok());
            let scopes = scopes.map(|list| list.split(',').map(|scope| scope.trim().to_owned()).collect());
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| later(&error))?.to_bytes();
            let answer: Value = serde_json::from_slice(&body).map_err(|error| later(&error))?;
            match answer["error"].as_str() {
                Some(code) => Err(classify_error_code(code, None)),
                None => Ok(BotIdentity {
                    team: answer["team"].as_str().unwrap_or("a workspace").to_owned(),
                    user: answer["user"].as_str().unwrap_or("a bot").to_owned(),
                    user_id: answer["user_id"].as_str().unwrap_or_default().to_owned(),
                    scopes,
                }),
            }
        };
        tokio::time::timeout(self.limit, asked)
            .await
            .unwrap_or_else(|_| Err(SlackCallError::Later("no answer in time".to_owned())))
    }
}

/// The identity of our bot.
#[derive(Debug, Clone)]
pub(super) struct BotIdentity {
    pub(super) team: String,
    pub(super) user: String,
    pub(super) user_id: String,
    /// The scopes; `None` if Slack does not report them.
    pub(super) scopes: Option<Vec<String>>,
}

impl BotIdentity {
    /// Returns the missing scopes.
    pub(super) fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let Some(scopes) = &self.scopes else { return Vec::new() };
        SCOPES.iter().filter(|(scope, _)| !scopes.iter().any(|known| known == scope)).copied().collect()
    }
}

pub(super) struct FileUpload<'a> {
    pub(super) name: &'a str,
    pub(super) title: &'a str,
    pub(super) content: &'a str,
    pub(super) channel: &'a str,
    pub(super) thread: Option<&'a str>,
}

fn context<'a>(token: Option<&'a SlackApiToken>, span: &'a Span) -> SlackClientApiCallContext<'a> {
    SlackClientApiCallContext {
        rate_control_params: None,
        token,
        tracing_span: span,
        is_sensitive_url: false,
    }
}

impl SlackCallError {
    /// Treats an unknown outcome of a read-only call as temporary: the call can be repeated in any case.
    fn into_retryable(self) -> Self {
        match self {
            Self::Unsure(why) => Self::Later(why),
            other => other,
        }
    }
}

fn classify_client_error(error: &SlackClientError) -> SlackCallError {
    match error {
        SlackClientError::ApiError(error) => classify_error_code(&error.code, error.errors.as_deref()),
        SlackClientError::RateLimitError(error) => SlackCallError::Slow(error.retry_after.unwrap_or(SLOW)),
        SlackClientError::HttpError(error) => SlackCallError::Unsure(format!("status {}", error.status_code)),
        SlackClientError::HttpProtocolError(error) => {
            let cause = error.cause.as_ref().and_then(|cause| cause.downcast_ref::<legacy::Error>());
            match cause {
                Some(cause) if cause.is_connect() => {
                    SlackCallError::Later(format!("no connection: {}", innermost(cause)))
                }
                Some(cause) => SlackCallError::Unsure(innermost(cause)),
                None => SlackCallError::Unsure("the call was cut off".to_owned()),
            }
        }
        _ => SlackCallError::Unsure("the answer cannot be read".to_owned()),
    }
}

/// Returns the innermost error, which is the specific one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn classify_error_code(code: &str, more: Option<&[String]>) -> SlackCallError {
    match code {
        "ratelimited" | "rate_limited" | "message_limit_exceeded" => SlackCallError::Slow(SLOW),
        "fatal_error" | "internal_error" | "service_unavailable" | "request_timeout" => {
            SlackCallError::Unsure(code.to_owned())
        }
        MISSING_SCOPE
        | "invalid_auth"
        | "not_authed"
        | "account_inactive"
        | "token_revoked"
        | "token_expired"
        | "not_allowed_token_type"
        | "channel_not_found"
        | "not_in_channel"
        | "is_archived"
        | "no_permission"
        | "access_denied"
        | "team_access_not_granted"
        | "ekm_access_denied"
        | "org_login_required"
        | "restricted_action"
        | "invalid_app_id" => SlackCallError::Setup(code.to_owned()),
        _ => {
            let more = more.filter(|more| !more.is_empty()).map(|more| format!(": {}", more.join("; ")));
            let why = format!("{code}{}", more.unwrap_or_default());
            if is_final(code) { SlackCallError::Refused(why) } else { SlackCallError::Unknown(why) }
        }
    }
}

/// Returns true if Slack's error code certainly means that the same call will never succeed.
fn is_final(code: &str) -> bool {
    code.starts_with("invalid_")
        || code.starts_with("missing_")
        || code.starts_with("cant_")
        || matches!(
            code,
            // Messages
            "no_text"
                | "msg_too_long"
                | "msg_blocks_too_long"
                | "too_many_attachments"
                | "metadata_too_large"
                | "message_not_found"
                | "thread_not_found"
                | "cannot_reply_to_message"
                | "edit_window_closed"
                | "block_mismatch"
                | "user_not_in_channel"
                | "user_not_found"
                // Reactions
                | "already_reacted"
                | "no_reaction"
                | "not_reactable"
                | "bad_timestamp"
                | "too_many_reactions"
                | "too_many_emoji"
                // Views
                | "expired_trigger_id"
                | "exchanged_trigger_id"
                | "trigger_expired"
                | "trigger_exchanged"
                | "view_too_large"
                | "hash_conflict"
                | "not_found"
                // Response URLs
                | "used_url"
                | "expired_url"
                | "no_active_hooks"
        )
}

impl SlackCallError {
    /// Returns the step that a person can take about an error code of Slack's.
    pub(super) fn advice(&self) -> Option<&'static str> {
        let code = match self {
            Self::Setup(code) => code,
            Self::Unknown(_) => return Some("unknown error code; the message will be sent again"),
            _ => return None,
        };
        Some(match code.as_str() {
            LACKS_CONNECTIONS => {
                "generate a token with the scope connections:write: \"Basic Information\" → \"App-Level Tokens\""
            }
            "invalid_auth" | "not_authed" | "token_revoked" | "token_expired" => {
                "the token is not valid: copy it again from the app's pages, see docs/SLACK.md"
            }
            "not_allowed_token_type" => {
                "the two tokens may be mixed up: xapp-… is the app's, xoxb-… the bot's"
            }
            "account_inactive" => "the app was removed from the workspace: install it again",
            MISSING_SCOPE => "the app lacks a scope: `intercom slack doctor` says which",
            "channel_not_found" => "the channel does not exist, or is private and the app is not in it",
            "not_in_channel" => "invite the app to the channel: /invite @intercom",
            "is_archived" => "the channel is archived: choose another one",
            _ => "ask an administrator of the Slack workspace",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_not_known_is_no_refusal() {
        assert_eq!(
            classify_error_code("invalid_blocks", None),
            SlackCallError::Refused("invalid_blocks".to_owned())
        );
        assert_eq!(classify_error_code("brand_new", None), SlackCallError::Unknown("brand_new".to_owned()));
        assert_eq!(
            classify_error_code("internal_error", None),
            SlackCallError::Unsure("internal_error".to_owned())
        );
        assert_eq!(
            classify_error_code("not_in_channel", None),
            SlackCallError::Setup("not_in_channel".to_owned())
        );
    }
}
