// Markdown as DOM nodes. Text from a model never becomes markup: only createElement and text nodes.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const TABLE_LINE = /^\s*\|?(\s*:?-+:?\s*\|)+\s*:?-*:?\s*$/;
const SAFE_LINK = /^(https?:|mailto:)/i;
const MAX_DEPTH = 8;

export function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export function markdown(text) {
  const fragment = document.createDocumentFragment();
  blocks(text.split(/\r?\n/), fragment, 0);
  return fragment;
}

function blocks(lines, parent, depth) {
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (!line.trim()) {
      at += 1;
    } else if ((match = FENCE.exec(line))) {
      at = fence(lines, at, match, parent);
    } else if ((match = HEADING.exec(line))) {
      parent.append(inline(match[2], element(`h${match[1].length}`)));
      at += 1;
    } else if (RULE.test(line)) {
      parent.append(element("hr"));
      at += 1;
    } else if (QUOTE.test(line) && depth < MAX_DEPTH) {
      const inner = [];
      while (at < lines.length && (match = QUOTE.exec(lines[at]))) {
        inner.push(match[1]);
        at += 1;
      }
      const quote = element("blockquote");
      blocks(inner, quote, depth + 1);
      parent.append(quote);
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      at = list(lines, at, parent, depth);
    } else if (line.includes("|") && at + 1 < lines.length && TABLE_LINE.test(lines[at + 1])) {
      at = table(lines, at, parent);
    } else {
      at = paragraph(lines, at, parent);
    }
  }
}

function fence(lines, at, match, parent) {
  const [, mark, language] = match;
  const code = [];
  for (at += 1; at < lines.length; at += 1) {
    const line = lines[at].trim();
    if (line.startsWith(mark) && !line.replaceAll(mark[0], "")) break;
    code.push(lines[at]);
  }
  parent.append(codeBlock(code.join("\n"), language));
  return at + 1;
}

export function codeBlock(text, language = "") {
  const copy = element("button", { type: "button", className: "copy", textContent: "Copy" });
  copy.addEventListener("click", () => copyText(text, copy));
  const block = element("div", { className: "code" }, copy);
  if (language) block.append(element("span", { className: "language", textContent: language }));
  block.append(element("pre", { tabIndex: 0 }, element("code", { textContent: text })));
  return block;
}

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

function list(lines, at, parent, depth) {
  const [, indent, marker] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(marker);
  const node = element(ordered ? "ol" : "ul");
  if (ordered) node.start = parseInt(marker, 10);
  while (at < lines.length) {
    const match = ITEM.exec(lines[at]);
    if (!match || match[1].length !== indent.length || /\d/.test(match[2]) !== ordered) break;
    const inner = [match[3]];
    const inset = indent.length + match[2].length + 1;
    for (at += 1; at < lines.length; at += 1) {
      const line = lines[at];
      const space = line.length - line.trimStart().length;
      const goesOn = line.trim() ? space > indent.length : nextIsInside(lines, at, indent.length);
      if (!goesOn) break;
      inner.push(line.slice(Math.min(space, inset)));
    }
    const item = element("li");
    blocks(inner, item, depth + 1);
    unwrap(item);
    node.append(item);
    while (at < lines.length && !lines[at].trim()) at += 1;
  }
  parent.append(node);
  return at;
}

function nextIsInside(lines, at, indent) {
  const next = lines[at + 1];
  return Boolean(next && next.trim() && next.length - next.trimStart().length > indent);
}

// An item's only or first paragraph is plain text.
function unwrap(item) {
  const first = item.firstElementChild;
  if (first && first.tagName === "P") first.replaceWith(...first.childNodes);
}

function table(lines, at, parent) {
  const row = (line, cell) =>
    element("tr", {}, ...cells(line).map((text) => inline(text, element(cell))));
  const head = element("thead", {}, row(lines[at], "th"));
  const body = element("tbody");
  for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) {
    body.append(row(lines[at], "td"));
  }
  parent.append(element("div", { className: "table" }, element("table", {}, head, body)));
  return at;
}

function cells(line) {
  return line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());
}

function paragraph(lines, at, parent) {
  const text = [lines[at]];
  for (at += 1; at < lines.length; at += 1) {
    const line = lines[at];
    if (!line.trim() || [FENCE, HEADING, RULE, QUOTE, ITEM].some((start) => start.test(line))) break;
    text.push(line);
  }
  parent.append(inline(text.join("\n"), element("p")));
  return at;
}

// Inline marks, found from left to right; what doesn't close is text.
function inline(text, parent, depth = 0) {
  const mark = /(`+)|(\*\*|__|~~|\*|_)|\[|\\([\\`*_{}[\]()#+\-.!~|>])|\bhttps?:\/\/[^\s<>"'`]+|\n/g;
  let done = 0;
  let match;
  const flush = (end) => end > done && parent.append(text.slice(done, end));
  while ((match = mark.exec(text))) {
    const found = inlineNode(text, match, depth);
    if (!found) continue;
    flush(match.index);
    parent.append(found.node);
    done = mark.lastIndex = found.end;
  }
  flush(text.length);
  return parent;
}

function inlineNode(text, match, depth) {
  const [whole, ticks, emphasis, escaped] = match;
  const at = match.index;
  if (whole === "\n") return { node: element("br"), end: at + 1 };
  if (escaped) return { node: document.createTextNode(escaped), end: at + 2 };
  if (ticks) {
    const close = text.indexOf(ticks, at + ticks.length);
    if (close < 0) return null;
    const code = text.slice(at + ticks.length, close);
    return { node: element("code", { textContent: code.trim() || code }), end: close + ticks.length };
  }
  if (whole === "[") return depth < MAX_DEPTH ? link(text, at, depth) : null;
  if (!emphasis) {
    const url = whole.replace(/[.,;:!?)\]]+$/, "");
    return { node: anchor(url, document.createTextNode(url)), end: at + url.length };
  }
  return depth < MAX_DEPTH ? emphasized(text, at, emphasis, depth) : null;
}

const EMPHASIS = { "**": "strong", __: "strong", "~~": "s", "*": "em", _: "em" };

function emphasized(text, at, mark, depth) {
  const start = at + mark.length;
  if (/\s/.test(text[start] ?? " ")) return null;
  if (mark[0] === "_" && /\w/.test(text[at - 1] ?? " ")) return null;
  let close = text.indexOf(mark, start + 1);
  if (mark.length === 1 && text[close + 1] === mark) close = text.indexOf(mark, close + 2);
  if (close < 0 || /\s/.test(text[close - 1])) return null;
  const node = inline(text.slice(start, close), element(EMPHASIS[mark]), depth + 1);
  return { node, end: close + mark.length };
}

function link(text, at, depth) {
  const middle = text.indexOf("](", at);
  const close = middle < 0 ? -1 : text.indexOf(")", middle);
  if (close < 0 || text.slice(at, close).includes("\n")) return null;
  const url = text.slice(middle + 2, close).trim().split(/\s/)[0];
  if (!SAFE_LINK.test(url)) return null;
  const inner = inline(text.slice(at + 1, middle), document.createDocumentFragment(), depth + 1);
  return { node: anchor(url, inner), end: close + 1 };
}

function anchor(url, content) {
  return element("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, content);
}
