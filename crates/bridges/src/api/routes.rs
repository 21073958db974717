//! The list of all endpoints. Both the router and `openapi.json` come from it.

use std::sync::LazyLock;

use axum::extract::State;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Json, Router};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::access::require;
use super::extract::ShortList;
use super::{ApiBridge, events, handlers, health, idempotency, web};
use intercom_daemon::ops::{
    AuditQuery, ClearanceQuery, EventsQuery, LogFileQuery, OperationKind, PromptQuery, QuestionQuery,
    RequiredRole, SessionQuery, StatsQuery,
};
use intercom_types::{
    AgentChange, AuditPage, AuditVerdict, BackupRequest, BackupResult, BackupState, Clearance,
    ClearanceExplanation, ConfigReload, ConsoleCode, CreatedToken, Decision, DecisionStats, EventPage,
    FailureSeen, Health, InterruptAnswer, InterruptRequest, LadderChange, List, ListedAgent, ListedGrant,
    ListedToken, ListedWebSession, NewPrompt, NewSession, NudgeAnswer, NudgeRequest, PolicySummary,
    PresetChange, Prompt, PromptChange, Question, QuestionAnswer, Quorum, Role, RulesTest, RulesTestResult,
    Session, SettingAgreed, SettingChange, SettingSent, SignIn, SnoozeRequest, StopResult, TokenRequest,
};

/// One endpoint.
pub(super) struct Endpoint {
    method: Method,
    path: &'static str,
    least: RequiredRole,
    about: &'static str,
    route: MethodRouter<ApiBridge>,
    query: Option<Describe>,
    body: Option<Describe>,
    answers: Vec<(u16, Option<Describe>)>,
    /// True if it may answer with a stream of events.
    streams: bool,
    /// True if it answers with lines of JSON.
    file: bool,
}

type Describe = fn(&mut SchemaGenerator) -> Schema;

fn describe<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl Endpoint {
    fn new<H, T>(
        method: Method,
        path: &'static str,
        least: impl Into<RequiredRole>,
        about: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, ApiBridge>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("a usual method");
        let (route, least) = (on(filter, handler), least.into());
        Self {
            method,
            path,
            least,
            about,
            route,
            query: None,
            body: None,
            answers: Vec::new(),
            streams: false,
            file: false,
        }
    }

    fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(describe::<T>);
        self
    }

    fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(describe::<T>);
        self
    }

    fn answers<T: JsonSchema>(mut self, status: u16) -> Self {
        self.answers.push((status, Some(describe::<T>)));
        self
    }

    fn answers_nothing(mut self, status: u16) -> Self {
        self.answers.push((status, None));
        self
    }

    fn answers_file(mut self, status: u16) -> Self {
        self.file = true;
        self.answers_nothing(status)
    }

    fn streams(mut self) -> Self {
        self.streams = true;
        self
    }
}

