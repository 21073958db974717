// Diffs: read, compared word by word, folded, and shown side by side or one below the other.
// `parse` and `words` are pure.

import { h, button } from "./dom.js";
import { cleanBlock } from "./text.js";
import { languageOf, tokens } from "./syntax.js";

/** Unchanged lines in a row that are shown before the rest of them is folded away. */
const CONTEXT = 8;
/** Hunks and lines that are open at first. */
const OPEN_HUNKS = 12;
const OPEN_LINES = 400;
const LONGEST_LINE = 2000;

/** `[{path, from, hunks: [{head, old, new, lines: [{sign, text, old, new}]}]}]` of a unified diff, or of what looks like one. */
export function parse(source) {
  const files = [];
  let file = null;
  let hunk = null;
  let [oldLine, newLine] = [1, 1];
  // How many lines of the hunk are still to come, by its own word: only outside of it `---` is a header.
  let left = { old: 0, new: 0 };
  const begin = (path = null) => {
    files.push((file = { path, from: null, hunks: [] }));
    hunk = null;
  };
  const lines = cleanBlock(source).replace(/\n$/, "").split("\n");
  for (let n = 0; n < lines.length; n += 1) {
    const text = lines[n].replace(/<U\+000D>$/, "");
    const inside = left.old > 0 || left.new > 0;
    if (!inside && text.startsWith("--- ") && (lines[n + 1] ?? "").startsWith("+++ ")) {
      const path = strip(lines[n + 1].slice(4));
      begin(path === "/dev/null" ? strip(text.slice(4)) : path);
      file.from = strip(text.slice(4));
      n += 1;
      continue;
    }
    if (!inside && /^(diff --git|index |new file mode|deleted file mode|similarity index|rename |old mode|new mode)/.test(text)) continue;
    const head = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/.exec(text);
    // A line of a hunk begins with a sign: whatever the head before it has promised, this is the next one.
    if (head) {
      if (!file) begin();
      [oldLine, newLine] = [Number(head[1]), Number(head[3])];
      left = { old: Number(head[2] ?? 1), new: Number(head[4] ?? 1) };
      file.hunks.push((hunk = { head: head[5], old: oldLine, new: newLine, lines: [] }));
      continue;
    }
    if (text.startsWith("\\ No newline")) continue;
    if (!file) begin();
    if (!hunk) file.hunks.push((hunk = { head: "", old: 1, new: 1, lines: [] }));
    const sign = text[0] === "+" || text[0] === "-" ? text[0] : " ";
    const body = sign === " " && text[0] !== " " ? text : text.slice(1);
    const line = { sign, text: body, old: sign === "+" ? null : oldLine, new: sign === "-" ? null : newLine };
    if (sign !== "+") {
      oldLine += 1;
      left.old -= 1;
    }
    if (sign !== "-") {
      newLine += 1;
      left.new -= 1;
    }
    hunk.lines.push(line);
  }
  return files.filter((each) => each.hunks.length);
}

const strip = (path) => path.replace(/\t.*$/, "").replace(/^[ab]\//, "");

export function size(files) {
  let [added, removed] = [0, 0];
  for (const { hunks } of files) {
    for (const { lines } of hunks) {
      for (const { sign } of lines) {
        added += sign === "+";
        removed += sign === "-";
      }
    }
  }
  return { added, removed };
}

const parts = (text) => text.match(/\w+|\s+|[^\w\s]/gu) ?? [];

/** Which parts of two lines differ: `[[{text, changed}], [{text, changed}]]`. Lines that have little in common differ as a whole. */
export function words(before, after) {
  const whole = [[{ text: before, changed: false }], [{ text: after, changed: false }]];
  if (before.length > LONGEST_LINE || after.length > LONGEST_LINE) return whole;
  const [a, b] = [parts(before), parts(after)];
  if (a.length * b.length > 90000) return whole;
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const [left, right] = [[], []];
  const put = (list, text, changed) => {
    const last = list[list.length - 1];
    if (last && last.changed === changed) last.text += text;
    else list.push({ text, changed });
  };
  let [i, j, same] = [0, 0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      if (a[i].trim()) same += a[i].length;
      put(left, a[i], false);
      put(right, b[j], false);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && table[i + 1][j] >= table[i][j + 1])) put(left, a[i++], true);
    else put(right, b[j++], true);
  }
  return same * 2 < Math.max(solid(before), solid(after)) ? whole : [left, right];
}

const solid = (text) => text.replace(/\s+/g, "").length;

/** Larger stretches are put side by side as they come. */
const MOST_PAIRED = 60;

