//! Answers that real agents gave, shortened where they only list things.

use super::*;

#[test]
fn claude_and_codex_advertise_steering_beside_their_capabilities() {
    let claude = r#"{"protocolVersion":1,"agentCapabilities":{"_meta":{"claudeCode":{"promptQueueing":true},"authStatus":{}},
        "promptCapabilities":{"image":true,"embeddedContext":true},"mcpCapabilities":{"http":true,"sse":true},"auth":{"logout":{}},
        "providers":{},"loadSession":true,"sessionCapabilities":{"additionalDirectories":{},"close":{},"delete":{},"fork":{},"list":{},
        "resume":{},"systemPrompt":{"mode":{"override":{}}}}},"agentInfo":{"name":"@agentclientprotocol/claude-agent-acp",
        "title":"Claude Agent","version":"0.99.1"},"authMethods":[],"_meta":{"steering":{"supported":true}}}"#;
    let read = InitializeAnswer::read(raw(claude)).unwrap();
    assert_eq!(read.version, Some(1));
    let can = read.features;
    assert!(can.load && can.resume && can.list && can.close && can.steer && can.image && !can.audio);
    assert!(read.auth_methods.is_empty());
}

#[test]
fn gemini_can_load_and_nothing_else_and_needs_a_login() {
    let gemini = r#"{"protocolVersion":1,"authMethods":[{"id":"oauth-personal","name":"Log in with Google",
        "description":"Log in with your Google account"},{"id":"gemini-api-key","name":"Gemini API key",
        "_meta":{"api-key":{"provider":"google"}}}],"agentInfo":{"name":"gemini-cli","title":"Gemini CLI","version":"0.61.0"},
        "agentCapabilities":{"loadSession":true,"promptCapabilities":{"image":true,"audio":true,"embeddedContext":true},
        "mcpCapabilities":{"http":true,"sse":true}}}"#;
    let read = InitializeAnswer::read(raw(gemini)).unwrap();
    assert!(
        read.features.load
            && read.features.audio
            && !read.features.resume
            && !read.features.close
            && !read.features.steer
    );
    let ids: Vec<&str> = read.auth_methods.iter().map(|method| &*method.id).collect();
    assert_eq!(ids, ["oauth-personal", "gemini-api-key"]);
}

#[test]
fn tokens_are_found_in_usage_or_in_the_quota() {
    let tokens = |text| {
        SessionPromptAnswer::read(raw(text))
            .unwrap()
            .tokens
            .map(|tokens| (tokens.input, tokens.output, tokens.total))
    };
    let codex = r#"{"stopReason":"end_turn","usage":{"totalTokens":220,"inputTokens":200,"cachedReadTokens":0,"outputTokens":20}}"#;
    assert_eq!(tokens(codex), Some((Some(200), Some(20), Some(220))));
    let gemini = r#"{"stopReason":"end_turn","_meta":{"quota":{"token_count":{"input_tokens":200,"output_tokens":20},"model_usage":[]}}}"#;
    assert_eq!(tokens(gemini), Some((Some(200), Some(20), None)));
    let failed =
        r#"{"stopReason":"end_turn","usage":null,"_meta":{"quota":{"token_count":null,"model_usage":[]}}}"#;
    assert_eq!(tokens(failed), None);
}

#[test]
fn models_of_agents_that_have_no_config_option_for_them() {
    let started = r#"{"sessionId":"s","models":{"availableModels":[{"modelId":"m[low]","name":"M (low)","description":"d"}],
        "currentModelId":"m[low]"}}"#;
    let started = SessionStartAnswer::read(raw(started));
    let models = started.models();
    assert_eq!(models.current.as_deref(), Some("m[low]"));
    assert_eq!((&*models.available[0].id, &*models.available[0].name), ("m[low]", "M (low)"));
    assert!(config_options(started.config_options).is_empty() && started.modes().available.is_empty());
}

#[test]
fn keys_come_in_any_order() {
    let params = r#"{"sessionId":"s","update":{"_meta":{"x":1},"toolCallId":"t","sessionUpdate":"tool_call","rawInput":{}}}"#;
    assert_eq!(SessionUpdateParts::read(raw(params)).unwrap().kind.as_deref(), Some("tool_call"));
}