/// All endpoints below `/api/v1`.
#[rustfmt::skip] // a table reads best as one
pub(super) fn endpoints() -> Vec<Endpoint> {
    use OperationKind::{
        AcknowledgeFailure, Answer, Backup, ChangeAgent, ChangeLadder, ChangePreset, ChangePrompt, ChangeSetting, Decide, Interrupt,
        KillSession, ListAgentSessions, ManageTokens, Nudge, Read, ReadAudit, Reload, RemoveSession, ResumeSession, RevokeGrant, SendPrompt, Snooze,
        StartSession, StopSession, TakeBackPrompt, TestRules,
    };
    use RequiredRole::Nothing;
    let get = Method::GET;
    let post = Method::POST;
    let delete = Method::DELETE;
    let of = |method: &Method| method.clone();
    vec![
        Endpoint::new(of(&get), "/health", Nothing, "The daemon's health; more with a role", health::health).answers::<Health>(200),
        Endpoint::new(of(&get), "/openapi.json", Nothing, "This description", openapi).answers::<Value>(200),
        Endpoint::new(of(&get), "/agents", Read, "The agents that can be started", handlers::agents).query::<ShortList>().answers::<List<ListedAgent>>(200),
        Endpoint::new(of(&post), "/backup", Backup, "A copy of the database", handlers::backup).body::<BackupRequest>().answers::<BackupResult>(200),
        Endpoint::new(of(&get), "/backup", Backup, "The progress of the running backup", handlers::backup_state).answers::<BackupState>(200),
        Endpoint::new(of(&get), "/sessions", Read, "Sessions, newest first", handlers::sessions).query::<SessionQuery>().answers::<List<Session>>(200),
        Endpoint::new(of(&post), "/sessions", StartSession, "Starts an agent", handlers::start).body::<NewSession>().answers::<Session>(201),
        Endpoint::new(of(&get), "/sessions/{id}", Read, "One session", handlers::session).answers::<Session>(200),
        Endpoint::new(of(&delete), "/sessions/{id}", RemoveSession, "Removes a session that has ended, with its log", handlers::remove).answers_nothing(204),
        Endpoint::new(of(&get), "/sessions/{id}/prompts", Read, "Its prompts, newest first", handlers::prompts).query::<PromptQuery>().answers::<List<Prompt>>(200),
        Endpoint::new(of(&post), "/sessions/{id}/prompts", SendPrompt, "Sends a prompt to the agent", handlers::send).body::<NewPrompt>().answers::<Prompt>(202),
        Endpoint::new(of(&post), "/prompts/{id}", ChangePrompt, "Changes a queued prompt: its text, or its place in the queue", handlers::change_prompt).body::<PromptChange>().answers::<Prompt>(200),
        Endpoint::new(of(&delete), "/prompts/{id}", TakeBackPrompt, "Withdraws a queued prompt", handlers::take_back).answers_nothing(204),
        Endpoint::new(of(&post), "/sessions/{id}/nudge", Nudge, "Reminds an agent that seems stuck", handlers::nudge).body::<NudgeRequest>().answers::<NudgeAnswer>(202),
        Endpoint::new(of(&post), "/sessions/{id}/interrupt", Interrupt, "Ends the agent's turn", handlers::interrupt).body::<InterruptRequest>().answers::<InterruptAnswer>(202),
        Endpoint::new(of(&post), "/sessions/{id}/seen", AcknowledgeFailure, "Marks its failure as seen by an operator", handlers::seen).body::<FailureSeen>().answers::<Session>(200),
        Endpoint::new(of(&post), "/sessions/{id}/snooze", Snooze, "Pauses the steps against a stall for a while", handlers::snooze).body::<SnoozeRequest>().answers::<Session>(200),
        Endpoint::new(of(&post), "/sessions/{id}/list", ListAgentSessions, "The sessions that the agent itself has stored", handlers::agent_sessions).answers::<Value>(200),
        Endpoint::new(of(&post), "/sessions/{id}/set", ChangeSetting, "Sets the agent's mode, model or an option", handlers::set).body::<SettingChange>().answers::<SettingSent>(202).answers::<SettingAgreed>(200),
        Endpoint::new(of(&post), "/sessions/{id}/ladder", ChangeLadder, "Sets the steps against a stall", handlers::ladder).body::<LadderChange>().answers::<Session>(200),
        Endpoint::new(of(&post), "/sessions/{id}/stop", StopSession, "Stops the agent, gently first; answers when all of its processes have exited", handlers::stop).answers::<StopResult>(200),
        Endpoint::new(of(&post), "/sessions/{id}/kill", KillSession, "Kills the agent at once; answers when all of its processes have exited", handlers::kill).answers::<StopResult>(200),
        Endpoint::new(of(&post), "/sessions/{id}/resume", ResumeSession, "Starts an ended session again", handlers::resume).answers::<Session>(200),
        Endpoint::new(of(&post), "/sessions/{id}/agent", ChangeAgent, "Changes the agent of a deferred session that has had no process", handlers::agent).body::<AgentChange>().answers::<Session>(200),
        Endpoint::new(of(&post), "/sessions/{id}/preset", ChangePreset, "Changes the preset; to extend the permissions, an approver", handlers::preset).body::<PresetChange>().answers::<Session>(200),
        Endpoint::new(of(&get), "/clearances", Read, "Clearances, newest first", handlers::clearances).query::<ClearanceQuery>().answers::<List<Clearance>>(200),
        Endpoint::new(of(&get), "/clearances/{id}", Read, "One clearance", handlers::clearance).answers::<Clearance>(200),
        Endpoint::new(of(&post), "/clearances/{id}/decision", Decide, "Decides it, once", handlers::decide).body::<Decision>().answers::<Clearance>(200).answers::<Quorum>(202),
        Endpoint::new(of(&get), "/questions", Read, "Questions, newest first", handlers::questions).query::<QuestionQuery>().answers::<List<Question>>(200),
        Endpoint::new(of(&get), "/questions/{id}", Read, "One question", handlers::question).answers::<Question>(200),
        Endpoint::new(of(&post), "/questions/{id}/answer", Answer, "Answers it, once", handlers::answer).body::<QuestionAnswer>().answers::<Question>(200),
        Endpoint::new(of(&get), "/events", Read, "The log: a stream, or with `Accept: application/json` a page", events::events).query::<EventsQuery>().answers::<EventPage>(200).streams(),
        Endpoint::new(of(&get), "/sessions/{id}/log", Read, "A session's log up to now as a file, one event per line", events::download).query::<LogFileQuery>().answers_file(200),
        Endpoint::new(of(&get), "/figures", Read, "Statistics: time to decisions, agents' waiting time, and events", handlers::stats).query::<StatsQuery>().answers::<DecisionStats>(200),
        Endpoint::new(of(&get), "/clearances/{id}/explanation", Read, "The result of each rule, and the rule that \"always allow\" would add", handlers::explanation).answers::<ClearanceExplanation>(200),
        Endpoint::new(of(&get), "/policy", Read, "The rules in force", handlers::policy).answers::<PolicySummary>(200),
        Endpoint::new(of(&post), "/policy/test", TestRules, "Evaluates past requests with other rules; changes nothing", handlers::test_rules).body::<RulesTest>().answers::<RulesTestResult>(200),
        Endpoint::new(of(&get), "/grants", Read, "Grants, newest first", handlers::grants).query::<ShortList>().answers::<List<ListedGrant>>(200),
        Endpoint::new(of(&delete), "/grants/{id}", RevokeGrant, "Revokes a grant", handlers::revoke_grant).answers_nothing(204),
        Endpoint::new(of(&post), "/reload", Reload, "Reads the configuration again", handlers::reload).answers::<ConfigReload>(200),
        Endpoint::new(of(&get), "/tokens", ManageTokens, "Tokens, newest first", handlers::tokens).query::<ShortList>().answers::<List<ListedToken>>(200),
        Endpoint::new(of(&post), "/tokens", ManageTokens, "Creates a token; its secret is shown once", handlers::create_token).body::<TokenRequest>().answers::<CreatedToken>(201),
        Endpoint::new(of(&delete), "/tokens/{id}", ManageTokens, "Revokes a token, effective immediately", handlers::revoke_token).answers_nothing(204),
        Endpoint::new(of(&post), "/web/codes", Read, "A link that signs the caller in to the console, once", web::code).answers::<ConsoleCode>(201),
        Endpoint::new(of(&post), "/web/sessions", Nothing, "Signs in to the console with a code or a token: sets a cookie", web::sign_in).body::<SignIn>().answers::<ListedWebSession>(201),
        Endpoint::new(of(&get), "/web/sessions", Read, "Sign-ins to the console: your own; all of them for admins", web::list).query::<ShortList>().answers::<List<ListedWebSession>>(200),
        Endpoint::new(of(&delete), "/web/sessions/{id}", Read, "Signs out; `current` is the caller's own sign-in", web::sign_out).answers_nothing(204),
        Endpoint::new(of(&get), "/audit", ReadAudit, "The audit, oldest first, or newest first `before` a row", handlers::audit).query::<AuditQuery>().answers::<AuditPage>(200),
        Endpoint::new(of(&get), "/audit/verify", ReadAudit, "Verifies every row and every link of the audit chain", handlers::verify_audit).answers::<AuditVerdict>(200),
    ]
}

