// A diff on the page: folded, in colours, side by side or one below the other.

import { h, button } from "./dom.js";
import { LONGEST_LINE, parse, rows, size } from "./diff.js";
import { languageOf, tokens } from "./syntax.js";

/** Unchanged lines in a row that are shown before the rest of them is folded away. */
const CONTEXT = 8;
/** Hunks and lines that are open at first. */
const OPEN_HUNKS = 12;
const OPEN_LINES = 400;
/** Hunks of a diff and rows of a hunk that are in the page before one asks for more. */
const MOST_HUNKS = 200;
const MOST_ROWS = 2000;

/** The text of a line, in colours, with what changed marked. */
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

const WORD = { "+": "added", "-": "removed", " ": "" };

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

/** Stretches of unchanged lines that are long are folded. */
function folded(list, isPlain) {
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

function table(hunk, language, split) {
  const paired = rows(hunk.lines);
  const body = h("tbody", {});
  const line = split
    ? ({ left, right }) => h("tr", {}, cell(left, language, "left"), cell(right, language, "right"))
    : (each) => h("tr", {}, cell(each, language));
  const list = split
    ? folded(paired, (row) => row.left === row.right)
    : folded(hunk.lines, (each) => each.sign === " ");
  const fold = (words, open) => {
    const more = h("tr", {}, h("td", { class: "fold", colspan: split ? "4" : "2" }));
    more.firstChild.append(button(words, () => more.replaceWith(...open()), { class: "plain" }));
    return more;
  };
  const some = (list, from = 0) => {
    const shown = list.slice(from, from + MOST_ROWS).map((each) => {
      if (!each.hidden) return line(each);
      return fold(`Show ${each.hidden.length} unchanged lines`, () => some(each.hidden));
    });
    const left = list.length - from - MOST_ROWS;
    if (left > 0)
      shown.push(fold(`Show more: ${left.toLocaleString()} lines are left`, () => some(list, from + MOST_ROWS)));
    return shown;
  };
  body.append(...some(list));
  return h("table", { class: split ? "diff split" : "diff" }, body);
}

function hunkOf(hunk, language, split, open) {
  const label = `@@ line ${hunk.new}${hunk.head ? ` · ${hunk.head}` : ""}`;
  const details = h(
    "details",
    { class: "hunk" },
    h("summary", {}, h("span", { class: "mono" }, label), h("span", { class: "faint" }, ` ${hunk.lines.length} lines`)),
  );
  // What is closed costs nothing until it is opened.
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

export const layout = {
  get split() {
    return localStorage.getItem("diff") === "split" && matchMedia("(min-width: 900px)").matches;
  },
  set split(yes) {
    localStorage.setItem("diff", yes ? "split" : "unified");
  },
};

/** The whole of it, with its size and the choice of how to look at it. */
export function render(source, path) {
  const files = parse(source);
  const { added, removed } = size(files);
  const place = h("div", { class: "files" });
  const count = files.reduce((sum, file) => sum + file.hunks.length, 0);
  let most = MOST_HUNKS;
  const draw = () => {
    let [hunks, lines] = [0, 0];
    const split = layout.split;
    const sections = files.map((file) => {
      const shown = file.hunks.slice(0, Math.max(0, most - hunks));
      if (!shown.length) return null;
      const language = languageOf(file.path ?? path);
      return h(
        "section",
        { class: "file", "aria-label": `Changes of ${file.path ?? path ?? "a file"}` },
        files.length > 1 || (file.path && file.path !== path)
          ? h("p", { class: "filename mono" }, file.path ?? path ?? "")
          : null,
        shown.map((hunk) => {
          hunks += 1;
          lines += hunk.lines.length;
          return hunkOf(
            hunk,
            language,
            split,
            hunks <= OPEN_HUNKS && lines <= OPEN_LINES + hunk.lines.length && hunk.lines.length <= 4 * OPEN_LINES,
          );
        }),
      );
    });
    place.replaceChildren(...sections.filter(Boolean));
    if (count > most)
      place.append(
        button(`Show more: ${(count - most).toLocaleString()} hunks are left`, () => ((most += MOST_HUNKS), draw()), {
          class: "wide",
        }),
      );
    toggle.textContent = split ? "Unified" : "Side by side";
  };
  const toggle = button(
    "",
    () => {
      layout.split = !layout.split;
      draw();
    },
    { class: "small wide-only" },
  );
  const bar = h(
    "div",
    { class: "row diffbar" },
    h("span", { class: "plus" }, `+${added}`),
    h("span", { class: "minus" }, `−${removed}`),
    h("span", { class: "grow" }),
    toggle,
  );
  draw();
  return h("div", { class: "change" }, bar, place);
}