/** Which of the new lines each removed line became: only what has much in common is compared word by word. */
function pair(gone, come) {
  const found = [];
  let [next, paired] = [0, gone.length <= MOST_PAIRED && come.length <= MOST_PAIRED];
  for (const left of gone) {
    let match = -1;
    for (let k = next; paired && k < come.length && match < 0; k += 1) {
      const [was, is] = words(left.text, come[k].text);
      if (was.length > 1 || is.length > 1) {
        [left.parts, come[k].parts] = [was, is];
        match = k;
      }
    }
    if (match < 0) {
      found.push({ left, right: null });
      continue;
    }
    while (next < match) found.push({ left: null, right: come[next++] });
    found.push({ left, right: come[next++] });
  }
  while (next < come.length) found.push({ left: null, right: come[next++] });
  return squeezed(found);
}

/** A removed line and an added one that have no partner share a row. */
function squeezed(list) {
  const out = [];
  for (const row of list) {
    const last = out[out.length - 1];
    if (last && !last.right && last.left && !row.left) last.right = row.right;
    else if (last && !last.left && last.right && !row.right && row.left) last.left = row.left;
    else out.push(row);
  }
  return out;
}

/** Rows of a hunk: `{left, right}`, a removed line beside the line that replaces it. */
export function rows(lines) {
  const found = [];
  for (let n = 0; n < lines.length; ) {
    if (lines[n].sign === " ") {
      found.push({ left: lines[n], right: lines[n] });
      n += 1;
      continue;
    }
    const [gone, come] = [[], []];
    for (; n < lines.length && lines[n].sign !== " "; n += 1) (lines[n].sign === "-" ? gone : come).push(lines[n]);
    found.push(...pair(gone, come));
  }
  return found;
}

/** The text of a line, in colours, with what changed marked. */
function painted(line, language) {
  const text = line.text.length > LONGEST_LINE ? `${line.text.slice(0, LONGEST_LINE)} … ${line.text.length} characters` : line.text;
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
    h("td", { class: `code ${kind}` }, h("span", { class: "sign" }, line.sign === " " ? "\u00a0" : line.sign), painted(line, language)),
  ];
}

/** Stretches of unchanged lines that are long are folded. */
function folded(list, isPlain) {
  const out = [];
  for (let n = 0; n < list.length; ) {
    let end = n;
    while (end < list.length && isPlain(list[end])) end += 1;
    if (end - n > 2 * CONTEXT) {
      out.push(...list.slice(n, n + CONTEXT), { hidden: list.slice(n + CONTEXT, end - CONTEXT) }, ...list.slice(end - CONTEXT, end));
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
  const list = split ? folded(paired, (row) => row.left === row.right) : folded(hunk.lines, (each) => each.sign === " ");
  for (const each of list) {
    if (!each.hidden) {
      body.append(line(each));
      continue;
    }
    const more = h("tr", {}, h("td", { class: "fold", colspan: split ? "4" : "2" }, button(`Show ${each.hidden.length} unchanged lines`, () => more.replaceWith(...each.hidden.map(line)), { class: "plain" })));
    body.append(more);
  }
  return h("table", { class: split ? "diff split" : "diff" }, body);
}

function hunkOf(hunk, language, split, open) {
  const label = `@@ line ${hunk.new}${hunk.head ? ` · ${hunk.head}` : ""}`;
  const details = h("details", { class: "hunk" }, h("summary", {}, h("span", { class: "mono" }, label), h("span", { class: "faint" }, ` ${hunk.lines.length} lines`)));
  // What is closed costs nothing until it is opened.
  const fill = () => details.childElementCount === 1 && details.append(h("div", { class: "scroll", tabindex: "0" }, table(hunk, language, split)));
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
  const draw = () => {
    let [hunks, lines] = [0, 0];
    const split = layout.split;
    place.replaceChildren(
      ...files.map((file) => {
        const language = languageOf(file.path ?? path);
        return h(
          "section",
          { class: "file", "aria-label": `Changes of ${file.path ?? path ?? "a file"}` },
          files.length > 1 || (file.path && file.path !== path) ? h("p", { class: "filename mono" }, file.path ?? path ?? "") : null,
          file.hunks.map((hunk) => {
            hunks += 1;
            lines += hunk.lines.length;
            return hunkOf(hunk, language, split, hunks <= OPEN_HUNKS && lines <= OPEN_LINES + hunk.lines.length && hunk.lines.length <= 4 * OPEN_LINES);
          }),
        );
      }),
    );
    toggle.textContent = split ? "Unified" : "Side by side";
  };
  const toggle = button("", () => {
    layout.split = !layout.split;
    draw();
  }, { class: "small wide-only" });
  const bar = h("div", { class: "row diffbar" }, h("span", { class: "plus" }, `+${added}`), h("span", { class: "minus" }, `−${removed}`), h("span", { class: "grow" }), toggle);
  draw();
  return h("div", { class: "change" }, bar, place);
}