/// The router below `/api/v1`: each endpoint behind its role, each POST remembered by its `Idempotency-Key`.
pub(super) fn router(api: &ApiBridge) -> Router<ApiBridge> {
    endpoints().into_iter().fold(Router::new(), |router, endpoint| {
        let Endpoint { method, path, least, mut route, .. } = endpoint;
        // A secret that is shown once must not be stored for a repeated answer.
        if method == Method::POST && !["/tokens", "/web/codes", "/web/sessions"].contains(&path) {
            route = route.layer(from_fn_with_state(api.clone(), idempotency::honour));
        }
        let route = match least {
            RequiredRole::Nothing => route,
            least => route.layer(from_fn_with_state((api.clone(), least), require)),
        };
        router.route(path, route)
    })
}

async fn openapi(State(_): State<ApiBridge>) -> Json<&'static Value> {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(document);
    Json(&DOCUMENT)
}

/// Returns the `OpenAPI` 3.1 description of this list.
pub(super) fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.definitions_path = "/components/schemas".into();
    });
    // Answers have all of their fields; requests may omit some.
    let mut schemas = SchemaGenerators {
        sent: settings.clone().for_serialize().into_generator(),
        taken: settings.into_generator(),
    };
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in endpoints() {
        let path = format!("/api/v1{}", endpoint.path);
        let operation = operation(&endpoint, &mut schemas);
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[endpoint.method.as_str().to_ascii_lowercase()] = operation;
    }
    let metrics = json!({
        "summary": "Metrics for Prometheus", "security": [{ "token": [] }], "x-least-role": Role::Viewer.as_str(),
        "responses": { "200": { "description": "OK", "content": { "text/plain": {} } } },
    });
    paths.insert("/metrics".to_owned(), json!({ "get": metrics }));
    let mut sent = schemas.sent.take_definitions(true);
    sent.extend(schemas.taken.take_definitions(true));
    let mut schemas = sent;
    schemas.insert(
        "Error".to_owned(),
        json!({
            "type": "object", "required": ["error"],
            "properties": { "error": {
                "type": "object", "required": ["code", "message", "hint"],
                "properties": {
                    "code": { "type": "string" }, "message": { "type": "string" },
                    "hint": { "type": ["string", "null"] },
                },
            }},
        }),
    );
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "intercom", "version": env!("CARGO_PKG_VERSION"),
            "description": "Hosts headless coding agents and connects them to the people who run them.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

