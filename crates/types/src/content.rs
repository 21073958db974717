//! The content blocks of a prompt as its author sent them: text, files, pictures, sounds, and unknown blocks. Their
//! format is that of the Agent Client Protocol; nothing of them is lost.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Json;

/// A list of content blocks as JSON on one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Content(Json);

impl Content {
    /// Parses a list of blocks; `None` if this is not a list of objects.
    pub fn read(json: &Json) -> Option<Self> {
        json.objects().map(|_| Self(json.on_one_line()))
    }

    pub fn is_empty(&self) -> bool {
        self.blocks().is_empty()
    }

    pub fn as_json(&self) -> &Json {
        &self.0
    }

    fn blocks(&self) -> Vec<&RawValue> {
        self.0.objects().unwrap_or_default()
    }

    /// Returns the content as text, for people and for agents that accept only text.
    pub fn text(&self) -> String {
        let words: Vec<String> = self.blocks().into_iter().map(block_text).collect();
        words.join("\n").trim().to_owned()
    }

    /// Replaces the text: the first text block gets the new text, other text blocks are removed, and all other blocks
    /// stay.
    #[must_use]
    pub fn with_text(&self, text: &str) -> Self {
        #[derive(Serialize)]
        struct TextBlock<'a> {
            r#type: &'static str,
            text: &'a str,
        }
        let words = Json::of(&TextBlock { r#type: "text", text });
        let (mut blocks, mut is_placed) = (Vec::new(), false);
        for block in self.blocks() {
            if block_type(block) != "text" {
                blocks.push(Json::raw(block));
            } else if !std::mem::replace(&mut is_placed, true) {
                blocks.push(words.clone());
            }
        }
        if !is_placed {
            blocks.insert(0, words);
        }
        Self(Json::of(&blocks))
    }
}

fn block_type(block: &RawValue) -> String {
    #[derive(Deserialize)]
    struct BlockType {
        r#type: String,
    }
    serde_json::from_str::<BlockType>(block.get()).map(|block| block.r#type).unwrap_or_default()
}

fn block_text(block: &RawValue) -> String {
    let block: Value = serde_json::from_str(block.get()).unwrap_or_default();
    let of = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    match block["type"].as_str().unwrap_or_default() {
        "text" => of(&block, "text"),
        "resource_link" => format!("[Resource: {} ({})]", of(&block, "name"), of(&block, "uri")),
        "resource" => {
            let resource = &block["resource"];
            let (uri, text) = (of(resource, "uri"), of(resource, "text"));
            format!("[Resource: {uri}]\n{text}").trim_end().to_owned()
        }
        sort @ ("image" | "audio") => format!("[{sort}: {}]", of(&block, "mimeType")),
        "" => String::new(),
        other => format!("[{other}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Content {
        Content::read(&Json::trusted(text)).unwrap()
    }

    #[test]
    fn blocks_are_kept_as_they_came_on_one_line() {
        let raw = "[ {\"type\":\"text\",\n\"text\":\"a\\nb\",\"_meta\":{\"n\":1.0}},\r\n{\"type\":\"new\"}]";
        let line = "[ {\"type\":\"text\", \"text\":\"a\\nb\",\"_meta\":{\"n\":1.0}},  {\"type\":\"new\"}]";
        assert_eq!(content(raw).as_json().as_str(), line);
    }

    #[test]
    fn what_is_no_list_of_blocks_is_no_content() {
        assert!(content("[ ]").is_empty());
        for raw in ["{}", "null", "\"text\"", "[1]", "[{},\"x\"]", "[[]]"] {
            assert_eq!(Content::read(&Json::trusted(raw)), None, "{raw}");
        }
    }

    #[test]
    fn every_block_has_words() {
        let all = content(
            r#"[{"type":"text","text":" look at "},
            {"type":"resource_link","name":"a.rs","uri":"file:///w/a.rs"},
            {"type":"resource","resource":{"uri":"file:///w/b.rs","text":"fn b() {}\n"}},
            {"type":"resource","resource":{"uri":"file:///w/c.bin","blob":"AAAA"}},
            {"type":"image","mimeType":"image/png","data":"AAAA"},
            {"type":"audio","mimeType":"audio/wav","data":"AAAA"},
            {"type":"hologram"},{"type":5},{"text":"untyped"}]"#,
        );
        let words = "look at \n[Resource: a.rs (file:///w/a.rs)]\n[Resource: file:///w/b.rs]\nfn b() {}\n\
            [Resource: file:///w/c.bin]\n[image: image/png]\n[audio: audio/wav]\n[hologram]";
        assert_eq!(all.text(), words);
        assert_eq!(content(r#"[{"type":"text","text":" "},{}]"#).text(), "");
    }

    #[test]
    fn other_words_take_the_place_of_all_that_were_there_and_leave_the_rest() {
        let image = r#"{"type":"image","mimeType":"image/png","data":"AA==", "_meta":{"n":1.0}}"#;
        let two = content(&format!(
            r#"[{image},{{"type":"text","text":"a"}},{{"type":"x"}},{{"type":"text","text":"b"}}]"#
        ));
        let expected = format!(r#"[{image},{{"type":"text","text":"c \"d\""}},{{"type":"x"}}]"#);
        assert_eq!(two.with_text("c \"d\"").as_json().as_str(), expected);
        let none = content(&format!("[{image}]")).with_text("c");
        assert_eq!(none.as_json().as_str(), format!(r#"[{{"type":"text","text":"c"}},{image}]"#));
    }
}
