//! The system calls of a command that touch files, programs or other machines, as strace tells them, and those among them
//! that reach outside of the workspace.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// The system calls that are looked at. Calls that only ask whether a file exists are not.
pub(super) const CALLS: &str = "execve,execveat,open,openat,openat2,creat,truncate,chdir,\
    unlink,unlinkat,rmdir,rename,renameat,renameat2,mkdir,mkdirat,link,linkat,symlink,symlinkat,mknod,mknodat,\
    chmod,fchmodat,chown,lchown,fchownat,utimensat,connect,bind,sendto";

/// Files outside of the workspace that programs read whatever they are asked to do.
const COMMON: &[&str] = &[
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/proc/filesystems",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/dev/tty",
    "/dev/urandom",
];
/// Files with the names of users and groups, and the programs that print those.
const NAMES: &[&str] = &["/etc/passwd", "/etc/group", "/etc/nsswitch.conf"];
const NAMING: &[&str] = &["ls", "tar", "git", "stat", "find", "chmod"];
/// Programs that others run by themselves.
const HELPERS: &[(&str, &[&str])] = &[
    ("git", &["sh", "git", "git-upload-pack", "git-receive-pack"]),
    ("tar", &["sh", "gzip", "bzip2", "xz"]),
];

/// Returns what a traced command did beyond the workspace, and beyond `programs`.
pub(super) fn reaches(trace: &str, workspace: &Path, programs: &[&str]) -> Vec<String> {
    let mut folders: HashMap<&str, PathBuf> = HashMap::new();
    let mut found = Vec::new();
    for (pid, call) in calls(trace) {
        let folder = folders.entry(pid).or_insert_with(|| workspace.to_owned());
        let Some((name, rest)) = call.split_once('(') else { continue };
        let Some((arguments, result)) = rest.rsplit_once(" = ") else { continue };
        let failed = result.starts_with(['-', '?']);
        let is_bad = match name {
            // Nobody answers in the network of the test.
            "connect" | "bind" | "sendto" => arguments.contains("sa_family=AF_INET"),
            _ if failed => false,
            "execve" | "execveat" => !may_run(arguments, programs),
            "chdir" => {
                *folder = paths(arguments, folder).pop().unwrap_or_default();
                !folder.starts_with(workspace)
            }
            "open" | "openat" | "openat2" | "creat" => {
                let file = descriptor(result).unwrap_or_default();
                let writes = name == "creat"
                    || ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"]
                        .iter()
                        .any(|flag| arguments.contains(flag));
                !may_open(file, writes, workspace, programs)
            }
            // The target of a link is a text.
            "symlink" | "symlinkat" => {
                !paths(arguments, folder).last().is_some_and(|path| is_inside(path, workspace))
            }
            _ => !paths(arguments, folder).iter().all(|path| is_inside(path, workspace)),
        };
        if is_bad {
            found.push(call);
        }
    }
    found
}

/// Each call with its process, in one piece: other processes may come between its two halves.
fn calls(trace: &str) -> Vec<(&str, String)> {
    let mut begun: HashMap<&str, &str> = HashMap::new();
    let mut all = Vec::new();
    for line in trace.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(start) = rest.strip_suffix("<unfinished ...>") {
            begun.insert(pid, start);
        } else if let Some(end) = rest.strip_prefix("<... ") {
            let end = end.split_once(" resumed>").map_or("", |(_, end)| end);
            all.push((pid, begun.remove(pid).unwrap_or_default().to_owned() + end));
        } else {
            all.push((pid, rest.to_owned()));
        }
    }
    all
}

/// The path of a descriptor: `3</tmp/a>`.
fn descriptor(text: &str) -> Option<&str> {
    Some(text.split_once('<')?.1.split_once('>')?.0)
}

/// The paths among the arguments, absolute. A descriptor before a path is the directory that it begins at.
fn paths(arguments: &str, folder: &Path) -> Vec<PathBuf> {
    let mut base = folder.to_owned();
    let mut found = Vec::new();
    for argument in arguments.split(", ") {
        if let Some(text) = argument.strip_prefix('"') {
            found.push(base.join(text.split('"').next().unwrap_or_default()));
        } else if let Some(directory) = descriptor(argument) {
            base = PathBuf::from(directory);
        }
    }
    found
}