struct SchemaGenerators {
    sent: SchemaGenerator,
    taken: SchemaGenerator,
}

fn operation(endpoint: &Endpoint, schemas: &mut SchemaGenerators) -> Value {
    let json_of = |schema: Value| json!({ "application/json": { "schema": schema } });
    let mut parameters: Vec<Value> = endpoint
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    if let Some(query) = endpoint.query {
        parameters.extend(query_parameters(query, &mut schemas.taken));
    }
    let mut responses = Map::new();
    for (status, schema) in &endpoint.answers {
        let mut content = schema.map(|schema| json_of(schema(&mut schemas.sent).to_value()));
        if let Some(content) = content.as_mut().filter(|_| endpoint.streams) {
            content["text/event-stream"] = json!({});
        }
        let mut answer = json!({ "description": "OK" });
        if endpoint.file {
            content = Some(json!({ "application/x-ndjson": {} }));
        }
        if let Some(content) = content {
            answer["content"] = content;
        }
        responses.insert(status.to_string(), answer);
    }
    let error = json_of(json!({ "$ref": "#/components/schemas/Error" }));
    responses.insert("default".to_owned(), json!({ "description": "Refused or failed", "content": error }));
    let mut operation =
        json!({ "summary": endpoint.about, "parameters": parameters, "responses": responses });
    match endpoint.least.usual() {
        Some(role) => {
            operation["security"] = json!([{ "token": [] }]);
            operation["x-least-role"] = json!(role.as_str());
            if endpoint.least == RequiredRole::ToStart {
                operation["x-least-role-setting"] = json!("access.start");
            }
        }
        None => operation["security"] = json!([]),
    }
    if let Some(body) = endpoint.body {
        operation["requestBody"] = json!({ "content": json_of(body(&mut schemas.taken).to_value()) });
    }
    operation
}

/// Returns the fields of a query, one parameter each.
fn query_parameters(query: Describe, generator: &mut SchemaGenerator) -> Vec<Value> {
    let schema = query(generator).to_value();
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
    let whole = match name.and_then(|name| generator.definitions_mut().remove(&name)) {
        Some(definition) => definition,
        None => schema,
    };
    let required: Vec<&str> =
        whole["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = whole["properties"].as_object().into_iter().flatten();
    fields
        .map(|(name, schema)| {
            let required = required.contains(&name.as_str());
            json!({ "name": name, "in": "query", "required": required, "schema": schema })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_described() {
        let document = document();
        for endpoint in endpoints() {
            let method = endpoint.method.as_str().to_ascii_lowercase();
            let operation = &document["paths"][format!("/api/v1{}", endpoint.path)][&method];
            assert!(operation["summary"].is_string(), "{method} {}", endpoint.path);
            assert!(!endpoint.answers.is_empty(), "{method} {}", endpoint.path);
        }
    }

    #[test]
    fn the_published_description_is_the_one_that_is_served() {
        intercom_testkit::assert_published("openapi.json", &document());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str));
                    map.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20);
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
    }
}
