//! The forms of an agent's questions, and the answers to them.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::AcpDriver;
use crate::acp::send::{self, ElicitationOutcome};
use crate::trim_json;
use intercom_types::{Answer, Json, RequestId};

impl AcpDriver {
    pub(super) fn forget_question(&mut self, request: &RequestId) -> Option<Json> {
        let form = self.memory.questions.remove(request.as_json());
        self.dirty |= form.is_some();
        form
    }

    /// Encodes an answer. An instruction is the filled-in form, or the text of its only field.
    pub(super) fn encode_answer(
        &mut self,
        request: &RequestId,
        decision: Answer,
        instruction: Option<&str>,
    ) -> String {
        let form = self.forget_question(request);
        let content = instruction.and_then(|text| filled_in(text, form.as_ref()));
        match decision {
            Answer::Continue | Answer::Refine => {
                send::elicitation_answer(request, ElicitationOutcome::Accepted(content.as_ref()))
            }
            Answer::Stop => send::elicitation_answer(request, ElicitationOutcome::Declined),
        }
    }
}

/// Fills in a form. JSON is the complete form; other text goes into its only field, or else into its first text field.
pub(super) fn filled_in(text: &str, form: Option<&Json>) -> Option<Json> {
    #[derive(Deserialize)]
    struct ElicitationForm {
        #[serde(default)]
        properties: serde_json::Map<String, serde_json::Value>,
    }
    if let Ok(raw) = serde_json::from_str::<&RawValue>(trim_json(text))
        && raw.get().starts_with('{')
    {
        return Some(Json::raw(raw));
    }
    let form: ElicitationForm = serde_json::from_str(form?.as_str()).ok()?;
    let sort = |field: &serde_json::Value| {
        field.get("type").and_then(serde_json::Value::as_str).unwrap_or("string").to_owned()
    };
    let mut fields = form.properties.iter();
    let first = fields.clone().find(|(_, field)| sort(field) == "string").or_else(|| fields.next());
    let (name, field) = first?;
    let value = match sort(field).as_str() {
        "integer" | "number" | "boolean" => {
            serde_json::from_str(trim_json(text)).unwrap_or_else(|_| text.into())
        }
        _ => serde_json::Value::from(text),
    };
    Some(Json::of(&serde_json::json!({ name.as_str(): value })))
}
