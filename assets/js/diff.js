// @ts-check
// The parser of diffs, and their comparison word by word. Pure; diffview.js shows them.

import { cleanBlock } from "./text.js";

/** The limit on compared lines, in characters; longer ones are shown in part. */
export const LONGEST_LINE = 2000;

/** @typedef {{ text: string, changed: boolean }} Part a stretch of a line */
/** @typedef {{ sign: string, text: string, old: number | null, new: number | null, parts?: Part[] }} Line */
/** @typedef {{ head: string, old: number, new: number, lines: Line[] }} Hunk */
/** @typedef {{ path: string | null, from: string | null, hunks: Hunk[] }} FileDiff */
/** @typedef {{ left: Line | null, right: Line | null }} Pair */

/**
 * The files of a unified diff, or of text that resembles one.
 *
 * @param {string} source
 */
export function parse(source) {
  /** @type {FileDiff[]} */
  const files = [];
  /** @type {FileDiff | null} */
  let file = null;
  /** @type {Hunk | null} */
  let hunk = null;
  let [oldLine, newLine] = [1, 1];
  // The lines that the hunk's header still announces: only outside of a hunk is `---` a header.
  let left = { old: 0, new: 0 };
  /** @type {(path?: string | null, from?: string | null) => FileDiff} */
  const begin = (path = null, from = null) => {
    const next = { path, from, hunks: [] };
    files.push(next);
    hunk = null;
    return next;
  };
  const lines = cleanBlock(source).replace(/\n$/, "").split("\n");
  for (let n = 0; n < lines.length; n += 1) {
    const text = lines[n].replace(/<U\+000D>$/, "");
    const inside = left.old > 0 || left.new > 0;
    if (!inside && text.startsWith("--- ") && (lines[n + 1] ?? "").startsWith("+++ ")) {
      const path = strip(lines[n + 1].slice(4));
      const from = strip(text.slice(4));
      file = begin(path === "/dev/null" ? from : path, from);
      n += 1;
      continue;
    }
    if (
      !inside &&
      /^(diff --git|index |new file mode|deleted file mode|similarity index|rename |old mode|new mode)/.test(text)
    )
      continue;
    const head = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/.exec(text);
    // A line of a hunk begins with a sign, so this is the next header, whatever count the last one had.
    if (head) {
      file ??= begin();
      [oldLine, newLine] = [Number(head[1]), Number(head[3])];
      left = { old: Number(head[2] ?? 1), new: Number(head[4] ?? 1) };
      file.hunks.push((hunk = { head: head[5], old: oldLine, new: newLine, lines: [] }));
      continue;
    }
    if (text.startsWith("\\ No newline")) continue;
    file ??= begin();
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

/** @param {string} path */
const strip = (path) => path.replace(/\t.*$/, "").replace(/^[ab]\//, "");

/** @param {FileDiff[]} files */
export function size(files) {
  let [added, removed] = [0, 0];
  for (const { hunks } of files) {
    for (const { lines } of hunks) {
      for (const { sign } of lines) {
        added += Number(sign === "+");
        removed += Number(sign === "-");
      }
    }
  }
  return { added, removed };
}

/** @param {string} text */
const parts = (text) => text.match(/\w+|\s+|[^\w\s]/gu) ?? [];

/** The limit on compared pairs of words per hunk; lines beyond it differ as a whole. */
const MOST_WORK = 3000000;

/**
 * The parts of two lines that differ. Lines with little in common differ as a whole.
 * `work.left` decreases by the cost: a crafted diff could keep a page busy for minutes.
 *
 * @param {string} before
 * @param {string} after
 */
export function words(before, after, work = { left: MOST_WORK }) {
  const whole = [[{ text: before, changed: false }], [{ text: after, changed: false }]];
  if (before.length > LONGEST_LINE || after.length > LONGEST_LINE || work.left <= 0) return whole;
  const [a, b] = [parts(before), parts(after)];
  work.left -= a.length * b.length + before.length + after.length;
  if (a.length * b.length > 90000) return whole;
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  /** @type {[Part[], Part[]]} */
  const [left, right] = [[], []];
  /** @type {(list: Part[], text: string, changed: boolean) => void} */
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

/** @param {string} text */
const solid = (text) => text.replace(/\s+/g, "").length;

/** The limit on paired stretches; larger ones are shown side by side in order. */
const MOST_PAIRED = 60;

/**
 * Pairs each removed line with the line that replaces it: only lines with much in common are compared word by word.
 *
 * @param {Line[]} gone
 * @param {Line[]} come
 * @param {{ left: number }} work
 */
function pair(gone, come, work) {
  /** @type {Pair[]} */
  const found = [];
  let next = 0;
  const paired = gone.length <= MOST_PAIRED && come.length <= MOST_PAIRED;
  for (const left of gone) {
    let match = -1;
    for (let k = next; paired && k < come.length && match < 0; k += 1) {
      const [was, is] = words(left.text, come[k].text, work);
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

/**
 * Removed and added lines without a partner share rows, in their order.
 *
 * @param {Pair[]} list
 */
function squeezed(list) {
  /** @type {Pair[]} */
  const out = [];
  /** @type {[Line[], Line[]]} */
  let [lefts, rights] = [[], []];
  const flush = () => {
    for (let n = 0; n < Math.max(lefts.length, rights.length); n += 1)
      out.push({ left: lefts[n] ?? null, right: rights[n] ?? null });
    [lefts, rights] = [[], []];
  };
  for (const row of list) {
    if (row.left && row.right) {
      flush();
      out.push(row);
    } else if (row.left) lefts.push(row.left);
    else if (row.right) rights.push(row.right);
  }
  flush();
  return out;
}

/**
 * Rows of a hunk: a removed line beside the line that replaces it.
 *
 * @param {Line[]} lines
 */
export function rows(lines) {
  /** @type {Pair[]} */
  const found = [];
  const work = { left: MOST_WORK };
  for (let n = 0; n < lines.length; ) {
    if (lines[n].sign === " ") {
      found.push({ left: lines[n], right: lines[n] });
      n += 1;
      continue;
    }
    /** @type {[Line[], Line[]]} */
    const [gone, come] = [[], []];
    for (; n < lines.length && lines[n].sign !== " "; n += 1) (lines[n].sign === "-" ? gone : come).push(lines[n]);
    found.push(...pair(gone, come, work));
  }
  return found;
}
