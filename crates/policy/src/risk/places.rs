//! Files with a risk by their name: secrets, files that run later, the operating system's own. The tables are in
//! `places.toml`.

use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

use intercom_types::Risk;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SensitivePlaces {
    secret: SecretPlaces,
    later: LaterRunPlaces,
    system: SystemPlaces,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretPlaces {
    names: Vec<String>,
    endings: Vec<String>,
    paths: Vec<String>,
    examples: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LaterRunPlaces {
    high: Vec<String>,
    medium: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SystemPlaces {
    paths: Vec<String>,
}

static PLACES: LazyLock<SensitivePlaces> = LazyLock::new(|| {
    toml::from_str(include_str!("places.toml")).expect("the table is part of the program, and tested")
});

/// Reports whether a path looks like a secret, by name only. In lower case, because some file systems ignore case.
/// `HEAD:.env`, `@.env` and `file=.env` name `.env`.
pub(crate) fn looks_secret(path: &str) -> bool {
    let SecretPlaces { names, endings, paths, examples } = &PLACES.secret;
    let path = path.to_ascii_lowercase();
    let parts: Vec<&str> = path.split(['/', '\\', ':', '=', ',', '@']).collect();
    let is_secret = |part: &&str| {
        let environment = part.starts_with(".env.") && !holds(examples, part);
        environment || holds(names, part) || endings.iter().any(|ending| part.ends_with(ending.as_str()))
    };
    parts.iter().any(is_secret) || contains_any(&parts, paths)
}

/// Returns the risk of changing a file that makes other programs run something, now or later.
pub(crate) fn runs_later(path: &str) -> Option<Risk> {
    let path = path.to_ascii_lowercase();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let LaterRunPlaces { high, medium } = &PLACES.later;
    // Replacing a whole repository replaces its hooks and settings.
    if contains_any(&parts, high) || parts.last() == Some(&".git") {
        return Some(Risk::High);
    }
    contains_any(&parts, medium).then_some(Risk::Medium)
}

/// Reports whether files that run later may be below a directory with this path: `.github` holds `.github/workflows`.
pub(crate) fn holds_what_runs_later(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let last = path.split('/').rfind(|part| !part.is_empty() && *part != ".").unwrap_or_default();
    let LaterRunPlaces { high, .. } = &PLACES.later;
    high.iter().any(|place| place.split_once('/').is_some_and(|(first, _)| first == last))
}

pub(crate) fn is_system(path: &Path) -> bool {
    PLACES.system.paths.iter().any(|place| path.starts_with(place))
}

fn holds(list: &[String], part: &str) -> bool {
    list.iter().any(|known| known == part)
}

/// Reports whether a path contains one of the places.
fn contains_any(parts: &[&str], places: &[String]) -> bool {
    places.iter().any(|place| {
        let place: Vec<&str> = place.split('/').collect();
        parts.windows(place.len()).any(|window| window == place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_hold_what_they_can_match() {
        let SensitivePlaces { secret, later, system } = &*PLACES;
        let SecretPlaces { names, endings, paths, examples } = secret;
        let parts = names.iter().chain(endings).chain(examples);
        for part in parts.clone() {
            assert!(!part.contains('/') && !part.is_empty(), "{part}");
        }
        for entry in parts.chain(paths).chain(&later.high).chain(&later.medium) {
            assert_eq!(*entry, entry.to_ascii_lowercase());
            assert!(!entry.starts_with('/') && !entry.ends_with('/'), "{entry}");
        }
        for list in [names, endings, paths, examples, &later.high, &later.medium, &system.paths] {
            let mut sorted = list.clone();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), list.len(), "one of {list:?} is there twice");
        }
        assert!(system.paths.iter().all(|path| path.starts_with('/')));
        assert!(later.high.iter().all(|place| !later.medium.contains(place)));
    }

    #[test]
    fn every_entry_is_found_below_a_directory_and_in_capital_letters() {
        for entry in PLACES.secret.names.iter().chain(&PLACES.secret.paths) {
            assert!(looks_secret(&format!("a/{}/b", entry.to_ascii_uppercase())), "{entry}");
            assert!(!looks_secret(&format!("a/x{entry}x/b")), "{entry}");
        }
        for ending in &PLACES.secret.endings {
            assert!(
                looks_secret(&format!("a/b{ending}")) && !looks_secret(&format!("a/b{ending}x")),
                "{ending}"
            );
        }
        for example in &PLACES.secret.examples {
            assert!(!looks_secret(example), "{example}");
        }
        let LaterRunPlaces { high, medium } = &PLACES.later;
        for (list, risk) in [(high, Risk::High), (medium, Risk::Medium)] {
            for entry in list {
                assert_eq!(
                    runs_later(&format!("/a/./{}", entry.to_ascii_uppercase())),
                    Some(risk),
                    "{entry}"
                );
                assert_eq!(runs_later(&format!("a/x{entry}x")), None, "{entry}");
            }
        }
    }

    #[test]
    fn directories_of_files_that_run_later_are_known() {
        for path in [".github", "a/.CARGO", ".config/", "./.git"] {
            assert!(holds_what_runs_later(path), "{path}");
        }
        for path in ["src", "", ".", ".github/x", "a.git"] {
            assert!(!holds_what_runs_later(path), "{path}");
        }
        assert_eq!(runs_later("a/.git/"), Some(Risk::High));
        assert_eq!(runs_later(".git/index"), None);
    }

    #[test]
    fn secrets_are_found_in_the_words_of_tools() {
        for word in
            ["HEAD:.env", ":.env", "@.ssh/x", "--file=.env", ".config/gh/hosts.yml", "a,b.pem", ".env.local"]
        {
            assert!(looks_secret(word), "{word}");
        }
        for word in [".env.example", "environment", "src/key.rs", ".config/ghx", "a:b", "--key=x"] {
            assert!(!looks_secret(word), "{word}");
        }
    }
}
