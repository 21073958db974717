//! Shell texts made of stub programs, harmless builtins, and constructs that are easy to misread. The same seed gives
//! the same texts.
//!
//! Safe by construction: the only programs are stubs, redirections go to `/dev/null` and to files in the current
//! directory, and loops end because stubs with odd numbers fail.

/// Stub programs; those with odd numbers fail.
pub(super) const STUBS: usize = 10;

/// Characters and strings that mutations insert.
const NASTY: &[&str] = &[
    "'",
    "\"",
    "`",
    "\\",
    "#",
    " #",
    "\n",
    ";",
    "&",
    "|",
    "(",
    ")",
    "$(",
    "${",
    "}",
    "{",
    "$'",
    "$\"",
    "<<E\n",
    "<<'E'\n",
    "<<-E\n",
    "E\n",
    "\nE\n",
    "\\\n",
    "&&",
    "||",
    ";;",
    "<(",
    ">(",
    "((",
    "))",
    "[[ ",
    " ]]",
    "$((",
    "esac",
    "case x in ",
    " in ",
    "! ",
    "time ",
    "\t",
    "\r",
    "*",
    "?",
    "[",
    "]",
    "~",
    "=",
    "x=",
    "!",
    "$",
    "${x#",
    "<<<",
    "&>",
    ">&",
    "|&",
    "{a,b}",
    "\\'",
    "\\\"",
    "''",
    "\"\"",
    " ",
    "do ",
    "done",
    "then ",
    "fi",
    "if ",
    "%",
    ",",
    ":-",
    "@",
    "\u{a0}",
    "\u{b}",
    "<<",
    "<<-",
    "E",
    "`s1`",
    "s2",
    "\ns3 ",
    ";s4;",
    "$x",
    "${x}",
    "\\\\",
    "\\$",
    "\\`",
    "coproc ",
    "function f ",
    "f()",
    "a=(",
    "#'",
    "#`",
    "'#",
    "${#x}",
    "$#",
    "s5\\",
    "&s6",
    "|s7",
    "$[",
    "eval ",
    "exec ",
    ". ",
    "'\\''",
    "$'\\''",
];

/// A command and the bodies of its here-documents, which follow the line that it stands on.
struct Piece {
    head: String,
    bodies: String,
}

pub(in crate::tests) struct Generator {
    state: u64,
}

impl Generator {
    pub(in crate::tests) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Constructs that make a text unreadable are rare, so that enough texts stay readable.
    fn rarely(&mut self) -> bool {
        self.chance(6)
    }

