// Markdown of agents: a small part of it, made into elements. Whatever is not known is shown as it was written.
// `blocks` and `inline` are pure; `render` makes elements of what they find.

import { h, ask, button } from "./dom.js";
import { cleanBlock, clean, target } from "./text.js";

/** Longer lines are shown as they are. */
const LONGEST = 2000;

/** Longer texts are shown as they are: nobody reads them as Markdown. */
const MOST = 200000;

export function blocks(source) {
  const text = cleanBlock(source);
  if (text.length > MOST) return [{ type: "code", language: "", text }];
  const lines = text.split("\n");
  const found = [];
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) found.push({ type: "paragraph", text: paragraph.join("\n") });
    paragraph = [];
  };
  for (let n = 0; n < lines.length; n += 1) {
    const line = lines[n];
    const fence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(line);
    if (fence) {
      flush();
      const body = [];
      const close = new RegExp(`^ {0,3}${fence[1][0] === "~" ? "~" : "`"}{${fence[1].length},}\\s*$`);
      for (n += 1; n < lines.length && !close.test(lines[n]); n += 1) body.push(lines[n]);
      found.push({ type: "code", language: fence[2], text: body.join("\n") });
      continue;
    }
    // Patterns that look back cost more than they should on a line made for that: such a line is plain text.
    if (line.length > LONGEST) {
      paragraph.push(line);
      continue;
    }
    const heading = /^ {0,3}(#{1,6})\s+(\S.*)$/.exec(line);
    if (heading) {
      flush();
      found.push({
        type: "heading",
        level: heading[1].length,
        text: heading[2].trimEnd().replace(/#+$/, "").trimEnd(),
      });
      continue;
    }
    if (/^ {0,3}([-*_])\s*(\1\s*){2,}$/.test(line)) {
      flush();
      found.push({ type: "rule" });
      continue;
    }
    if (/^ {0,3}>/.test(line)) {
      flush();
      const quoted = [];
      for (; n < lines.length && /^ {0,3}>/.test(lines[n]); n += 1) quoted.push(lines[n].replace(/^ {0,3}> ?/, ""));
      n -= 1;
      found.push({ type: "quote", text: quoted.join("\n") });
      continue;
    }
    const item = /^(\s*)([-*+]|\d{1,4}[.)])\s+(.*)$/.exec(line);
    if (item) {
      flush();
      const ordered = /\d/.test(item[2]);
      const items = [];
      for (; n < lines.length; n += 1) {
        const next = /^(\s*)([-*+]|\d{1,4}[.)])\s+(.*)$/.exec(lines[n]);
        if (next)
          items.push({ depth: Math.min(4, Math.floor(next[1].replaceAll("\t", "  ").length / 2)), text: next[3] });
        else if (lines[n].trim() && /^\s{2,}/.test(lines[n]) && items.length)
          items[items.length - 1].text += "\n" + lines[n].trim();
        else break;
      }
      n -= 1;
      found.push({ type: "list", ordered, items });
      continue;
    }
    if (/^\s*\|.*\|\s*$/.test(line) && isSeparator(lines[n + 1] ?? "")) {
      flush();
      const cells = (row) =>
        row
          .trim()
          .replace(/^\||\|$/g, "")
          .split("|")
          .map((cell) => cell.trim());
      const head = cells(line);
      const rows = [];
      for (n += 2; n < lines.length && /^\s*\|.*\|\s*$/.test(lines[n]); n += 1) rows.push(cells(lines[n]));
      n -= 1;
      found.push({ type: "table", head, rows });
      continue;
    }
    if (line.trim()) paragraph.push(line);
    else flush();
  }
  flush();
  return found;
}

const isSeparator = (line) => line.length <= LONGEST && line.includes("|") && /^[\s:|-]+$/.test(line);

const INLINE =
  /(`+)([^`](?:[^\n]*?[^`])??)\1(?!`)|\*\*(?=\S)([^\n]*?\S)\*\*|__(?=\S)([^\n]*?\S)__|(?<![\w*])\*(?=[^\s*])([^*\n]*[^\s*])\*(?!\*)|(?<!\w)_(?=[^\s_])([^_\n]*[^\s_])_(?!\w)|~~(?=\S)([^\n]*?\S)~~|!?\[([^\]\n]{0,500})\]\(\s*<?([^\s)>]{1,2000})>?(?:\s+"[^"\n]*")?\s*\)|(https?:\/\/[^\s<>"'`]{1,2000}[^\s<>"'`.,;:!?)\]])/g;

export function inline(text, depth = 0) {
  if (depth > 6 || text.length > 4 * LONGEST) return [{ type: "text", text }];
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

/** An agent's link is a button that says where it leads and asks before it goes there. */
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

async function visit(to) {
  const body = [h("p", {}, "An agent wrote this link. It leads to:"), h("p", { class: "mono wrap" }, clean(to))];
  if (!(await ask({ title: "Open this link?", body, yes: "Open" }))) return;
  const anchor = h("a", { href: to, target: "_blank", rel: "noopener noreferrer" });
  anchor.click();
}

function spans(text) {
  return inline(text).map(span);
}

function span(part) {
  if (part.type === "text") return part.text;
  if (part.type === "link") return link(part);
  if (part.type === "code") return h("code", {}, part.text);
  return h(part.type, {}, part.children.map(span));
}

function list(block) {
  const root = h(block.ordered ? "ol" : "ul", {});
  const open = [root];
  for (const item of block.items) {
    while (open.length > item.depth + 1) open.pop();
    while (open.length < item.depth + 1 && open[open.length - 1].lastElementChild) {
      const deeper = h("ul", {});
      open[open.length - 1].lastElementChild.append(deeper);
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

function element(block) {
  if (block.type === "paragraph") return h("p", {}, spans(block.text));
  // Headings of agents are not headings of the page.
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

export const render = (source) => h("div", { class: "markdown" }, blocks(String(source ?? "")).map(element));

/** What is longer is folded. */
const FOLDED = 4000;
/** More than this is not put into a page, whoever asks for it: the log has it. */
export const SHOWN = 200000;

/** As `render`; of a long text only the beginning, and the rest as it came to those who want it. */
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
