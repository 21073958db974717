use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::limits::limits;
use super::*;
use intercom_types::Time;

fn said(text: &str) -> String {
    MrkdwnText::untrusted(text).markup()
}

/// Text as somebody would write it who means harm.
pub(in crate::slack) fn hostile() -> impl Strategy<Value = String> {
    let bits = prop_oneof![
        Just("<!channel>"),
        Just("<!here|x>"),
        Just("@everyone"),
        Just("@here"),
        Just("<@U1>"),
        Just("<#C1>"),
        Just("<https://evil.example|ok>"),
        Just("https://evil.example"),
        Just("WWW.evil.example"),
        Just("://"),
        Just("*"),
        Just("_"),
        Just("~"),
        Just("`"),
        Just("```"),
        Just("&"),
        Just("&amp;"),
        Just("&lt;!here&gt;"),
        Just("<"),
        Just(">"),
        Just("\n"),
        Just("\r\n"),
        Just("\t"),
        Just("\0"),
        Just("\u{1b}[2J"),
        Just("\u{202e}"),
        Just("\u{200b}"),
        Just("\u{2028}"),
        Just("\u{feff}"),
        Just("👩\u{200d}💻"),
        Just("✔\u{fe0f}"),
        Just("\u{301}"),
        Just(" "),
        Just("世界"),
        Just("stuck 7m"),
        Just("a"),
        Just("/"),
        Just("<!date^1^x|y>"),
        Just(":skull:"),
    ];
    let short = proptest::collection::vec(prop_oneof![bits.prop_map(str::to_owned), ".{0,6}"], 0..12)
        .prop_map(|bits| bits.concat());
    // Now and then huge.
    (short, prop_oneof![6 => Just(1_usize), 1 => Just(40), 1 => Just(900)])
        .prop_map(|(text, times)| text.repeat(times))
}

#[test]
fn what_others_say_has_no_marks() {
    assert_eq!(said("a *b* _c_ ~d~ `e` & <f> snake_case"), "a ∗b∗ ˍcˍ ∼d∼ ˋeˋ &amp; &lt;f&gt; snake_case");
    assert_eq!(said("> quoted"), "› quoted");
    assert_eq!(said("one\ntwo \u{202e}"), "one⏎two &lt;U+202E&gt;");
}

#[test]
fn what_others_say_links_and_calls_nobody() {
    assert_eq!(
        said("see https://x.example and WWW.y.example"),
        "see https[:]//x.example and WWW[.]y.example"
    );
    assert_eq!(
        said("@channel @Here <!everyone> <@U1> me@example.com"),
        "[@]channel [@]Here &lt;!everyone&gt; &lt;@U1&gt; me@example.com"
    );
    assert_eq!(said("&lt;!here&gt;"), "&amp;lt;!here&amp;gt;");
}

#[test]
fn only_ids_of_users_are_mentioned() {
    assert_eq!(MrkdwnText::mention("U0A1").unwrap().markup(), "<@U0A1>");
    assert!(MrkdwnText::mention("W9").is_some());
    for bad in ["", "U", "C123", "U1>", "u1", "U1|x", "Ü1", "!channel", "U1 "] {
        assert!(MrkdwnText::mention(bad).is_none(), "{bad}");
    }
}

#[test]
fn a_date_is_shown_by_the_clock_of_the_reader() {
    let date = MrkdwnText::date(Time::parse("2026-03-04T11:58:09.120Z").unwrap()).markup();
    assert_eq!(date, "<!date^1772625489^{time}, {date_short_pretty}|2026-03-04 11:58 UTC>");
    assert_eq!(MrkdwnText::date(Time::from_millis(-1)).markup(), "1969-12-31T23:59:59.999Z");
}

#[test]
fn a_cut_leaves_no_half_escape_no_half_date_and_no_open_mark() {
    let cut = |words: MrkdwnText, limit| words.cut(limit).markup();
    assert_eq!(cut(MrkdwnText::untrusted("a&b"), 7), "a&amp;b");
    assert_eq!(cut(MrkdwnText::untrusted("a&b"), 6), "a…");
    assert_eq!(cut(MrkdwnText::untrusted("a&bc"), 7), "a&amp;…");
    assert_eq!(cut(MrkdwnText::untrusted("hello world").bold(), 8), "*hello*…");
    assert_eq!(cut(MrkdwnText::new(" a ").and(MrkdwnText::number(12_345)).bold(), 99), "*a 12,345*");
    assert_eq!(
        cut(MrkdwnText::new("at ").and(MrkdwnText::date(Time::from_millis(1_772_625_489_000))), 30),
        "at …"
    );
    assert_eq!(cut(MrkdwnText::new("abc"), 0), "");
}

#[test]
fn lines_are_cut_at_lines() {
    assert_eq!(cut_lines("a\nb\nc\n", 2, 100), ("a\nb\n".to_owned(), 1));
    assert_eq!(cut_lines("a\nb\n", 2, 100), ("a\nb\n".to_owned(), 0));
    assert_eq!(cut_lines("aaaa\nbbbb\n", 9, 6), ("aaaa\n".to_owned(), 1));
    assert_eq!(cut_lines("aaaaaaaa\nb", 9, 4), ("aaa…".to_owned(), 2));
}

#[test]
fn a_message_is_never_without_text_and_blocks() {
    let message = json!(BlockBuilder::new("key").section("").code(" \n").message(""));
    limits(&message);
    assert_eq!((&message["text"], &message["blocks"][0]["block_id"]), (&json!("intercom"), &json!("key")));
}

