//! Cutting by character.

use intercom_types::text::clean_block;

/// Returns at most `limit` characters; the last is `…` if text is missing.
pub(in crate::slack) fn cut(text: &str, limit: usize) -> String {
    if text.chars().nth(limit).is_none() {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(limit.saturating_sub(1)).collect();
    if limit > 0 {
        kept.push('…');
    }
    kept
}

/// Cleans and cuts several lines of others. Text beyond the limit is not processed: it may have megabytes.
pub(super) fn clip(text: &str, limit: usize) -> String {
    let near: String = text.chars().take(limit + 1).collect();
    cut(&clean_block(&near), limit)
}

/// Returns the first lines that fit, and the number of lines that are missing or cut.
pub(in crate::slack) fn cut_lines(text: &str, lines: usize, limit: usize) -> (String, usize) {
    let mut kept = String::new();
    let mut left = limit;
    for (n, line) in text.lines().enumerate() {
        let clean = clean_block(line);
        let size = clean.chars().count() + 1;
        if n == lines || size > left {
            // A first line that is too long is better shown in part than not at all.
            if n == 0 && lines > 0 {
                kept = cut(&clean, limit);
            }
            return (kept, text.lines().count() - n);
        }
        left -= size;
        kept.push_str(&clean);
        kept.push('\n');
    }
    (kept, 0)
}
