// @ts-check
// A subset of Markdown for agent text, rendered as elements. Unknown markup is shown as written.
// `blocks` and `inline` are pure; `render` creates the elements.

import { h, button, confirm } from "./dom.js";
import { cleanBlock, clean, target } from "./text.js";

/** The limit on parsed lines; longer ones are shown as written. */
const LONGEST = 2000;

/** The limit on parsed texts; longer ones are shown as written. */
const MOST = 200000;

/** @typedef {{ depth: number, text: string }} Entry */
/**
 * @typedef {{ type: "paragraph" | "quote", text: string } | { type: "rule" }
 *   | { type: "heading", level: number, text: string } | { type: "code", language: string, text: string }
 *   | { type: "list", ordered: boolean, items: Entry[] } | { type: "table", head: string[], rows: string[][] }} Block
 */
/**
 * @typedef {{ type: "text" | "code", text: string } | { type: "link", text: string, href: string }
 *   | { type: "strong" | "em" | "del", children: Span[] }} Span
 */

/** @typedef {{ block: Block, next: number }} Found a block, and the line after it */
/** @typedef {(lines: string[], n: number) => Found | null} BlockReader the block that begins at a line */

/** @type {BlockReader} */
function fence(lines, n) {
  const begin = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(lines[n]);
  if (!begin) return null;
  const close = new RegExp(`^ {0,3}${begin[1][0] === "~" ? "~" : "`"}{${begin[1].length},}\\s*$`);
  let end = n + 1;
  while (end < lines.length && !close.test(lines[end])) end += 1;
  return { block: { type: "code", language: begin[2], text: lines.slice(n + 1, end).join("\n") }, next: end + 1 };
}

/** @type {BlockReader} */
function heading(lines, n) {
  const found = /^ {0,3}(#{1,6})\s+(\S.*)$/.exec(lines[n]);
  if (!found) return null;
  const text = found[2].trimEnd().replace(/#+$/, "").trimEnd();
  return { block: { type: "heading", level: found[1].length, text }, next: n + 1 };
}

/** @type {BlockReader} */
const rule = (lines, n) =>
  /^ {0,3}([-*_])\s*(\1\s*){2,}$/.test(lines[n]) ? { block: { type: "rule" }, next: n + 1 } : null;

/** @type {BlockReader} */
function quote(lines, n) {
  let end = n;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) end += 1;
  if (end === n) return null;
  const text = lines.slice(n, end).map((line) => line.replace(/^ {0,3}> ?/, ""));
  return { block: { type: "quote", text: text.join("\n") }, next: end };
}

/** @param {string} line */
const entryOf = (line) => /^(\s*)([-*+]|\d{1,4}[.)])\s+(.*)$/.exec(line);

/** @type {BlockReader} */
function listing(lines, n) {
  const first = entryOf(lines[n]);
  if (!first) return null;
  /** @type {Entry[]} */
  const items = [];
  let end = n;
  for (; end < lines.length; end += 1) {
    const next = entryOf(lines[end]);
    if (next) {
      const depth = Math.floor(next[1].replaceAll("\t", "  ").length / 2);
      items.push({ depth: Math.min(4, depth), text: next[3] });
    } else if (lines[end].trim() && /^\s{2,}/.test(lines[end]))
      items[items.length - 1].text += "\n" + lines[end].trim();
    else break;
  }
  return { block: { type: "list", ordered: /\d/.test(first[2]), items }, next: end };
}

/** @param {string} line */
const isRow = (line) => /^\s*\|.*\|\s*$/.test(line);

/** @param {string} row */
const cells = (row) =>
  row
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => cell.trim());

/** @type {BlockReader} */
function grid(lines, n) {
  if (!isRow(lines[n]) || !isSeparator(lines[n + 1] ?? "")) return null;
  let end = n + 2;
  while (end < lines.length && isRow(lines[end])) end += 1;
  return { block: { type: "table", head: cells(lines[n]), rows: lines.slice(n + 2, end).map(cells) }, next: end };
}

const READERS = [heading, rule, quote, listing, grid];

/** @type {BlockReader} */
function read(lines, n) {
  const code = fence(lines, n);
  // Backtracking patterns are expensive on a crafted line: such a line is plain text.
  if (code || lines[n].length > LONGEST) return code;
  for (const reader of READERS) {
    const found = reader(lines, n);
    if (found) return found;
  }
  return null;
}

/**
 * @param {unknown} source
 * @returns {Block[]}
 */
export function blocks(source) {
  const text = cleanBlock(source);
  if (text.length > MOST) return [{ type: "code", language: "", text }];
  const lines = text.split("\n");
  /** @type {Block[]} */
  const found = [];
  /** @type {string[]} */
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) found.push({ type: "paragraph", text: paragraph.join("\n") });
    paragraph = [];
  };
  for (let n = 0; n < lines.length; ) {
    const next = read(lines, n);
    if (next || !lines[n].trim()) flush();
    else paragraph.push(lines[n]);
    if (next) found.push(next.block);
    n = next?.next ?? n + 1;
  }
  flush();
  return found;
}

/** @param {string} line */
const isSeparator = (line) => line.length <= LONGEST && line.includes("|") && /^[\s:|-]+$/.test(line);

