//! The manifest of the Slack app.

/// The manifest, for Slack's page for new apps.
pub const MANIFEST: &str = include_str!("manifest.yaml");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slack::SCOPES;

    #[test]
    fn the_manifest_asks_for_the_scopes_that_are_needed_and_no_others() {
        let after = MANIFEST.split("    bot:\n").nth(1).unwrap();
        let asked: Vec<&str> = after.lines().map_while(|line| line.trim().strip_prefix("- ")).collect();
        assert_eq!(asked, SCOPES.iter().map(|(scope, _)| *scope).collect::<Vec<_>>());
    }
}
