//! Programs that download an agent before they run it.

use std::path::Path;

/// The time limit of a start from an empty cache; an installed agent is ready within a few seconds.
pub const FETCHED_WITHIN_SECONDS: u64 = 300;

/// Programs that always download.
const FETCHERS: &[&str] = &["npx", "uvx", "bunx", "pnpx"];
/// Programs that download with this first argument.
const FETCHING: &[(&str, &str)] = &[
    ("npm", "exec"),
    ("npm", "x"),
    ("pnpm", "dlx"),
    ("yarn", "dlx"),
    ("bun", "x"),
    ("pipx", "run"),
    ("uv", "tool"),
    ("docker", "run"),
    ("podman", "run"),
];

/// Returns true if this command line may have to download the agent first.
pub(super) fn may_fetch(command: &str, args: &[String]) -> bool {
    let program = Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let first = args.first().map(String::as_str).unwrap_or_default();
    FETCHERS.contains(&program) || FETCHING.contains(&(program, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetcher_is_known_by_its_name_and_its_first_argument() {
        let fetches = |line: &[&str]| {
            let args: Vec<String> = line[1..].iter().map(|&arg| arg.to_owned()).collect();
            may_fetch(line[0], &args)
        };
        assert!(fetches(&["npx", "-y", "some-agent@1.0.0"]));
        assert!(fetches(&["/usr/local/bin/uvx", "agent==1.0.0"]));
        assert!(fetches(&["pnpm", "dlx", "agent"]) && fetches(&["docker", "run", "-i", "agent"]));
        assert!(!fetches(&["npm", "run", "agent"]) && !fetches(&["npx-agent"]) && !fetches(&["sh"]));
    }
}