    fn pick<'a>(&mut self, options: &[&'a str]) -> &'a str {
        options[self.below(options.len())]
    }

    fn stub(&mut self) -> String {
        format!("s{}", self.below(STUBS))
    }

    /// A stub that succeeds or fails for certain.
    fn stub_that(&mut self, succeeds: bool) -> String {
        format!("s{}", self.below(STUBS / 2) * 2 + usize::from(!succeeds))
    }

    /// One text of a few lines, often with characters inserted, removed or swapped.
    pub(in crate::tests) fn text(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..=self.below(2) {
            let depth = 1 + self.below(3);
            text.push_str(&self.line(depth));
        }
        if self.chance(45) {
            for _ in 0..=self.below(2) {
                text = self.mutated(&text);
            }
        }
        text
    }

    /// One simple command, sometimes with characters inserted, removed or swapped.
    pub(in crate::tests) fn simple_text(&mut self) -> String {
        let text = self.simple(0).head;
        if self.chance(30) { self.mutated(&text) } else { text }
    }

    fn mutated(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        let at = self.below(chars.len() + 1);
        match self.below(8) {
            0 if at < chars.len() => {
                chars.remove(at);
            }
            1 if at + 1 < chars.len() => chars.swap(at, at + 1),
            2 if at < chars.len() => {
                let end = (at + 1 + self.below(6)).min(chars.len());
                let copy: Vec<char> = chars[at..end].to_vec();
                let to = self.below(chars.len() + 1);
                chars.splice(to..to, copy);
            }
            3 => {
                // A construct inside of another, wherever that may be.
                let inner = self.line(1);
                chars.splice(at..at, inner.chars());
            }
            _ => {
                let nasty = self.pick(NASTY);
                chars.splice(at..at, nasty.chars());
            }
        }
        chars.into_iter().collect()
    }

    /// A whole line with the bodies of its here-documents.
    fn line(&mut self, depth: usize) -> String {
        let piece = self.list(depth);
        let comment = if self.chance(20) { self.comment() } else { String::new() };
        format!("{}{comment}\n{}", piece.head, piece.bodies)
    }

    fn comment(&mut self) -> String {
        let body = self.pick(&[
            "it's",
            "isn't \" one",
            "`s1",
            "$(s2",
            "<<E",
            "'s3'",
            "\\",
            "s4; s5",
            "${x",
            "$'",
            "esac",
            "))",
            "# #",
            "\"",
        ]);
        let lead = self.pick(&[" #", " # ", ";#", "\t#", " ##"]);
        format!("{lead}{body}")
    }

    fn list(&mut self, depth: usize) -> Piece {
        let mut piece = self.command(depth);
        while self.chance(35) {
            let next = self.command(depth);
            let operator =
                self.pick(&[";", " ; ", "&&", " && ", "||", " || ", "|", " | ", " & ", "&", " |& "]);
            piece.head = format!("{}{operator}{}", piece.head, next.head);
            piece.bodies.push_str(&next.bodies);
        }
        piece
    }

    /// A list with an end, on one line or several.
    fn block(&mut self, depth: usize) -> String {
        let piece = self.list(depth);
        if !piece.bodies.is_empty() || self.chance(40) {
            return format!("{}\n{}", piece.head, piece.bodies);
        }
        if self.chance(15) {
            let comment = self.comment();
            return format!("{}{comment}\n", piece.head);
        }
        format!("{};", piece.head)
    }

    fn plain(head: String) -> Piece {
        Piece { head, bodies: String::new() }
    }

    fn command(&mut self, depth: usize) -> Piece {
        if depth == 0 || self.chance(40) {
            return self.simple(depth);
        }
        let inner = depth - 1;
        let head = match self.below(30) {
            0 => format!("( {} )", self.block(inner)),
            1 => format!("({})", self.list(inner).head),
            2 => format!("{{ {} }}", self.block(inner)),
            3 => {
                let (condition, then, other) = (self.block(inner), self.block(inner), self.block(inner));
                format!("if {condition} then {then} else {other} fi")
            }
            4 => format!("while {}; do {} done", self.stub_that(false), self.block(inner)),
            5 => format!("until {}; do {} done", self.stub_that(true), self.block(inner)),
            6 => {
                let words = self.words(inner);
                format!("for x in {words}; do {} done", self.block(inner))
            }
            7 | 8 => self.case(inner),
            9 => format!("f() {{ {} }}; f", self.block(inner)),
            10 => format!("f () ( {} )\nf {}", self.block(inner), self.word(inner)),
            11 => format!("function f {{ {} }}; f", self.block(inner)),
            12 => format!("! {}", self.command(inner).head),
            13 => format!("time {}", self.command(inner).head),
            14 => format!("coproc {}", self.command(inner).head),
            15 => format!("coproc CO {{ {} }}", self.block(inner)),
            16 | 17 => self.condition(inner),
            18 => format!("(( x + {} ))", self.number(inner)),
            19 => format!("echo $(( 1 + {} ))", self.number(inner)),
            20 => format!("eval {}", self.quoted(inner)),
            21 => format!("trap {} EXIT", self.quoted(inner)),
            22 => format!(
                "{} {}",
                self.pick(&["command", "builtin command", "exec", "command --"]),
                self.stub()
            ),
            23 => format!("a=( {} )", self.words(inner)),
            24 => format!("select x in a b; do {} break; done </dev/null", self.block(inner)),
            25 if self.rarely() => format!("x={}; ${{x}}", self.stub()),
            26 if self.rarely() => format!("echo {} >file; . ./file", self.quoted(0)),
            27 if self.rarely() => format!("alias y={}\ny", self.stub()),
            28 => format!("for ((i=0; i<1; i++)); do {} done", self.block(inner)),
            _ => format!("set -- {}; {}", self.words(inner), self.simple(inner).head),
        };
        let mut piece = Self::plain(head);
        if self.chance(15) {
            self.redirect(&mut piece, inner);
        }
        piece
    }

    fn case(&mut self, depth: usize) -> String {
        let mut text = format!("case {} in", self.pick(&["a", "\"a\"", "$y", "'a'b", "esac"]));
        for _ in 0..=self.below(2) {
            let pattern = self
                .pick(&["a", "*", "(a", "a|b", "( *", "'a'", "\"a\"|*", "[a-z]", "\\a", "a | *", "${y-a}"]);
            let end = self.pick(&[";;", ";;", ";;\n", ";&", ";;&", "\n;;"]);
            let blank = self.pick(&[" ", "\n", ""]);
            text = format!(
                "{text}{}{pattern}) {}{end}",
                if blank.is_empty() { " " } else { blank },
                self.list(depth).head
            );
        }
        text.push_str(self.pick(&[" esac", "\nesac", " esac "]));
        text
    }

    fn condition(&mut self, depth: usize) -> String {
        let left = self.word(depth);
        match self.below(7) {
            0 => format!("[[ {left} == a ]]"),
            1 => format!("[[ -n {left} && {} ]]", self.word(depth)),
            2 => format!("[[ a =~ ^(a|b)$ ]] && {}", self.stub()),
            3 => format!("[[ {left} < b || {} == c ]]", self.stub()),
            4 => format!("[[ ! ( a == {} ) ]]", self.stub()),
            5 => format!("[ {left} = a ] || {}", self.stub()),
            _ => format!("[[ a == b ||\n{} == c ]]", self.stub()),
        }
    }

    fn number(&mut self, depth: usize) -> String {
        match self.below(5) {
            0 => "1".to_owned(),
            1 if self.rarely() => format!("$({})", self.list(depth).head),
            2 if self.rarely() => format!("`{}`", self.stub()),
            3 => "y".to_owned(),
            _ => format!("$(( {} ))", self.below(9)),
        }
    }

    /// A list as one quoted word.
    fn quoted(&mut self, depth: usize) -> String {
        let list = self.list(depth.min(1)).head;
        match self.below(3) {
            0 => format!("'{}'", list.replace('\'', r"'\''")),
            1 => {
                let escaped =
                    list.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$").replace('`', "\\`");
                format!("\"{escaped}\"")
            }
            _ => format!("\"{}\"", list.replace(['"', '\\'], "")),
        }
    }

    fn simple(&mut self, depth: usize) -> Piece {
        let mut piece = Self::plain(String::new());
        if self.chance(12) {
            let value = self.word(depth);
            piece.head = format!("{}{}={value} ", piece.head, self.pick(&["x", "y", "z"]));
        }
        if self.chance(6) {
            self.redirect(&mut piece, depth);
            piece.head.push(' ');
        }
        let program = self.program(depth);
        piece.head.push_str(&program);
        for _ in 0..self.below(3) {
            let blank = self.pick(&[" ", "  ", "\t", " \\\n"]);
            let word = self.word(depth);
            piece.head = format!("{}{blank}{word}", piece.head);
            if self.chance(8) {
                piece.head.push(' ');
                self.redirect(&mut piece, depth);
            }
        }
        if self.chance(12) {
            piece.head.push(' ');
            self.redirect(&mut piece, depth);
        }
        piece
    }

    fn program(&mut self, depth: usize) -> String {
        let stub = self.stub();
        match self.below(40) {
            0 => format!("'{stub}'"),
            1 => format!("\"{stub}\""),
            2 => format!("\\{stub}"),
            3 => format!("$'{}'", stub.replace('s', "\\x73")),
            4 => format!("{}\\\n{}", &stub[..1], &stub[1..]),
            5 => format!("$\"{stub}\""),
            6 => format!("{}''{}", &stub[..1], &stub[1..]),
            7 if self.rarely() => format!("$({} )", self.list(depth.saturating_sub(1)).head),
            8 if self.rarely() => "$x".to_owned(),
            9 if self.rarely() => format!("{{{stub},a}}"),
            10 => "echo".to_owned(),
            11 => ":".to_owned(),
            12 => "true".to_owned(),
            13 => "printf '%s'".to_owned(),
            14 if self.rarely() => format!("${{n-{stub}}}"),
            15 => format!("{stub}#a"),
            16 => "cat".to_owned(),
            _ => stub,
        }
    }

    fn words(&mut self, depth: usize) -> String {
        let words: Vec<String> = (0..=self.below(2)).map(|_| self.word(depth)).collect();
        words.join(" ")
    }

    fn word(&mut self, depth: usize) -> String {
        let mut word = self.part(depth);
        while self.chance(25) {
            word.push_str(&self.part(depth));
        }
        word
    }

    fn part(&mut self, depth: usize) -> String {
        let inner = depth.saturating_sub(1);
        let nested = depth > 0;
        match self.below(34) {
            0 => "'a b'".to_owned(),
            1 => "'it\"s # `'".to_owned(),
            2 => "\"it's # \"".to_owned(),
            3 => "a#b".to_owned(),
            4 => "\\#".to_owned(),
            5 => "\\'".to_owned(),
            6 => "\\\"".to_owned(),
            7 => "$'a\\tb'".to_owned(),
            8 if self.rarely() => "$'it\\'s'".to_owned(),
            9 => "$\"a\"".to_owned(),
            10 => "${#x}".to_owned(),
            11 => "\"${y-a}\"".to_owned(),
            12 => "{a,b}".to_owned(),
            13 => "*".to_owned(),
            14 => "~".to_owned(),
            15 => "$x".to_owned(),
            16 => "\"$@\"".to_owned(),
            17 if nested => format!("$({})", self.list(inner).head),
            18 if nested => format!("\"$({})\"", self.list(inner).head),
            19 if nested => format!("$({}\n)", self.line(inner)),
            20 if nested => format!("`{}`", self.list(0).head.replace(['`', '\\'], "")),
            21 if nested => format!("\"`{}`\"", self.stub()),
            22 if nested => format!("`s1 \\`{}\\``", self.stub()),
            23 if nested => format!("<({})", self.list(inner).head),
            24 if nested => format!("${{n:-$({})}}", self.list(inner).head),
            25 if nested => format!("\"${{n:-$({})}}\"", self.stub()),
            26 if nested && self.rarely() => format!("$(( $({}) ))", self.stub()),
            27 if nested => format!("$( # it's\n{} )", self.list(inner).head),
            28 if nested => format!("$(case a in a) {};; esac)", self.list(inner).head),
            29 => "''".to_owned(),
            30 => "--".to_owned(),
            31 => self.stub(),
            _ => "a".to_owned(),
        }
    }

    fn redirect(&mut self, piece: &mut Piece, depth: usize) {
        let target = self.pick(&["/dev/null", "out", "\"out\"", "'out'", "$n/dev/null"]);
        let head = match self.below(12) {
            0 => format!(">{target}"),
            1 => format!("2>{target}"),
            2 => format!(">> {target}"),
            3 => "</dev/null".to_owned(),
            4 => "2>&1".to_owned(),
            5 => format!("&>{target}"),
            6 => format!("{{fd}}>{target}"),
            7 => format!("<<<{}", self.word(depth)),
            _ => return self.here(piece, depth),
        };
        piece.head.push_str(&head);
    }

    fn here(&mut self, piece: &mut Piece, depth: usize) {
        let operator = self.pick(&["<<", "<<", "<<-", "<< "]);
        let delimiter = self.pick(&["E", "E", "'E'", "\"E\"", "\\E", "EOF", "'EOF'"]);
        let bare = delimiter.replace(['\'', '"', '\\'], "");
        piece.head = format!("{}{operator}{delimiter}", piece.head);
        for _ in 0..self.below(4) {
            let line = match self.below(12) {
                0 => "it's".to_owned(),
                1 => "a \" b".to_owned(),
                2 => format!("$({})", self.list(depth.min(1)).head.replace('\n', " ")),
                3 => format!("`{}`", self.stub()),
                4 => format!("{} # a", self.stub()),
                5 => "\\$(s1)".to_owned(),
                6 => format!("{bare} "),
                7 => format!("\t{}", self.stub()),
                8 if self.rarely() => "a\\".to_owned(),
                9 => "${n:-$(s2)}".to_owned(),
                10 if self.rarely() => format!("$({}", self.stub()),
                _ => self.stub(),
            };
            piece.bodies = format!("{}{line}\n", piece.bodies);
        }
        let end = if operator == "<<-" && self.chance(50) { format!("\t{bare}") } else { bare };
        piece.bodies = format!("{}{end}\n", piece.bodies);
    }
}
