//! The tables of options that are known to be harmless, and of programs that run no other.

/// Options of some commands. A command may have several rows; what any of them holds is harmless.
pub(super) struct OptionTableRow {
    /// Leading words.
    pub(super) of: &'static [&'static str],
    /// Long options, without their dashes; a value after `=` is checked like an operand.
    pub(super) long: &'static str,
    /// Letters without a value, alone or in a cluster.
    pub(super) flags: &'static str,
    /// Letters that take the rest of their word, or the next, as a value.
    pub(super) valued: &'static str,
    /// Options of the above whose value is always given and is text, never a path or a program.
    pub(super) text: &'static str,
    /// Long options after `--`.
    pub(super) after: &'static str,
}

const NONE: OptionTableRow = OptionTableRow { of: &[], long: "", flags: "", valued: "", text: "", after: "" };

pub(super) const ROWS: &[OptionTableRow] = &[
    OptionTableRow {
        of: &[
            "cargo test",
            "cargo build",
            "cargo check",
            "cargo clippy",
            "cargo doc",
            "cargo run",
            "cargo bench",
            "cargo nextest run",
            "cargo nextest list",
            "cargo t",
            "cargo b",
            "cargo c",
        ],
        // Not `--target`: the file it may name sets the linker.
        long: "lib bins bin examples example tests test benches bench all-targets features all-features \
               no-default-features release profile workspace all package exclude locked offline frozen keep-going \
               no-run no-fail-fast doc no-deps quiet verbose color message-format jobs",
        flags: "qvr",
        valued: "pFj",
        ..NONE
    },
    OptionTableRow {
        of: &["cargo test", "cargo t", "cargo bench"],
        after: "nocapture no-capture test-threads exact ignored include-ignored skip list show-output quiet color",
        ..NONE
    },
    OptionTableRow {
        of: &["cargo nextest run", "cargo nextest list"],
        long: "no-capture retries partition run-ignored status-level final-status-level failure-output \
               success-output no-tests test-threads",
        after: "exact ignored include-ignored skip",
        ..NONE
    },
    OptionTableRow {
        of: &["cargo fmt"],
        long: "all check package quiet verbose",
        flags: "qv",
        valued: "p",
        after: "check",
        ..NONE
    },
    OptionTableRow {
        of: &["cargo tree"],
        long: "depth invert duplicates edges package workspace locked offline",
        flags: "d",
        valued: "ipe",
        ..NONE
    },
    OptionTableRow { of: &["cargo metadata"], long: "format-version no-deps locked offline", ..NONE },
    OptionTableRow {
        of: &["git status"],
        long: "short branch porcelain long show-stash untracked-files ignored ahead-behind no-ahead-behind verbose",
        flags: "sbvz",
        valued: "u",
        ..NONE
    },
    OptionTableRow {
        of: &["git diff", "git log", "git show", "git stash show"],
        long: "stat shortstat numstat name-only name-status summary cached staged word-diff color no-color patch \
               no-patch unified ignore-space-change ignore-all-space ignore-blank-lines ignore-space-at-eol minimal \
               patience histogram find-renames no-renames diff-filter exit-code quiet check raw full-index abbrev \
               merge-base no-ext-diff no-textconv text function-context compact-summary",
        flags: "pswbzaWR",
        valued: "UMSG",
        text: "S G",
        ..NONE
    },
    OptionTableRow {
        of: &["git log", "git show", "git shortlog", "git rev-list"],
        long: "oneline graph decorate no-decorate all branches tags remotes max-count skip since until after before \
               author committer grep all-match invert-grep regexp-ignore-case extended-regexp fixed-strings merges \
               no-merges first-parent reverse follow format pretty abbrev-commit date topo-order date-order count \
               left-right cherry-pick summary numbered email",
        flags: "0123456789iEFsne",
        valued: "L",
        text: "grep author committer",
        ..NONE
    },
    OptionTableRow { of: &["git log"], valued: "n", ..NONE },
    OptionTableRow {
        of: &["git add"],
        long: "all update verbose dry-run intent-to-add",
        flags: "AuvnN",
        ..NONE
    },
    OptionTableRow {
        of: &["git commit"],
        long: "message all amend no-edit quiet allow-empty signoff dry-run author date",
        flags: "aqs",
        valued: "m",
        text: "m message author date",
        ..NONE
    },
    OptionTableRow {
        of: &["git branch"],
        long: "list all remotes verbose show-current contains no-contains merged no-merged sort format",
        flags: "arvl",
        ..NONE
    },
    OptionTableRow {
        of: &["git stash"],
        long: "message include-untracked keep-index quiet index",
        flags: "ukq",
        valued: "m",
        text: "m message",
        ..NONE
    },
    OptionTableRow { of: &["git blame"], long: "date porcelain", flags: "wsepC", valued: "L", ..NONE },
    OptionTableRow {
        of: &["git ls-files"],
        long: "cached others modified deleted stage exclude-standard full-name error-unmatch",
        flags: "cosmdz",
        ..NONE
    },
    OptionTableRow {
        of: &["git rev-parse"],
        long: "show-toplevel abbrev-ref short verify quiet is-inside-work-tree show-prefix",
        flags: "q",
        ..NONE
    },
    OptionTableRow {
        of: &["git grep"],
        long: "line-number ignore-case files-with-matches word-regexp count fixed-strings extended-regexp cached",
        flags: "niIlwEFchvP",
        valued: "eABC",
        text: "e",
        ..NONE
    },
    OptionTableRow {
        of: &["git fetch"],
        long: "all prune tags quiet verbose dry-run",
        flags: "apqvt",
        ..NONE
    },
    OptionTableRow { of: &["git pull"], long: "ff-only rebase no-rebase quiet verbose", flags: "qv", ..NONE },
    OptionTableRow {
        of: &["git push"],
        long: "set-upstream quiet verbose dry-run tags",
        flags: "uqvn",
        ..NONE
    },
    OptionTableRow {
        of: &["git clone"],
        long: "quiet verbose depth single-branch no-tags branch",
        flags: "qv",
        valued: "b",
        ..NONE
    },
    OptionTableRow { of: &["git checkout"], long: "quiet detach", flags: "bq", ..NONE },
    OptionTableRow { of: &["git switch"], long: "create quiet detach", flags: "cq", ..NONE },
    OptionTableRow {
        of: &["git restore"],
        long: "staged worktree source quiet",
        flags: "SWq",
        valued: "s",
        ..NONE
    },
    OptionTableRow {
        of: &["git merge"],
        long: "ff-only no-ff ff no-edit abort quiet squash no-commit",
        flags: "q",
        ..NONE
    },
    OptionTableRow { of: &["git remote"], long: "verbose", flags: "v", ..NONE },
    OptionTableRow { of: &["git tag"], long: "list sort", flags: "l", ..NONE },
    OptionTableRow { of: &["git describe"], long: "tags always dirty abbrev long all", ..NONE },
    OptionTableRow {
        of: &[
            "npm test",
            "npm run",
            "npm ls",
            "pnpm test",
            "pnpm run",
            "pnpm ls",
            "yarn test",
            "yarn run",
            "npm t",
        ],
        long: "silent if-present workspaces workspace",
        flags: "s",
        valued: "w",
        ..NONE
    },
    OptionTableRow { of: &["npm ls", "pnpm ls"], long: "depth all json long", ..NONE },
    OptionTableRow {
        of: &["go test", "go build", "go vet"],
        long: "v race short cover json tags p x n trimpath",
        text: "tags",
        ..NONE
    },
    OptionTableRow {
        of: &["go test"],
        long: "run skip count timeout failfast bench benchmem benchtime parallel list shuffle cpu",
        text: "run skip bench list",
        ..NONE
    },
    OptionTableRow { of: &["go list"], long: "m json f deps test e", text: "f", ..NONE },
    OptionTableRow {
        of: &["pytest", "py.test", "python -m pytest"],
        long: "maxfail tb lf last-failed ff failed-first nf sw stepwise durations collect-only co verbose quiet \
               no-header no-summary exitfirst capture color showlocals cov cov-report strict-markers disable-warnings",
        flags: "qvxsl",
        valued: "kmrn",
        text: "k m",
        ..NONE
    },
    OptionTableRow {
        of: &["mypy"],
        long: "strict ignore-missing-imports show-error-codes pretty no-error-summary",
        ..NONE
    },
    OptionTableRow {
        of: &["ruff check", "ruff format"],
        long: "check diff select ignore quiet output-format statistics no-cache",
        flags: "q",
        ..NONE
    },
    OptionTableRow { of: &["tsc"], long: "noEmit pretty version", ..NONE },
    OptionTableRow { of: &["eslint"], long: "quiet max-warnings ext color no-color", ..NONE },
    OptionTableRow { of: &["prettier"], long: "check list-different", flags: "l", ..NONE },
    OptionTableRow {
        of: &["make", "gmake"],
        long: "jobs keep-going silent quiet dry-run always-make no-print-directory",
        flags: "ksBnw",
        valued: "j",
        ..NONE
    },
    OptionTableRow {
        of: &["ls"],
        long: "all almost-all human-readable recursive reverse size sort color directory classify time full-time \
               group-directories-first inode",
        flags: "laAhtrRSdF1ginosU",
        ..NONE
    },
    OptionTableRow {
        of: &["cat"],
        long: "number number-nonblank show-all squeeze-blank",
        flags: "nbAsTEvet",
        ..NONE
    },
    OptionTableRow {
        of: &["head", "tail"],
        long: "lines bytes quiet verbose",
        flags: "qv0123456789",
        valued: "nc",
        ..NONE
    },
    OptionTableRow { of: &["wc"], long: "lines words bytes chars", flags: "lwcmL", ..NONE },
    OptionTableRow {
        of: &["rg"],
        long: "line-number ignore-case files-with-matches files-without-match files word-regexp invert-match \
               fixed-strings count count-matches only-matching hidden no-ignore no-ignore-vcs smart-case \
               case-sensitive multiline pcre2 glob iglob type type-not type-list after-context before-context \
               context max-count max-depth regexp heading no-heading color json stats sort sortr trim column \
               vimgrep no-filename with-filename no-line-number replace text unrestricted null passthru max-columns \
               threads quiet",
        flags: "nilwvFcoHIhSsUPuaxN0pq.",
        valued: "ABCmtTgejMrd",
        text: "e regexp r replace",
        ..NONE
    },
    OptionTableRow {
        of: &["grep", "egrep", "fgrep"],
        long: "recursive include exclude exclude-dir line-number ignore-case files-with-matches \
               files-without-match word-regexp count color context after-context before-context max-count regexp \
               fixed-strings extended-regexp perl-regexp invert-match only-matching no-filename with-filename quiet",
        flags: "nrilLwvFEcoHhIsqxPaz",
        valued: "ABCme",
        text: "e regexp",
        ..NONE
    },
    OptionTableRow {
        of: &["find"],
        long: "name iname path ipath wholename type maxdepth mindepth size mtime mmin atime ctime newer empty not o \
               or a and print print0 prune regex iregex regextype perm user group depth xdev true false ls printf \
               executable readable writable P",
        text: "name iname path ipath printf regex iregex",
        ..NONE
    },
    OptionTableRow {
        of: &["fd", "fdfind"],
        long: "hidden no-ignore ignore-case case-sensitive glob fixed-strings type extension max-depth exclude color",
        flags: "HIisgFp01u",
        valued: "tedEc",
        ..NONE
    },
    OptionTableRow { of: &["sed"], long: "quiet silent", flags: "n", ..NONE },
    OptionTableRow {
        of: &["tar", "bsdtar", "gtar"],
        // Not `-x`: where files are extracted to is in the archive, and links on the way are followed.
        long: "list create verbose gzip file",
        flags: "tvczjJ",
        valued: "f",
        ..NONE
    },
    OptionTableRow {
        of: &["sort"],
        long: "numeric-sort reverse unique key",
        flags: "nrufsbdiVhz",
        valued: "kt",
        ..NONE
    },
    OptionTableRow { of: &["uniq"], long: "count repeated unique", flags: "cdui", ..NONE },
    OptionTableRow { of: &["cut"], long: "fields delimiter", flags: "s", valued: "fdcb", text: "d", ..NONE },
    OptionTableRow {
        of: &["du", "df"],
        long: "human-readable summarize max-depth",
        flags: "shacTk",
        valued: "d",
        ..NONE
    },
    OptionTableRow { of: &["stat"], long: "format", valued: "c", text: "c", ..NONE },
    // Not `-r`: it follows the links that it meets.
    OptionTableRow { of: &["diff"], long: "unified brief color", flags: "uNqwbB", valued: "U", ..NONE },
    OptionTableRow { of: &["tree"], flags: "adfsh", valued: "LIP", ..NONE },
    OptionTableRow {
        of: &["jq"],
        long: "raw-output compact-output slurp sort-keys exit-status null-input",
        flags: "rcseSMCn",
        ..NONE
    },
    OptionTableRow { of: &["docker ps", "docker images"], long: "all quiet no-trunc", flags: "aq", ..NONE },
    OptionTableRow { of: &["echo"], flags: "neE", ..NONE },
    OptionTableRow { of: &["which"], flags: "a", ..NONE },
    OptionTableRow { of: &["uname"], flags: "asrm", ..NONE },
    OptionTableRow { of: &["mkdir"], long: "parents verbose", flags: "pv", ..NONE },
];

/// More programs that run no other, for which no option is known.
pub(super) const PLAIN: &[&str] = &[
    "rm",
    "cp",
    "mv",
    "ln",
    "touch",
    "chmod",
    "chown",
    "rmdir",
    "pwd",
    "cd",
    "true",
    "false",
    "printf",
    "test",
    "[",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "file",
    "date",
    "sleep",
    "kill",
    "apt",
    "apt-get",
    "brew",
    "pip",
    "npm",
    "pnpm",
    "yarn",
    "cargo",
    "git",
    "go",
    "gh",
    "curl",
    "wget",
    "dd",
    "shred",
    "unlink",
    "tee",
    "type",
    "dpkg",
    "rpm",
    "dnf",
    "yum",
    "pacman",
    "apk",
    "systemctl",
    "terraform",
    "helm",
    "aws",
    "gcloud",
];