const INLINE =
  /(`+)([^`](?:[^\n]*?[^`])??)\1(?!`)|\*\*(?=\S)([^\n]*?\S)\*\*|__(?=\S)([^\n]*?\S)__|(?<![\w*])\*(?=[^\s*])([^*\n]*[^\s*])\*(?!\*)|(?<!\w)_(?=[^\s_])([^_\n]*[^\s_])_(?!\w)|~~(?=\S)([^\n]*?\S)~~|!?\[([^\]\n]{0,500})\]\(\s*<?([^\s)>]{1,2000})>?(?:\s+"[^"\n]*")?\s*\)|(https?:\/\/[^\s<>"'`]{1,2000}[^\s<>"'`.,;:!?)\]])/g;

/**
 * @param {string} text
 * @returns {Span[]}
 */
export function inline(text, depth = 0) {
  if (depth > 6 || text.length > 4 * LONGEST) return [{ type: "text", text }];
  /** @type {Span[]} */
  const found = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > last) found.push({ type: "text", text: text.slice(last, match.index) });
    last = match.index + match[0].length;
    const [whole, , code, strong, strong2, em, em2, del, label, href, bare] = match;
    if (code !== undefined) found.push({ type: "code", text: code });
    else if (strong ?? strong2) found.push({ type: "strong", children: inline(strong ?? strong2, depth + 1) });
    else if (em ?? em2) found.push({ type: "em", children: inline(em ?? em2, depth + 1) });
    else if (del) found.push({ type: "del", children: inline(del, depth + 1) });
    else if (href) found.push({ type: "link", text: label, href });
    else if (bare) found.push({ type: "link", text: bare, href: bare });
    else found.push({ type: "text", text: whole });
  }
  if (last < text.length) found.push({ type: "text", text: text.slice(last) });
  return found;
}

/**
 * An agent's link is a button that shows its target and asks before it opens it.
 *
 * @param {{ text: string, href: string }} part
 */
function link({ text, href }) {
  const to = target(href);
  const shown = clean(href);
  const label = text && text !== href ? `${clean(text)} ` : "";
  if (!to) return h("span", { class: "deadlink" }, label, h("span", { class: "target" }, `(${shown})`));
  return h(
    "span",
    { class: "link" },
    label,
    h("button", { type: "button", class: "plain target", onclick: () => visit(to) }, shown),
  );
}

/** @param {string} to */
async function visit(to) {
  const body = [h("p", {}, "An agent wrote this link. It leads to:"), h("p", { class: "mono wrap" }, clean(to))];
  if (!(await confirm({ title: "Open this link?", body, yes: "Open" }))) return;
  const anchor = h("a", { href: to, target: "_blank", rel: "noopener noreferrer" });
  anchor.click();
}

/** @param {string} text */
function spans(text) {
  return inline(text).map(span);
}

/**
 * @param {Span} part
 * @returns {string | HTMLElement}
 */
function span(part) {
  if ("children" in part) return h(part.type, {}, part.children.map(span));
  if (part.type === "link") return link(part);
  return part.type === "code" ? h("code", {}, part.text) : part.text;
}

/** @param {Extract<Block, { type: "list" }>} block */
function list(block) {
  const root = h(block.ordered ? "ol" : "ul", {});
  /** @type {HTMLElement[]} */
  const open = [root];
  for (const item of block.items) {
    while (open.length > item.depth + 1) open.pop();
    for (;;) {
      const last = open[open.length - 1].lastElementChild;
      if (open.length >= item.depth + 1 || !last) break;
      const deeper = h("ul", {});
      last.append(deeper);
      open.push(deeper);
    }
    const box = /^\[([ xX])\]\s+(.*)$/s.exec(item.text);
    const mark = box
      ? h("span", { class: "box", "aria-label": box[1] === " " ? "open" : "done" }, box[1] === " " ? "☐ " : "☑ ")
      : null;
    open[open.length - 1].append(h("li", { class: box ? "task" : null }, mark, spans(box ? box[2] : item.text)));
  }
  return root;
}

/**
 * @param {Block} block
 * @returns {HTMLElement}
 */
function element(block) {
  if (block.type === "paragraph") return h("p", {}, spans(block.text));
  // An agent's heading must not become a heading of the page.
  if (block.type === "heading") return h("p", { class: `heading h${block.level}` }, spans(block.text));
  if (block.type === "code") return h("pre", { tabindex: "0" }, h("code", {}, block.text));
  if (block.type === "quote")
    return h(
      "blockquote",
      {},
      blocks(block.text).map((inner) => (inner.type === "quote" ? h("p", {}, inner.text) : element(inner))),
    );
  if (block.type === "list") return list(block);
  if (block.type === "table") {
    /** @type {(tag: "th" | "td") => (cells: string[]) => HTMLElement} */
    const row = (tag) => (cells) =>
      h(
        "tr",
        {},
        cells.map((cell) => h(tag, {}, spans(cell))),
      );
    return h(
      "div",
      { class: "scroll", tabindex: "0" },
      h("table", {}, h("thead", {}, row("th")(block.head)), h("tbody", {}, block.rows.map(row("td")))),
    );
  }
  return h("hr", {});
}

/** @param {unknown} source */
export const render = (source) => h("div", { class: "markdown" }, blocks(String(source ?? "")).map(element));

/** The limit on unfolded texts. */
const FOLDED = 4000;
/** The limit on text in a page; the log has the rest. */
export const SHOWN = 200000;

/**
 * Renders Markdown. Of a long text only the beginning is rendered; the rest is shown as written, on demand.
 *
 * @param {unknown} source
 */
export function renderLong(source) {
  const text = String(source ?? "");
  if (text.length <= FOLDED) return render(text);
  const place = h("div", {}, render(`${text.slice(0, FOLDED)} …`));
  const all = `${text.length.toLocaleString()} characters`;
  const words = text.length <= SHOWN ? `Show all ${all}` : `Show ${SHOWN.toLocaleString()} of ${all}`;
  const open = () => place.replaceChildren(h("pre", { class: "raw", tabindex: "0" }, cleanBlock(text.slice(0, SHOWN))));
  place.append(button(words, open, { class: "small" }));
  return place;
}
