use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::{MARK, PieceRedactor, redact, redact_json};

mod cases;

use cases::{HIDDEN, OVER_LINES, SHOWN};

/// Reports whether five consecutive characters of the secret are left.
fn survives(secret: &str, text: &str) -> bool {
    let left: String = text.split(MARK).enumerate().fold(String::new(), |left, (index, part)| {
        left + if index == 0 { part } else { part.split_once(']').map_or(part, |(_, rest)| rest) } + "\n"
    });
    let chars: Vec<char> = secret.chars().collect();
    chars.windows(5.min(chars.len())).any(|part| left.contains(&part.iter().collect::<String>()))
}

/// `§` stands around the secret.
fn case(marked: &str) -> (String, String) {
    let secret = marked.split('§').nth(1).unwrap_or_default();
    (marked.replace('§', ""), secret.to_owned())
}

fn diff(text: &str, mark: char) -> String {
    text.lines().fold("@@ -1 +1 @@\n".to_owned(), |mut out, line| {
        writeln!(out, "{mark}{line}").unwrap();
        out
    })
}

#[test]
fn secrets_are_hidden_in_text_diffs_and_json() {
    assert!(HIDDEN.len() + SHOWN.len() > 120);
    let mut wrong = Vec::new();
    for (name, sort, marked) in HIDDEN {
        let (text, secret) = case(marked);
        let json = serde_json::json!({ "text": text, "list": [text] }).to_string();
        let forms = [text.clone(), diff(&text, '+'), diff(&text, '-'), diff(&text, ' '), json.clone()];
        for form in forms {
            let once = redact(&form);
            if !once.hidden.contains(sort) || survives(&secret, &once.text) {
                wrong.push(format!("{name}: {}", once.text));
            }
            if redact(&once.text).text != once.text {
                wrong.push(format!("{name}, twice: {}", once.text));
            }
        }
        let once = redact_json(&json);
        if survives(&secret, &once.text) || redact_json(&once.text).text != once.text {
            wrong.push(format!("{name}, as json: {}", once.text));
        }
        serde_json::from_str::<Value>(&once.text).unwrap();
        // The text before the secret stays.
        if !redact(&text).text.starts_with(marked.split('§').next().unwrap()) {
            wrong.push(format!("{name}, too much: {}", redact(&text).text));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn secrets_that_are_not_on_the_line_of_their_name_are_hidden() {
    let mut wrong = Vec::new();
    for (name, sort, marked) in OVER_LINES {
        let (text, secret) = case(marked);
        let left = |text: &str| secret.split_whitespace().any(|word| word.len() >= 5 && survives(word, text));
        for form in [text.clone(), diff(&text, '+'), diff(&text, '-'), diff(&text, ' ')] {
            let once = redact(&form);
            if !once.hidden.contains(sort) || left(&once.text) || redact(&once.text).text != once.text {
                wrong.push(format!("{name}: {}", once.text));
            }
            for size in [1, 2, 3, 5, 8, 13, 40] {
                let cuts: Vec<usize> = (0..form.len()).step_by(size).collect();
                if streamed(&form, &cuts).0.concat() != once.text {
                    wrong.push(format!("{name}, {size} at a time: {:?}", streamed(&form, &cuts)));
                }
            }
        }
        let json = serde_json::json!({ "text": text }).to_string();
        if left(&redact_json(&json).text) {
            wrong.push(format!("{name}, as json: {}", redact_json(&json).text));
        }
        // The text around it stays.
        let (before, after) = (marked.split('§').next().unwrap(), marked.rsplit('§').next().unwrap());
        let shown = redact(&text).text;
        if !shown.starts_with(before) || !shown.ends_with(after) {
            wrong.push(format!("{name}, too much: {shown}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_no_secret_is_shown() {
    let mut wrong = Vec::new();
    for (name, text) in SHOWN {
        for form in [(*text).to_owned(), diff(text, '+'), diff(text, '-'), diff(text, ' ')] {
            let redacted = redact(&form).text;
            if !matches!(redacted, Cow::Borrowed(same) if same == form) {
                wrong.push(format!("{name}: {redacted}"));
            }
        }
        let json = serde_json::json!({ "text": text }).to_string();
        if redact_json(&json).text != json {
            wrong.push(format!("{name}, as json: {}", redact_json(&json).text));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_words_around_a_secret_stay() {
    let check = |text: &str, expected: &str| assert_eq!(redact(text).text, expected);
    check("TOKEN=a8f3k2m9 ./run", "TOKEN=[hidden: token] ./run");
    check("\"password\": \"hunter2\",", "\"password\": \"[hidden: password]\",");
    check("psql postgres://me:s3cret@db:5432/app", "psql postgres://me:[hidden: password]@db:5432/app");
    check(
        "curl -H 'Authorization: Bearer abc123def456' https://x",
        "curl -H 'Authorization: Bearer [hidden: authorization]' https://x",
    );
    check("login(user, password=\"hunter2\")", "login(user, password=\"[hidden: password]\")");
    check(
        "a -----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1\n-----END PRIVATE KEY----- b",
        "a [hidden: private key] b",
    );
}

#[test]
fn json_stays_as_it_is_but_for_the_secrets() {
    let check = |json: &str, expected: &str| assert_eq!(redact_json(json).text, expected);
    check(
        r#"{ "b" : 1.50, "api_key" : "q7w8e9r0", "a": ["x", null] }"#,
        r#"{ "b" : 1.50, "api_key" : "[hidden: API key]", "a": ["x", null] }"#,
    );
    check(r#"{"x":"gh\u0070_16C7e42F292c6912E7710c838347Ae178B4a"}"#, r#"{"x":"[hidden: GitHub token]"}"#);
    check(r#"{"x":"\u0041 caf\u00e9","token":""}"#, r#"{"x":"\u0041 caf\u00e9","token":""}"#);
    check(
        r#"{"passwords":["hunter2","swordfish"]}"#,
        r#"{"passwords":["[hidden: password]","[hidden: password]"]}"#,
    );
    check(
        r#"{"env":[{"name":"DB_PASSWORD","value":"hunter2"},{"name":"HOME","value":"/root"}]}"#,
        r#"{"env":[{"name":"DB_PASSWORD","value":"[hidden: password]"},{"name":"HOME","value":"/root"}]}"#,
    );
    check(
        r#"["deploy","--token","a8f3k2m9","--to","production1"]"#,
        r#"["deploy","--token","[hidden: token]","--to","production1"]"#,
    );
    check(r#"[["password","hunter2hunter2"],["x",1]]"#, r#"[["password","[hidden: password]"],["x",1]]"#);
    check(
        r#"[["password","username"],["token","a1b2c3d4e5",1]]"#,
        r#"[["password","username"],["token","a1b2c3d4e5",1]]"#,
    );
    check(r#"{"Authorization":"Bearer a8f3k2m9"}"#, r#"{"Authorization":"[hidden: authorization]"}"#);
    check(r#"{"headers":{"Cookie":"sid=a8f3k2m9"}}"#, r#"{"headers":{"Cookie":"[hidden: cookie]"}}"#);
    check(
        r#"{"max_tokens":4096,"password":{"type":"string"}}"#,
        r#"{"max_tokens":4096,"password":{"type":"string"}}"#,
    );
    check(r#"{"password":"half \ud800 hunter2"}"#, r#"{"password":"[hidden: password]"}"#);
}

#[test]
fn secrets_in_any_place_of_a_document_are_hidden() {
    let mut wrong = Vec::new();
    for json in [
        // An escaped quote does not end a value.
        r#"{"password":"a\"§bcdefgh1§"}"#,
        r#"{"text":"{\"password\":\"a\\\"§bcdefgh1§\"}"}"#,
        // Digits are no better hidden than letters.
        r#"{"password":§83749202§}"#,
        r#"{"token":§837492028374§}"#,
        // The name may follow, be in capitals, or stand around the value.
        r#"{"value":"§hunter2x§","name":"DB_PASSWORD"}"#,
        r#"{"Name":"DB_PASSWORD","Value":"§hunter2x§"}"#,
        r#"{"password":{"value":"§hunter2x§"}}"#,
        r#"{"secrets":[{"name":"db","value":"§hunter2x§"}]}"#,
        // A document in a string, and in that one.
        r#"{"data":"{\"env\":[{\"name\":\"DB_PASSWORD\",\"value\":\"§hunter2x§\"}]}"}"#,
        r#"{"data":"{\"passwords\":[\"§hunter2x§\"]}"}"#,
        r#"{"data":"{\"data\":\"{\\\"passwords\\\":[\\\"§hunter2x§\\\"]}\"}"}"#,
        r#"{"data":"{\"pass\\u0077ord\":\"§hunter2x§\"}"}"#,
        // The arguments of a program.
        r#"["curl","--user=me:§hunter2x§","http://x"]"#,
        r#"["/usr/bin/curl","-ume:§correct horse§"]"#,
    ] {
        let (json, secret) = case(json);
        let once = redact_json(&json);
        if survives(&secret, &once.text)
            || serde_json::from_str::<Value>(&once.text).is_err()
            || redact_json(&once.text).text != once.text
        {
            wrong.push(once.text.into_owned());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for json in [
        r#"{"tokens":[{"type":"Identifier","value":"foobar"}],"max_tokens":4096,"total_tokens":123456}"#,
        r#"{"data":"{\"max_tokens\":4096}","password":{"type":"string","default":null}}"#,
        r#"{"value":"production1","name":"stage"}"#,
        r#"["docker","run","-u1000:1000","x"]"#,
    ] {
        assert_eq!(redact_json(json).text, json);
    }
}

/// Text that only resembles JSON must not get past the rules for other text.
#[test]
fn what_is_nearly_json_is_redacted_as_text() {
    for text in [
        r#""password": "hunter2x""#,
        r#"password: "hunter2x""#,
        r#"{password: "hunter2x"}"#,
        r#"["password": "hunter2x"]"#,
    ] {
        let redacted = redact_json(text);
        assert!(!redacted.text.contains("hunter2x"), "{}", redacted.text);
    }
}

#[test]
fn what_is_no_json_is_redacted_as_text() {
    assert_eq!(redact_json("{\"password\": \"hunter2").text, "{\"password\": \"[hidden: password]");
    assert_eq!(redact_json("TOKEN=a8f3k2m9").text, "TOKEN=[hidden: token]");
    assert_eq!(redact_json("{]\"").text, "{]\"");
}

#[test]
fn a_private_key_without_its_beginning_or_end_is_hidden() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    for text in [
        format!("-----BEGIN RSA PRIVATE KEY-----\n{line}\n{line}\nMIIEvQ"),
        format!("{line}\n{line}\nvQI=\n-----END RSA PRIVATE KEY-----\nthe rest"),
        format!("     1\t-----BEGIN PRIVATE KEY-----\n     2\t{line}\n     3\t{line}\n"),
        format!("     1→-----BEGIN PRIVATE KEY-----\n     2→{line}\n     3→-----END PRIVATE KEY-----"),
        format!("k.pem:1:-----BEGIN PRIVATE KEY-----\nk.pem:2:{line}\nk.pem:3:-----END PRIVATE KEY-----"),
        format!("KEY=\"-----BEGIN PRIVATE KEY-----\\n{line}\\n{line}\\n-----END PRIVATE KEY-----\\n\""),
        format!("{{\"private_key\": \"-----BEGIN PRIVATE KEY-----\\n{line}\\n\"}}"),
    ] {
        let redacted = redact(&text);
        assert_eq!(redacted.hidden, ["private key"], "{text}");
        assert!(!survives(line, &redacted.text), "{}", redacted.text);
        assert_eq!(redact(&redacted.text).text, redacted.text);
    }
}

#[test]
fn each_sort_is_named_once() {
    let redacted = redact("A_PASSWORD=one1\nB_PASSWORD=two2\nC_TOKEN=three333\n");
    assert_eq!(redacted.hidden, ["password", "token"]);
}

/// The blank in the mark of a first secret ends a value that only the next pass finds.
#[test]
fn a_value_that_ends_inside_of_a_mark_takes_all_of_it() {
    let text = "curl -uadmi\u{e9}\u{e9}token=Q2\u{1}\u{b}w-t*n:Tr0ub4dor https://example.com\n";
    let redacted = redact(text).text;
    assert_eq!(redacted.matches("[hidden: ").count(), redacted.matches(']').count(), "{redacted}");
    assert!(!redacted.contains("Tr0ub4dor"), "{redacted}");
}

/// Repeated scans of the same text would take minutes.
#[test]
fn the_time_is_linear() {
    let nasty = [
        "token=a(",
        "token=",
        "token: ",
        "password=\"",
        "password=\\\"",
        "cookie:a=$ ",
        "cookie:",
        "authorization: ",
        "eyJ",
        "ghp_",
        "sk-ant-",
        "AIza",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "a://b:",
        "--token ",
        "A",
        "bearer ",
        "{\"token\":",
        "secret:x=",
        "password='`\"",
        "password",
        "\\",
        "token = \\\\\\\"",
        "password:\n",
        "password: |\n ",
        "password='\n",
        "PASSWORD=a\\\n",
        "name: password\n",
    ];
    for part in nasty {
        let text = part.repeat(100_000 / part.len());
        let start = processor_time();
        redact(&text);
        redact_json(&text);
        let took = processor_time().saturating_sub(start);
        assert!(took < Duration::from_secs(5), "{part:?} took {took:?}");
    }
}

/// Returns the processor time of this thread, which does not depend on the load of the machine.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// Pieces that secrets are made of, and what comes between them.
fn pieces() -> impl Strategy<Value = String> {
    let hidden: Vec<String> = HIDDEN.iter().chain(OVER_LINES).map(|(_, _, text)| case(text).0).collect();
    let shown: Vec<String> = SHOWN.iter().map(|(_, text)| (*text).to_owned()).collect();
    let parts = vec![
        "token",
        "PASSWORD",
        "=",
        ": ",
        "\"",
        "'",
        "`",
        "\\",
        "\\n",
        "\n",
        "\n+",
        " ",
        "ghp_",
        "eyJ",
        ".",
        "é",
        "🦀",
        "@",
        "://",
        "--",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        MARK,
        "]",
        "hunter2",
        "Bearer ",
        "Cookie: ",
        "=>",
        "{",
        "}",
        "[",
        ",",
        "(",
        "$",
        "\u{2028}",
        "AKIA",
        "sk-",
        "Authorization: ",
        "a1b2c3d4e5f6g7h8i9j0",
        "password: |\n",
        "\n  ",
        "\\\n",
        "name: ",
        "value: ",
        "\"\"\"",
    ];
    let part = prop_oneof![
        8 => select(parts).prop_map(str::to_owned),
        1 => select(hidden),
        1 => select(shown),
        2 => ".{0,6}",
    ];
    proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        pieces().prop_map(Value::from),
        pieces().prop_map(|text| serde_json::json!({ "name": "token", "value": text }).to_string().into()),
        ".*".prop_map(Value::from),
    ];
    let name = prop_oneof![
        select(vec!["token", "password", "name", "value", "Cookie", "x"]).prop_map(str::to_owned),
        pieces(),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((name.clone(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Reports whether only strings differ, and only by redactions. Digits under the name of a secret become a string.
fn same_shape(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::String(b)) => b.contains(MARK),
        (Value::String(a), Value::String(b)) => a == b || b.contains(MARK),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b))
        }
        // Keys that were hidden have another place, and may be the same.
        (Value::Object(a), Value::Object(b)) if b.keys().any(|key| key.contains(MARK)) => b.len() <= a.len(),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same_shape(a, b))
        }
        _ => a == b,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn any_text_can_be_redacted(text in ".{0,200}") {
        redact(&text);
        redact_json(&text);
    }

    #[test]
    fn redacting_twice_changes_nothing_more(text in pieces()) {
        let once = redact(&text);
        prop_assert_eq!(once.hidden.is_empty(), once.text == text);
        prop_assert_eq!(&redact(&once.text).text, &once.text);
        redact_json(&text);
    }

    // Tests against too much redaction; too little is tested below, for all texts. Of these characters only a flag
    // whose name is known (`--dsn x`) or `bearer` would make a secret, and random text does not spell those.
    #[test]
    fn text_without_a_trigger_is_borrowed(text in "[a-z \n.,;é🦀+(){}-]{0,200}") {
        let redacted = redact(&text);
        prop_assert!(redacted.hidden.is_empty(), "{:?} became {:?}", text, redacted.text);
        prop_assert!(matches!(redacted.text, Cow::Borrowed(same) if same == text));
    }

    #[test]
    fn json_stays_json_of_the_same_shape(value in json(), pretty in any::<bool>()) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        let redacted = redact_json(&text);
        let after: Value = serde_json::from_str(&redacted.text).unwrap();
        prop_assert!(same_shape(&value, &after), "{} became {}", text, redacted.text);
        prop_assert_eq!(redacted.hidden.is_empty(), redacted.text == text);
        prop_assert_eq!(&redact_json(&redacted.text).text, &redacted.text);
    }
}

/// Armour of keys in any order, with lines of keys and other lines between.
fn armour() -> impl Strategy<Value = String> {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj";
    let parts = vec![
        "-----BEGIN PRIVATE KEY-----".to_owned(),
        "-----END PRIVATE KEY-----".to_owned(),
        "-----BEGIN RSA PRIVATE KEY-----\n".to_owned(),
        "-----END RSA PRIVATE KEY-----\n".to_owned(),
        "-----BEGIN CERTIFICATE-----\n".to_owned(),
        "-----END CERTIFICATE-----\n".to_owned(),
        "DEK-Info: ".to_owned(),
        "DEK-Info: ".to_owned(),
        format!("{line}\n"),
        format!("k.pem:2:{line}\n"),
        format!("k.pem:2 {line} "),
        format!("+{line}\n"),
        "some words\n".to_owned(),
        "q8s=\n".to_owned(),
        "\n".to_owned(),
        " ".to_owned(),
        format!("{MARK} private key]"),
        "token=hunter2hunter2\n".to_owned(),
    ];
    proptest::collection::vec(select(parts), 0..24).prop_map(|parts| parts.concat())
}

/// Assignments of values with quotes, line breaks or control bytes in them, whose own quotes may never close.
fn quotations() -> impl Strategy<Value = String> {
    let names = vec!["'token', '", "\"token\", \"", "token=\"", "PASSWORD=", "password: |\n  ", "--token '"];
    let values =
        vec!["q1w3e4r5", "a'b1c2d3", "a1b2\"c3", "q1w3e4\nt6y7u8", "q1w3e4r5\\\nt6", "\0q1w3e4\u{1}"];
    let ends = vec!["'", "\" ", "\n", " ", "'\n", "\"\n"];
    let assignment = (select(names), select(values), select(ends));
    let assignment = assignment.prop_map(|(name, value, end)| format!("{name}{value}{end}"));
    proptest::collection::vec(assignment, 0..6).prop_map(|parts| parts.concat())
}

/// Cuts a text at these places, never inside of a character.
fn cut<'a>(text: &'a str, cuts: &[usize]) -> Vec<&'a str> {
    let mut places: Vec<usize> =
        cuts.iter().map(|cut| text.floor_char_boundary(cut % (text.len() + 1))).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// Returns the pieces that a reader gets, and how many of them before the end.
fn streamed(text: &str, cuts: &[usize]) -> (Vec<String>, usize) {
    let mut redactor = PieceRedactor::default();
    let mut out = Vec::new();
    for piece in cut(text, cuts) {
        out.extend(redactor.push(piece));
    }
    let early = out.len();
    out.extend(redactor.finish());
    (out, early)
}

#[test]
fn a_secret_that_comes_in_pieces_is_hidden_as_if_it_came_whole() {
    for (name, _, marked) in HIDDEN {
        let (text, secret) = case(marked);
        for text in [text.clone(), format!("Look:\n{text}\nThat is all.\n"), format!("It says {text} now")] {
            let whole = redact(&text).text;
            for size in [1, 2, 3, 5, 8, 13, 40] {
                let cuts: Vec<usize> = (0..text.len()).step_by(size).collect();
                let (pieces, _) = streamed(&text, &cuts);
                assert_eq!(pieces.concat(), whole, "{name}, {size} at a time");
            }
        }
        assert!(!survives(&secret, &streamed(&text, &[3, 17, 20]).0.concat()), "{name}");
    }
}

/// A closed quotation looks different once its end is redacted.
#[test]
fn a_line_waits_as_a_whole_for_a_value_that_goes_beyond_it() {
    let text = "token = \"ab1cd2ef (set('token', 'q1w3e4r5 t6\" now\nand y7u8)'\nThat is all.\n";
    let whole = redact(text).text;
    assert!(!whole.contains("q1w3e4r5") && !whole.contains("y7u8"), "{whole}");
    for size in [1, 2, 3, 5, 8, 13, 40] {
        let cuts: Vec<usize> = (0..text.len()).step_by(size).collect();
        assert_eq!(streamed(text, &cuts).0.concat(), whole, "{size} at a time");
    }
}

/// A redacted secret takes its quotes and line breaks with it, so that another quotation continues on the next line.
#[test]
fn a_line_waits_for_a_value_that_only_a_later_pass_finds() {
    for text in [
        "password=\"a'b1c2d3\" 'token', 'q1w3e4r5\nt6y7u8' now\nThat is all.\n",
        "token='a1b2c3\nd4\"e5f6' \"token\", \"q1w3e4r5\nt6y7u8\" now\nThat is all.\n",
    ] {
        let whole = redact(text).text;
        assert!(!whole.contains("q1w3e4") && !whole.contains("t6y7u8"), "{whole}");
        for size in [1, 2, 3, 5, 8, 13, 40] {
            let cuts: Vec<usize> = (0..text.len()).step_by(size).collect();
            assert_eq!(streamed(text, &cuts).0.concat(), whole, "{size} at a time");
        }
    }
}

/// Context that begins inside of a secret would have other quotes than the whole.
#[test]
fn context_never_begins_inside_of_a_secret() {
    let secret = "z9y8x7w6v5u4t3\\\n".repeat(90);
    let text = format!(
        "It's PASSWORD={secret}s2 and so it is, isn't it, 'token', 'q1w3e4r5\nt6y7u8' now\nThat is all.\n"
    );
    let text = format!("{}{text}", "Some words.\n".repeat(300));
    let whole = redact(&text).text;
    assert!(!whole.contains("t6y7u8"), "{whole}");
    for size in [1, 13, 40] {
        let cuts: Vec<usize> = (0..text.len()).step_by(size).collect();
        assert_eq!(streamed(&text, &cuts).0.concat(), whole, "{size} at a time");
    }
}

#[test]
fn a_key_inside_of_another_hides_with_it() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj";
    let inner = format!("-----BEGIN RSA PRIVATE KEY-----\n{line}\n-----END RSA PRIVATE KEY-----\n");
    let outer = format!(
        "Look:\n-----BEGIN PRIVATE KEY-----\nk:2:{line}\n{inner}k:3:{line}\n-----END PRIVATE KEY-----\nSo.\n"
    );
    assert_eq!(redact(&outer).text, "Look:\n[hidden: private key]\nSo.\n");
    for size in [1, 7, 30] {
        let cuts: Vec<usize> = (0..outer.len()).step_by(size).collect();
        assert_eq!(streamed(&outer, &cuts).0.concat(), redact(&outer).text, "{size} at a time");
    }
    // A begin that has no end does not hold more than a key can be long.
    let mut redactor = PieceRedactor::default();
    redactor.push("It begins with -----BEGIN PRIVATE KEY-----, as you see.\n");
    let given: usize = (0..2000).map(|_| redactor.push("These are some more words of prose.\n").len()).sum();
    assert!(given > 0);
}

/// Other armour ends a key, but the header of an encrypted one is skipped, whatever it says.
#[test]
fn a_key_with_armour_in_its_header_is_held_to_its_end() {
    let text = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
        DEK-Info: AES -----BEGIN EC KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nf8s=\n-----END EC PRIVATE KEY-----\nSo.\n";
    assert_eq!(redact(text).text, "[hidden: private key]\nSo.\n");
    for size in [1, 2, 3, 5, 8, 13, 40] {
        let cuts: Vec<usize> = (0..text.len()).step_by(size).collect();
        assert_eq!(streamed(text, &cuts).0.concat(), redact(text).text, "{size} at a time");
    }
}

#[test]
fn plain_lines_are_given_out_word_by_word_and_others_with_their_end() {
    let mut redactor = PieceRedactor::default();
    assert_eq!(redactor.push("I will "), ["I will "]);
    assert_eq!(redactor.push("look"), Vec::<String>::new());
    assert_eq!(redactor.push(" at it: "), Vec::<String>::new());
    assert_eq!(redactor.push("soon.\n"), ["look", " at it: ", "soon.\n"]);
    assert_eq!(redactor.push("Done"), Vec::<String>::new());
    assert_eq!(redactor.finish(), ["Done"]);
}

#[test]
fn what_is_given_up_does_not_show_what_is_not_settled() {
    let mut redactor = PieceRedactor::default();
    assert_eq!(redactor.push("Here it is: ghp_16C7e42F29"), Vec::<String>::new());
    assert_eq!(redactor.release_unsettled(), ["[hidden: unfinished text]"]);
}

#[test]
fn what_is_held_is_bounded() {
    let mut redactor = PieceRedactor::default();
    let (mut pushed, mut given) = (0, 0);
    for _ in 0..3000 {
        let piece = "a:b\"c=".repeat(50);
        pushed += piece.len();
        given += redactor.push(&piece).concat().len();
        assert!(pushed - given < 300_000, "{pushed} {given}");
    }
    assert!(redactor.memory() < 600_000, "{}", redactor.memory());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn pieces_add_up_to_the_redacted_whole(
        text in pieces(),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        let whole = redact(&text).text;
        let (out, _) = streamed(&text, &cuts);
        prop_assert_eq!(out.concat(), whole);
        prop_assert_eq!(out.len(), cuts.len() + 1);
    }

    #[test]
    fn quotations_over_lines_are_hidden_alike_in_pieces_and_whole(
        text in quotations(),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(streamed(&text, &cuts).0.concat(), redact(&text).text);
    }

    #[test]
    fn keys_inside_of_keys_are_hidden_alike_in_pieces_and_whole(
        text in armour(),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        let whole = redact(&text).text;
        prop_assert_eq!(streamed(&text, &cuts).0.concat(), whole.as_ref());
        prop_assert_eq!(&redact(&whole).text, &whole);
    }

    #[test]
    fn a_reader_who_begins_in_the_middle_sees_no_more(
        text in prop_oneof![pieces(), armour()],
        cuts in proptest::collection::vec(any::<usize>(), 1..12),
        begin in any::<usize>(),
    ) {
        let (out, _) = streamed(&text, &cuts);
        let begin = begin % out.len();
        let mut redactor = PieceRedactor::default();
        let mut late = Vec::new();
        for (index, piece) in cut(&text, &cuts).into_iter().enumerate() {
            if index == begin {
                redactor.begin_here();
            }
            late.extend(redactor.push(piece).into_iter().filter(|_| index >= begin));
        }
        late.extend(redactor.finish());
        // A mark stands where a secret begins.
        prop_assert_eq!(late.concat(), out[begin..].concat());
    }
}
