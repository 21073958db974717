//! A disposable workspace with ways out of it, and a watch on everything outside.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::trace;

pub(super) const CANARY: &str = "the-content-of-a-file-outside";

/// A directory with the workspace `ws`, which holds links to `beside` and `evil`, a program that leaves a file there.
pub(super) struct Stage {
    pub(super) workspace: PathBuf,
    root: PathBuf,
    _directory: tempfile::TempDir,
}

impl Stage {
    /// A copy of the first stage, since git and tar take their time.
    pub(super) fn fresh() -> Self {
        static FIRST: LazyLock<Stage> = LazyLock::new(Stage::made);
        let stage = Self::empty();
        let status =
            Command::new("cp").arg("-a").arg(FIRST.root.join(".")).arg(&stage.root).status().unwrap();
        assert!(status.success());
        stage.write_evil();
        stage
    }

    fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        Self { workspace: root.join("ws"), root, _directory: directory }
    }

    fn made() -> Self {
        let stage = Self::empty();
        let (ws, beside) = (&stage.workspace, stage.root.join("beside"));
        std::fs::create_dir_all(ws.join("src")).unwrap();
        std::fs::create_dir(&beside).unwrap();
        std::fs::write(beside.join("secret"), format!("{CANARY}\n")).unwrap();
        std::fs::write(beside.join("secret.json"), format!("\"{CANARY}\"\n")).unwrap();
        std::fs::write(ws.join("a.txt"), "one\none\ntwo\n").unwrap();
        std::fs::write(ws.join("b.txt"), "one\ntwo\n").unwrap();
        std::fs::write(ws.join("a.json"), "{\"a\": 1}\n").unwrap();
        stage.write_evil();
        symlink("../beside", ws.join("out")).unwrap();
        symlink("../beside/secret", ws.join("link")).unwrap();
        symlink("../../beside", ws.join("src/up")).unwrap();
        // Commands that make names of a directory and another word meet these.
        symlink("../../beside/secret", ws.join("src/a.txt")).unwrap();
        symlink("../../beside/secret.json", ws.join("src/link")).unwrap();
        // So do these, which lead to files that run later.
        for name in ["src/.envrc", "src/config"] {
            std::fs::write(ws.join(name), "x").unwrap();
        }
        std::fs::create_dir(ws.join("src/hooks")).unwrap();
        symlink(".git", ws.join("git")).unwrap();
        symlink(".git/hooks", ws.join("hooks")).unwrap();
        symlink(".envrc", ws.join("rc")).unwrap();
        stage.run(&["git", "init", "-q"]);
        stage.run(&["git", "config", "user.name", "a"]);
        stage.run(&["git", "add", "-A"]);
        stage.run(&["git", "commit", "-qm", "x"]);
        // An archive that writes through the link.
        std::fs::create_dir_all(stage.root.join("made/out")).unwrap();
        std::fs::write(stage.root.join("made/out/new"), "x").unwrap();
        stage.run(&["tar", "-C", "../made", "-cf", "links.tar", "out/new"]);
        stage
    }

    fn write_evil(&self) {
        let text = format!("#!/bin/sh\ntouch {}/beside/ran\n", self.root.display());
        std::fs::write(self.workspace.join("evil"), text).unwrap();
        std::fs::set_permissions(self.workspace.join("evil"), std::fs::Permissions::from_mode(0o755))
            .unwrap();
    }

    /// Runs a command without a network, a home or anybody's settings, and returns its output. No process outlives it.
    pub(super) fn run(&self, words: &[&str]) -> String {
        self.run_by(&[], words)
    }

    /// Runs a command of `programs`, and returns its output with what it did beyond them and the workspace.
    pub(super) fn run_traced(&self, programs: &[&str], words: &[&str]) -> (String, Vec<String>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let calls = format!("trace={}", trace::CALLS);
        let tracer = ["strace", "-f", "-qq", "-y", "-s", "4096", "-e", &calls, "-o", path, "--"];
        let said = self.run_by(&tracer, words);
        let trace = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        assert!(trace.contains("execve("), "nothing was traced: is strace installed, and allowed? {said}");
        (said, trace::reaches(&trace, &self.workspace, programs))
    }

    fn run_by(&self, runner: &[&str], words: &[&str]) -> String {
        let output = Command::new("timeout")
            .args(["-s", "KILL", "10", "unshare", "-rnp", "--fork", "--kill-child", "--"])
            .args(runner)
            .args(words)
            .current_dir(&self.workspace)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.root.join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            // Without it git asks the name service who it is.
            .env("EMAIL", "a@b")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// The text with the directory above the workspace for `{root}`.
    pub(super) fn at(&self, text: &str) -> String {
        text.replace("{root}", &self.root.to_string_lossy())
    }

    /// The names of the files outside.
    pub(super) fn beside(&self) -> Vec<String> {
        let mut names: Vec<_> = entries(&self.root.join("beside")).iter().map(|path| name(path)).collect();
        names.sort();
        names
    }

    /// Watches the directories and files outside of the workspace: every name and every link to them, since the kernel
    /// tells of inodes.
    pub(super) fn watch_outside(&self) -> Watch {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
        let directories = [self.root.clone(), self.root.join("beside"), self.root.join("made")];
        let files = entries(&self.root.join("beside"));
        for path in directories.iter().chain(&files) {
            let flags = AddWatchFlags::IN_OPEN
                | AddWatchFlags::IN_ACCESS
                | AddWatchFlags::IN_MODIFY
                | AddWatchFlags::IN_ATTRIB
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_DELETE
                | AddWatchFlags::IN_MOVE;
            inotify.add_watch(path, flags).unwrap();
        }
        Watch(inotify)
    }
}

/// A watch on everything outside of one workspace.
pub(super) struct Watch(Inotify);

impl Watch {
    /// What was opened, read, written, made or removed outside.
    pub(super) fn touched(&self) -> Vec<String> {
        let mut touched = Vec::new();
        while let Ok(events) = self.0.read_events() {
            for event in events {
                let name = event.name.unwrap_or_default().to_string_lossy().into_owned();
                // The workspace is a name in the directory above, too.
                if name != "ws" {
                    touched.push(format!("{name:?} {:?}", event.mask));
                }
            }
        }
        touched
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}