#[test]
fn the_long_parts_are_cut_first() {
    let button = Button::new("go", "Go", "clr_1");
    let message = BlockBuilder::new("key")
        .header("Header")
        .section(MrkdwnText::untrusted(&"s".repeat(2_900)))
        .code(&"c".repeat(9_000))
        .prose(&"p".repeat(4_000))
        .actions(vec![button])
        .context(vec![MrkdwnText::untrusted(&"x".repeat(400))])
        .message("text");
    let message = json!(message);
    limits(&message);
    let blocks = &message["blocks"];
    assert_eq!(blocks[1]["text"]["text"].as_str().unwrap().len(), 2_900);
    let code = blocks[2]["elements"][0]["elements"][0]["text"].as_str().unwrap();
    assert!(code.ends_with('…') && code.chars().count() > 1_000);
    assert_eq!(blocks[5]["elements"][0]["text"].as_str().unwrap().len(), 400);
}

#[test]
fn ids_that_come_twice_are_told_apart() {
    let entry = || InputElement::Lines { initial: String::new(), placeholder: "".into() };
    let two = vec![Button::new("go", "Go", "1"), Button::new("go", "Go", "2")];
    let view = SlackView::modal(
        "x",
        "X",
        BlockBuilder::new("a").actions(two).input("a", "A", entry()).input("a", "A", entry()),
    );
    let view = json!(view.submit("Send"));
    limits(&view);
    assert_eq!(view["blocks"][0]["elements"][1]["action_id"], "go.2");
    assert_eq!(view["blocks"][2]["block_id"], "a.3");
}

#[test]
fn too_many_of_everything_still_fits() {
    let mut blocks = BlockBuilder::new(&"k".repeat(999));
    for n in 0..80 {
        let buttons = (0..40).map(|_| {
            let confirm = ConfirmDialog {
                title: PlainText::untrusted(&"t".repeat(200)),
                text: MrkdwnText::untrusted(&"x".repeat(400)),
                yes: PlainText::untrusted(""),
                danger: true,
            };
            Button::new(&"a".repeat(300), PlainText::untrusted(&"b".repeat(99)), &"v".repeat(3_000))
                .confirm(confirm)
        });
        let many: Vec<MrkdwnText> = (0..30).map(|_| MrkdwnText::untrusted(&"f&".repeat(2_000))).collect();
        blocks = blocks
            .divider()
            .fields(many.clone())
            .context(many)
            .section(MrkdwnText::untrusted(&"s".repeat(5_000)));
        blocks = if n % 9 == 0 { blocks.actions(buttons.collect()) } else { blocks };
    }
    limits(&json!(blocks.clone().message(MrkdwnText::untrusted(&"&".repeat(9_000)))));
    limits(&json!(SlackView::home(blocks)));
    let options = |n| {
        (0..n)
            .map(|n| SelectOption::new(PlainText::untrusted(&"o".repeat(90)), format!("{n:0>99}")))
            .collect::<Vec<_>>()
    };
    let view = BlockBuilder::keyless()
        .input(
            "s",
            PlainText::untrusted(&"l".repeat(3_000)),
            InputElement::Select { options: options(300), initial: Some(7) },
        )
        .input("none", "N", InputElement::Select { options: Vec::new(), initial: None })
        .input(
            "l",
            "L",
            InputElement::Lines {
                initial: "i".repeat(4_000),
                placeholder: PlainText::untrusted(&"p".repeat(400)),
            },
        );
    limits(&json!(
        SlackView::modal("c", PlainText::untrusted(&"t".repeat(99)), view)
            .submit("s")
            .metadata(&"m".repeat(4_000))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_cut_keeps_all_or_ends_with_an_ellipsis(text in hostile(), limit in 1_usize..80) {
        let whole = MrkdwnText::untrusted(&text);
        let short = whole.clone().cut(limit).markup();
        prop_assert!(short.chars().count() <= limit);
        match short.strip_suffix('…') {
            Some(begin) if short != whole.markup() => prop_assert!(whole.markup().starts_with(begin)),
            _ => prop_assert_eq!(&short, &whole.markup()),
        }
        // Once all escapes are taken away, no part of one is left.
        let left = short.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "");
        prop_assert!(!left.contains('&'), "{}", short);
    }

    #[test]
    fn any_text_anywhere_makes_a_message_that_slack_takes(texts in proptest::collection::vec(hostile(), 1..12)) {
        let mut blocks = BlockBuilder::new(&texts[0]);
        for text in &texts {
            let confirm = ConfirmDialog { title: PlainText::untrusted(text), text: MrkdwnText::untrusted(text), yes: PlainText::untrusted(text), danger: false };
            blocks = blocks
                .header(PlainText::untrusted(text))
                .section(MrkdwnText::untrusted(text).bold().and(MrkdwnText::untrusted(text)))
                .fields(vec![MrkdwnText::untrusted(text), MrkdwnText::untrusted(text).code()])
                .code(text)
                .prose(text)
                .context(vec![MrkdwnText::untrusted(text), MrkdwnText::untrusted(text)])
                .actions(vec![Button::new(text, PlainText::untrusted(text), text).confirm(confirm)]);
        }
        let message: Value = json!(blocks.clone().message(MrkdwnText::untrusted(&texts[0])));
        limits(&message);
        limits(&json!(SlackView::modal("x", PlainText::untrusted(&texts[0]), blocks)));
    }
}
