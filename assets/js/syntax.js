// @ts-check
// Colours for code: strings, comments, numbers and the words of the language. Good enough to read a diff by.

const WORDS = {
  rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
  js: "async await break case catch class const continue default delete do else export extends false finally for from function if import in instanceof let new null of return static super switch this throw true try typeof undefined var void while yield interface type enum implements readonly",
  python:
    "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield",
  go: "break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var",
  c: "auto bool break case char class const constexpr continue default delete do double else enum extern false float for friend if inline int long namespace new nullptr operator private protected public return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void volatile while",
  java: "abstract boolean break case catch class const continue default do double else enum extends false final finally float for if implements import instanceof int interface long new null package private protected public return static super switch synchronized this throw throws true try var void while val fun when object",
  shell:
    "case do done elif else esac exit export fi for function if in local return set shift then trap unset until while",
  sql: "add all alter and as asc by create delete desc distinct drop exists from group having in index insert into is join key left limit not null on or order primary right select set table union unique update values where",
  config: "true false null yes no on off",
};

/** @type {Record<string, string>} */
const ENDINGS = {
  rs: "rust",
  js: "js",
  mjs: "js",
  cjs: "js",
  ts: "js",
  tsx: "js",
  jsx: "js",
  py: "python",
  go: "go",
  c: "c",
  h: "c",
  cc: "c",
  cpp: "c",
  hpp: "c",
  cs: "java",
  java: "java",
  kt: "java",
  swift: "java",
  sh: "shell",
  bash: "shell",
  zsh: "shell",
  sql: "sql",
  toml: "config",
  yaml: "config",
  yml: "config",
  json: "config",
  ini: "config",
  rb: "python",
  css: "c",
};

const HASH = new Set(["python", "shell", "config"]);
/** @type {Record<string, Set<string>>} */
const SETS = Object.fromEntries(Object.entries(WORDS).map(([name, words]) => [name, new Set(words.split(" "))]));

/** @param {string | null | undefined} path */
export function languageOf(path) {
  const name = String(path ?? "").toLowerCase();
  if (/(^|\/)(makefile|dockerfile|justfile)$/.test(name)) return "shell";
  return ENDINGS[/\.([a-z0-9]+)$/.exec(name)?.[1] ?? ""] ?? null;
}

/** @typedef {{ text: string, kind: "word" | "string" | "comment" | "number" | null }} Token */

/**
 * The tokens of one line; together they are the line.
 *
 * @param {string} line
 * @param {string | null} language
 * @returns {Token[]}
 */
export function tokens(line, language) {
  const words = language && SETS[language];
  if (!language || !words || line.length > 2000) return [{ text: line, kind: null }];
  const comment = language === "sql" ? "--" : HASH.has(language) ? "#" : "//";
  /** @type {Token[]} */
  const found = [];
  let plain = "";
  /** @type {(text: string, kind: Token["kind"]) => void} */
  const push = (text, kind) => {
    if (!kind) {
      plain += text;
      return;
    }
    if (plain) found.push({ text: plain, kind: null });
    plain = "";
    found.push({ text, kind });
  };
  let at = 0;
  while (at < line.length) {
    const rest = line.slice(at);
    if (rest.startsWith(comment) || (/^\s*\*[ /]/.test(rest) && at === 0 && !HASH.has(language))) {
      push(rest, "comment");
      break;
    }
    const match =
      /^(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)+'|`(?:[^`\\]|\\.)*`?)/.exec(rest) ??
      /^\d[\w.]*/.exec(rest) ??
      /^[A-Za-z_$][\w$]*/.exec(rest);
    if (!match) {
      push(rest[0], null);
      at += 1;
      continue;
    }
    const text = match[0];
    const kind = /^["'`]/.test(text)
      ? "string"
      : /^\d/.test(text)
        ? "number"
        : words.has(text) || (language === "sql" && words.has(text.toLowerCase()))
          ? "word"
          : null;
    push(text, kind);
    at += text.length;
  }
  if (plain) found.push({ text: plain, kind: null });
  return found;
}