fn may_run(arguments: &str, programs: &[&str]) -> bool {
    let path = arguments.split('"').nth(1).unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_helper = |(of, helpers): &(&str, &[&str])| programs.contains(of) && helpers.contains(&name);
    let is_ours = |directory: &&str| path.starts_with(directory);
    ["/usr/", "/bin/"].iter().any(is_ours) && (programs.contains(&name) || HELPERS.iter().any(is_helper))
}

fn may_open(file: &str, writes: bool, workspace: &Path, programs: &[&str]) -> bool {
    let file = Path::new(file);
    let is_common = COMMON.iter().any(|place| file.starts_with(place));
    let is_device = file.starts_with("/dev");
    let is_own = file.starts_with("/proc/self") || is_own_process(file);
    let names = NAMES.iter().any(|name| file == Path::new(name))
        && NAMING.iter().any(|naming| programs.contains(naming));
    file.starts_with(workspace) || (is_common && (is_device || !writes)) || (!writes && (is_own || names))
}

/// `/proc/1/mountinfo` of the first process in the namespace of the test.
fn is_own_process(file: &Path) -> bool {
    let mut parts = file.components().skip(1);
    let is = |part: Option<Component<'_>>, test: fn(&str) -> bool| {
        part.and_then(|part| part.as_os_str().to_str()).is_some_and(test)
    };
    is(parts.next(), |part| part == "proc") && is(parts.next(), |part| part.parse::<u32>().is_ok())
}

/// Tells whether a path is in the workspace, by the directory that it is in.
fn is_inside(path: &Path, workspace: &Path) -> bool {
    let real = path.parent().and_then(|parent| parent.canonicalize().ok());
    let climbs = path.components().any(|part| part == Component::ParentDir);
    // The workspace itself may be named: `touch .`.
    path == workspace || (real.unwrap_or_else(|| path.to_owned()).starts_with(workspace) && !climbs)
}

#[test]
fn a_trace_tells_what_is_outside() {
    let ws = Path::new("/nowhere/ws");
    let outside = |line: &str| !reaches(line, ws, &["cat", "git"]).is_empty();
    for line in [
        r#"7 openat(AT_FDCWD</nowhere/ws>, "link", O_RDONLY) = 3</nowhere/beside/secret>"#,
        r#"7 openat(AT_FDCWD</nowhere/ws>, "x", O_WRONLY|O_CREAT, 0666) = 3</usr/x>"#,
        r#"7 execve("/nowhere/ws/cat", ["cat"], 0x7 /* 4 vars */) = 0"#,
        r#"7 execve("/usr/bin/rm", ["rm"], 0x7 /* 4 vars */) = 0"#,
        r#"7 unlinkat(AT_FDCWD</nowhere/ws>, "../beside/secret", 0) = 0"#,
        r#"7 rename("a", "/nowhere/beside/b") = 0"#,
        r#"7 symlinkat("a", 3</nowhere/beside>, "b") = 0"#,
        r"7 connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(9)}, 16) = -1 ENETUNREACH (x)",
        "7 openat(AT_FDCWD</nowhere/ws>, \"a\", O_RDONLY <unfinished ...>\n8 exit\n7 <... openat resumed>) = 3</etc/x>",
    ] {
        assert!(outside(line), "{line}");
    }
    for line in [
        r#"7 openat(AT_FDCWD</nowhere/ws>, "a", O_RDONLY) = 3</nowhere/ws/a>"#,
        r#"7 openat(AT_FDCWD</nowhere/ws>, "/etc/x", O_RDONLY) = -1 ENOENT (No such file or directory)"#,
        r#"7 execve("/usr/bin/cat", ["cat"], 0x7 /* 4 vars */) = 0"#,
        r#"7 symlinkat("/etc/x", AT_FDCWD</nowhere/ws>, "b") = 0"#,
        r#"7 rename("a", "b") = 0"#,
        r#"7 utimensat(AT_FDCWD</nowhere/ws>, ".", NULL, 0) = 0"#,
        "7 +++ exited with 0 +++",
    ] {
        assert!(!outside(line), "{line}");
    }
}
