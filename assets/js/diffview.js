// @ts-check
// The view of a diff: folded, coloured, side by side or unified.

import { h, button, replace } from "./dom.js";
import { LONGEST_LINE, parse, rows, size } from "./diff.js";
import { languageOf, tokens } from "./syntax.js";
/** @import { FileDiff, Hunk, Line, Pair } from "./diff.js" */

/** @typedef {"left" | "right"} Side */
/**
 * @template Row
 * @typedef {Row | { hidden: Row[] }} Folded rows, or a stretch of them that is folded away
 */

/** The number of unchanged lines in a row that are shown before the rest is folded. */
const CONTEXT = 8;
/** The number of hunks and lines that are open initially. */
const OPEN_HUNKS = 12;
const OPEN_LINES = 400;
/** The number of hunks of a diff and rows of a hunk that are rendered at once. */
const MOST_HUNKS = 200;
const MOST_ROWS = 2000;

/**
 * The coloured text of a line, with the changed parts marked.
 *
 * @param {Line} line
 * @param {string | null} language
 */
function painted(line, language) {
  const text =
    line.text.length > LONGEST_LINE
      ? `${line.text.slice(0, LONGEST_LINE)} … ${line.text.length} characters`
      : line.text;
  const marks = line.parts ?? [{ text, changed: false }];
  const out = [];
  let [m, inMark] = [0, 0];
  for (const token of tokens(text, language)) {
    let rest = token.text;
    while (rest) {
      const mark = marks[m];
      const piece = mark ? rest.slice(0, mark.text.length - inMark) : rest;
      rest = rest.slice(piece.length);
      const style = [token.kind && `t-${token.kind}`, mark?.changed && "changed"].filter(Boolean).join(" ");
      out.push(style ? h("span", { class: style }, piece) : piece);
      inMark += piece.length;
      if (mark && inMark >= mark.text.length) {
        m += 1;
        inMark = 0;
      }
    }
  }
  return out.length ? out : "\u200a";
}

/** @type {Record<string, string>} */
const WORD = { "+": "added", "-": "removed", " ": "" };

/**
 * @param {Line | null} line
 * @param {string | null} language
 * @param {Side} [side]
 */
function cell(line, language, side) {
  if (!line) return [h("td", { class: "number" }), h("td", { class: "code none" })];
  const number = side === "left" ? line.old : side === "right" ? line.new : (line.new ?? line.old);
  const kind = WORD[line.sign];
  return [
    h("td", { class: `number ${kind}` }, number == null ? "" : String(number)),
    h(
      "td",
      { class: `code ${kind}` },
      h("span", { class: "sign" }, line.sign === " " ? "\u00a0" : line.sign),
      painted(line, language),
    ),
  ];
}

/**
 * Folds long stretches of unchanged lines.
 *
 * @template Row
 * @param {Row[]} list
 * @param {(row: Row) => boolean} isPlain
 */
function folded(list, isPlain) {
  /** @type {Array<Folded<Row>>} */
  const out = [];
  for (let n = 0; n < list.length; ) {
    let end = n;
    while (end < list.length && isPlain(list[end])) end += 1;
    if (end - n > 2 * CONTEXT) {
      out.push(
        ...list.slice(n, n + CONTEXT),
        { hidden: list.slice(n + CONTEXT, end - CONTEXT) },
        ...list.slice(end - CONTEXT, end),
      );
      n = end;
    } else if (end > n) {
      out.push(...list.slice(n, end));
      n = end;
    } else out.push(list[n++]);
  }
  return out;
}

/**
 * The rendered rows: folded ones, and those beyond the limit, are rendered on demand.
 *
 * @template {object} Row
 * @param {Array<Folded<Row>>} list
 * @param {(row: Row) => HTMLElement} line
 * @param {string} columns
 */
function rowsOf(list, line, columns) {
  /** @type {(words: string, open: () => HTMLElement[]) => HTMLElement} */
  const fold = (words, open) => {
    const more = button(words, () => place.replaceWith(...open()), { class: "plain" });
    const place = h("tr", {}, h("td", { class: "fold", colspan: columns }, more));
    return place;
  };
  /** @type {(list: Array<Folded<Row>>, from?: number) => HTMLElement[]} */
  const some = (list, from = 0) => {
    const shown = list.slice(from, from + MOST_ROWS).map((each) => {
      if (!("hidden" in each)) return line(each);
      return fold(`Show ${each.hidden.length} unchanged lines`, () => some(each.hidden));
    });
    const left = list.length - from - MOST_ROWS;
    if (left > 0)
      shown.push(fold(`Show more (${left.toLocaleString()} lines left)`, () => some(list, from + MOST_ROWS)));
    return shown;
  };
  return some(list);
}

