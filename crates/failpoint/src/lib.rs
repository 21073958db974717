//! Failpoints: places where a test can kill the daemon as if by `kill -9`. They exist in debug builds only.
//!
//! `INTERCOM_FAILPOINT=name` kills the process at the first visit, `name:3` at the third, and `name!` panics at the
//! first. `name@FILE` pauses each visit as long as FILE exists, `name=FILE` creates FILE. `name~TEXT` panics at every
//! visit with a text that contains TEXT.

/// Kills the process, panics or waits here if the environment requests it.
#[cfg(debug_assertions)]
pub fn visit(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static WANTED: OnceLock<Option<(String, u32, bool)>> = OnceLock::new();
    static VISITS: AtomicU32 = AtomicU32::new(0);

    let wanted = WANTED.get_or_init(|| {
        let value = std::env::var("INTERCOM_FAILPOINT").ok()?;
        let (name, panics) = value.strip_suffix('!').map_or((&*value, false), |name| (name, true));
        let (name, nth) = name.split_once(':').unwrap_or((name, "1")); // a FILE has no colon
        Some((name.to_owned(), nth.parse().ok()?, panics))
    });
    if let Some((paused, file)) = wanted.as_ref().and_then(|(wanted, ..)| wanted.split_once('@')) {
        while paused == name && std::path::Path::new(file).exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        return;
    }
    if let Some((watched, file)) = wanted.as_ref().and_then(|(wanted, ..)| wanted.split_once('=')) {
        if watched == name {
            std::fs::write(file, "").ok(); // then the test waits for it in vain, and says so
        }
        return;
    }
    if let Some((wanted, nth, panics)) = wanted
        && wanted == name
        && VISITS.fetch_add(1, Ordering::SeqCst) + 1 == *nth
    {
        eprintln!("failpoint {name}");
        assert!(!panics, "failpoint {name}");
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).ok(); // SIGKILL does not return
    }
}

#[cfg(not(debug_assertions))]
pub fn visit(_: &str) {}

/// Panics here if the environment requests it for this text.
#[cfg(debug_assertions)]
pub fn inspect(name: &str, text: &str) {
    use std::sync::OnceLock;

    static WANTED: OnceLock<Option<(String, String)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let value = std::env::var("INTERCOM_FAILPOINT").ok()?;
        value.split_once('~').map(|(name, text)| (name.to_owned(), text.to_owned()))
    });
    if let Some((wanted, part)) = wanted {
        assert!(wanted != name || !text.contains(part), "failpoint {name}");
    }
}

#[cfg(not(debug_assertions))]
pub fn inspect(_: &str, _: &str) {}

/// All failpoints, in the order in which a session visits them.
pub const ALL: &[&str] = &[
    "launch.committed",
    "process.spawned",
    "spawned.committed",
    "output.decoded",
    "output.committed",
    "command.stepped",
    "command.committed",
    "command.performed",
    "frame.writing",
    "frame.written",
    "news.heard",
    "news.committed",
    "exit.heard",
    "exit.committed",
];
