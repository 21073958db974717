//! The options that an agent offers itself.

use intercom_types::{Choice, Clearance};

/// The limit on an agent's options. More would hide our own buttons on a phone, and each may need a confirmation.
pub(super) const MOST: usize = 10;

/// Names that add nothing to their kind.
const PLAIN: &[(&str, &[&str])] = &[
    ("allow_once", &["allow", "allow once", "yes", "ok", "approve", "accept", "proceed"]),
    ("allow_always", &["always", "always allow", "allow always", "yes, always"]),
    ("reject_once", &["reject", "reject once", "deny", "deny once", "no", "decline"]),
    ("reject_always", &["never", "always reject", "reject always", "always deny", "deny always"]),
];

/// Returns the agent's options if they offer more than allow and deny; nothing if our own buttons are enough.
pub(super) fn own(clearance: &Clearance) -> &[Choice] {
    let options = clearance.options.as_slice();
    let kinds: Vec<&str> = options.iter().map(|option| option.kind.as_str()).collect();
    let twice = kinds.iter().enumerate().any(|(at, kind)| kinds[..at].contains(kind));
    let cannot_allow = !kinds.iter().any(|kind| is_allow(kind));
    if twice || cannot_allow || !options.iter().all(is_plain) { options } else { &[] }
}

pub(super) fn is_allow(kind: &str) -> bool {
    kind.starts_with("allow")
}

fn is_plain(option: &Choice) -> bool {
    let kind = option.kind.as_str();
    let name = name(option).trim().to_lowercase().replace('_', " ");
    PLAIN.iter().any(|(known, names)| *known == kind && names.contains(&name.as_str()))
}

/// Returns the option's name, or its id if it has no name.
pub(super) fn name(option: &Choice) -> &str {
    if option.name.trim().is_empty() { &option.id } else { &option.name }
}