/**
 * @param {Hunk} hunk
 * @param {string | null} language
 * @param {boolean} split
 */
function table(hunk, language, split) {
  // Also marks the words that differ.
  const paired = rows(hunk.lines);
  /** @param {Pair} pair */
  const pairOf = ({ left, right }) => h("tr", {}, cell(left, language, "left"), cell(right, language, "right"));
  /** @param {Line} line */
  const lineOf = (line) => h("tr", {}, cell(line, language));
  const shown = split
    ? rowsOf(
        folded(paired, (row) => row.left === row.right),
        pairOf,
        "4",
      )
    : rowsOf(
        folded(hunk.lines, (line) => line.sign === " "),
        lineOf,
        "2",
      );
  return h("table", { class: split ? "diff split" : "diff" }, h("tbody", {}, shown));
}

/**
 * @param {Hunk} hunk
 * @param {string | null} language
 * @param {boolean} split
 * @param {boolean} open
 */
function hunkOf(hunk, language, split, open) {
  const label = `@@ line ${hunk.new}${hunk.head ? ` · ${hunk.head}` : ""}`;
  const details = h(
    "details",
    { class: "hunk" },
    h("summary", {}, h("span", { class: "mono" }, label), h("span", { class: "faint" }, ` ${hunk.lines.length} lines`)),
  );
  // A closed hunk is rendered when it is opened.
  const fill = () =>
    details.childElementCount === 1 &&
    details.append(h("div", { class: "scroll", tabindex: "0" }, table(hunk, language, split)));
  details.addEventListener("toggle", () => details.open && fill());
  if (open) {
    details.open = true;
    fill();
  }
  return details;
}

const layout = {
  get split() {
    return localStorage.getItem("diff") === "split" && matchMedia("(min-width: 900px)").matches;
  },
  set split(yes) {
    localStorage.setItem("diff", yes ? "split" : "unified");
  },
};

/**
 * The first hunks of all files, so many of them.
 *
 * @param {FileDiff[]} files
 * @param {string | null} path
 * @param {number} most
 */
function sections(files, path, most) {
  const { split } = layout;
  let [hunks, lines] = [0, 0];
  /** @param {Hunk} hunk */
  const opens = ({ lines: { length } }) => {
    hunks += 1;
    lines += length;
    return hunks <= OPEN_HUNKS && lines <= OPEN_LINES + length && length <= 4 * OPEN_LINES;
  };
  return files.map((file) => {
    const shown = file.hunks.slice(0, Math.max(0, most - hunks));
    if (!shown.length) return null;
    const name = file.path ?? path;
    const isNamed = files.length > 1 || (file.path && file.path !== path);
    return h(
      "section",
      { class: "file", "aria-label": `Changes of ${name ?? "a file"}` },
      isNamed && h("p", { class: "filename mono" }, name),
      shown.map((hunk) => hunkOf(hunk, languageOf(name), split, opens(hunk))),
    );
  });
}

/**
 * The whole diff, with its size and the choice of the layout.
 *
 * @param {string} source
 * @param {string | null} path
 */
export function render(source, path) {
  const files = parse(source);
  const { added, removed } = size(files);
  const place = h("div", { class: "files" });
  const count = files.reduce((sum, file) => sum + file.hunks.length, 0);
  let most = MOST_HUNKS;
  const more = () => {
    most += MOST_HUNKS;
    draw();
  };
  const draw = () => {
    const left = `Show more (${(count - most).toLocaleString()} hunks left)`;
    replace(place, sections(files, path, most), count > most && button(left, more, { class: "wide" }));
    toggle.textContent = layout.split ? "Unified" : "Side by side";
  };
  const turn = () => {
    layout.split = !layout.split;
    draw();
  };
  const toggle = button("", turn, { class: "small wide-only" });
  const sizes = [h("span", { class: "plus" }, `+${added}`), h("span", { class: "minus" }, `−${removed}`)];
  draw();
  return h(
    "div",
    { class: "change" },
    h("div", { class: "row diffbar" }, sizes, h("span", { class: "grow" }), toggle),
    place,
  );
}
