//! The content of a client's prompt: validated, counted, and fitted to the agent's capabilities.

use serde::Deserialize;
use serde_json::json;

use super::refusal::RpcRefusal;
use intercom_daemon::config::AcpServerConfig;
use intercom_types::{Json, PromptCapabilities};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptBlock {
    r#type: String,
    text: Option<String>,
    data: Option<String>,
    uri: Option<String>,
    resource: Option<EmbeddedResource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EmbeddedResource {
    uri: String,
    text: Option<String>,
    blob: Option<String>,
}

/// Returns the blocks in the form that the agent accepts.
pub(super) fn fitted(
    blocks: &[Json],
    takes: PromptCapabilities,
    limits: &AcpServerConfig,
) -> Result<Json, RpcRefusal> {
    let (mut text, mut attached, mut something) = (0, 0, false);
    let mut fitted = Vec::with_capacity(blocks.len());
    for (n, raw) in blocks.iter().enumerate() {
        let wrong = |what: String| RpcRefusal::params(format!("prompt[{n}]: {what}"));
        let block: PromptBlock =
            serde_json::from_str(raw.as_str()).map_err(|error| wrong(error.to_string()))?;
        let needed = |field: &str| wrong(format!("`{field}` is missing"));
        let mut kept = raw.clone();
        match block.r#type.as_str() {
            "" => return Err(needed("type")),
            "text" => {
                let words = block.text.ok_or_else(|| needed("text"))?;
                something |= !words.trim().is_empty();
                text += words.len();
            }
            "resource_link" => {
                text += block.uri.ok_or_else(|| needed("uri"))?.len();
                something = true;
            }
            sort @ ("image" | "audio") => {
                if !(if sort == "image" { takes.image } else { takes.audio }) {
                    return Err(wrong(format!("this agent does not accept {sort}")));
                }
                attached += block.data.ok_or_else(|| needed("data"))?.len();
                something = true;
            }
            "resource" => {
                let resource = block.resource.ok_or_else(|| needed("resource"))?;
                attached += resource.text.as_ref().or(resource.blob.as_ref()).map_or(0, String::len);
                something = true;
                if !takes.embedded_context {
                    let words = resource.text.ok_or_else(|| {
                        wrong("this agent does not accept embedded files that are not text".to_owned())
                    })?;
                    kept =
                        Json::of(&json!({ "type": "text", "text": format!("{}:\n{words}", resource.uri) }));
                }
            }
            // An unknown type: the agent may know it.
            _ => {
                attached += raw.as_str().len();
                something = true;
            }
        }
        fitted.push(kept);
    }
    if !something {
        return Err(RpcRefusal::params("the prompt is empty"));
    }
    if text > limits.max_prompt_bytes {
        let most = limits.max_prompt_bytes;
        return Err(RpcRefusal::params(format!(
            "the prompt is too long: {text} bytes of text, at most {most}"
        )));
    }
    if attached > limits.max_attached_bytes {
        let most = limits.max_attached_bytes;
        return Err(RpcRefusal::params(format!("too much is attached: {attached} bytes, at most {most}")));
    }
    Ok(Json::of(&fitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(blocks: &[&str], takes: PromptCapabilities) -> Result<String, String> {
        let blocks: Vec<Json> = blocks.iter().map(|block| Json::trusted(*block)).collect();
        let limits =
            AcpServerConfig { max_prompt_bytes: 20, max_attached_bytes: 30, ..AcpServerConfig::default() };
        fitted(&blocks, takes, &limits).map(|json| json.as_str().to_owned()).map_err(|why| format!("{why:?}"))
    }

    #[test]
    fn blocks_pass_as_they_came_if_the_agent_takes_them() {
        let all = PromptCapabilities { image: true, audio: true, embedded_context: true };
        let blocks = [
            r#"{"type":"text", "text":"hi","annotations":{"x":1.0}}"#,
            r#"{"type":"resource_link","uri":"file:///a","name":"a"}"#,
            r#"{"type":"image","data":"QUJD","mimeType":"image/png"}"#,
            r#"{"type":"resource","resource":{"uri":"u","text":"t"}}"#,
            r#"{"type":"new"}"#,
        ];
        assert_eq!(fit(&blocks, all).unwrap(), format!("[{}]", blocks.join(",")));
    }

    #[test]
    fn what_the_agent_does_not_take_is_refused_or_put_in_words() {
        let embedded = r#"{"type":"resource","resource":{"uri":"file:///a","text":"A"}}"#;
        assert_eq!(
            fit(&[embedded], PromptCapabilities::default()).unwrap(),
            r#"[{"type":"text","text":"file:///a:\nA"}]"#
        );
        for (block, why) in [
            (r#"{"type":"image","data":"x"}"#, "does not accept image"),
            (r#"{"type":"audio","data":"x"}"#, "does not accept audio"),
            (r#"{"type":"resource","resource":{"uri":"u","blob":"x"}}"#, "not text"),
            (r#"{"type":"text"}"#, "`text` is missing"),
            (r#"{"text":"x"}"#, "`type` is missing"),
            (r#""x""#, "prompt[0]"),
            (r#"{"type":"text","text":" \n"}"#, "empty"),
            (r#"{"type":"text","text":"ooooooooooooooooooooo"}"#, "at most 20"),
            (r#"{"type":"new","x":"oooooooooooooooooooooooooooooooooo"}"#, "at most 30"),
        ] {
            let refused = fit(&[block], PromptCapabilities::default()).unwrap_err();
            assert!(refused.contains(why), "{block}: {refused}");
        }
        assert!(fit(&[], PromptCapabilities::default()).unwrap_err().contains("empty"));
    }
}
