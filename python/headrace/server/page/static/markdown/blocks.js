// Markdown's blocks, a line at a time: no line is looked at twice, and nesting is bounded. What comes
// later never changes a block that is closed, so a growing text costs what it grows by.
//
// A node: {type, parent, rev}, and of containers (document, quote, list, item, table) children, of the
// others lines. rev grows with every change within it.

import { alignments, cells, isDelimiterRow } from "./tables.js";

const MAX_DEPTH = 24; // containers within each other; what is deeper is text
const MAX_ITEMS = 64; // of one list; the next one goes on
const MAX_CELLS = 6000; // of one table; later rows are text
const LEAVES = new Set(["paragraph", "heading", "rule", "fence", "code", "math", "rows"]);

let revision = 0;

function touch(node) {
  revision += 1;
  for (let one = node; one; one = one.parent) one.rev = revision;
}

export class Blocks {
  #open; // from the root to the innermost open node
  #rest = ""; // the last line, which isn't complete
  #undo = null; // takes the effect of the incomplete line back

  constructor() {
    this.root = { type: "document", parent: null, rev: 0, children: [] };
    this.#open = [this.root];
  }

  // More of the text. The tree then is that of all text so far.
  write(more) {
    const lines = (this.#rest + more).split("\n");
    this.#rest = lines.pop();
    this.#takeBack();
    for (const line of lines) this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
    this.#tryRest();
    return this.root;
  }

  #tryRest() {
    if (!this.#rest) return;
    const before = [...this.#open];
    this.#undo = [];
    this.#line(this.#rest, true);
    const changes = this.#undo;
    this.#undo = () => {
      for (const change of changes.reverse()) change();
      this.#open = before;
    };
  }

  #takeBack() {
    this.#undo?.();
    this.#undo = null;
  }

  // ---- changes, each of which can be taken back

  #set(node, key, value) {
    const old = node[key];
    this.#undo?.push(() => {
      node[key] = old;
      touch(node);
    });
    node[key] = value;
    touch(node);
  }

  #push(node, key, value) {
    this.#undo?.push(() => {
      node[key].pop();
      touch(node);
    });
    node[key].push(value);
    touch(node);
  }

  #pop(node, key) {
    const value = node[key].pop();
    this.#undo?.push(() => {
      node[key].push(value);
      touch(node);
    });
    touch(node);
    return value;
  }

  // A new node at `depth`; what was open there is closed.
  #add(depth, type, fields) {
    if (this.#open[depth - 1].type === "list" && type !== "item") depth -= 1;
    this.#open.length = depth;
    const parent = this.#open[depth - 1];
    const node = { type, parent, rev: 0, ...fields };
    this.#push(parent, "children", node);
    this.#open.push(node);
    return node;
  }

  // ---- a line

  #line(line, isPartial = false) {
    const found = this.#goOn(line);
    let { rest, depth } = found;
    const leaf = this.#open[depth];
    if (leaf && this.#open.length === depth + 1 && this.#more(leaf, rest, isPartial)) return;
    for (;;) {
      const started = this.#start(rest, depth);
      if (started === null) break;
      if (started === true) return;
      rest = started;
      depth = this.#open.length;
    }
    this.#text(rest, depth);
  }

  // The containers that the line belongs to, from outside in, and what it says in them.
  #goOn(line) {
    let rest = line;
    let depth = 1;
    for (; depth < this.#open.length && !LEAVES.has(this.#open[depth].type); depth += 1) {
      const inner = within(this.#open[depth], rest);
      if (inner === null) break;
      rest = inner;
    }
    return { rest, depth };
  }

  // Whether the line goes on with the open leaf, of whose containers it is.
  #more(leaf, rest, isPartial) {
    switch (leaf.type) {
      case "fence":
        if (closesFence(leaf, rest)) this.#open.pop();
        else this.#push(leaf, "lines", dedent(rest, leaf.indent));
        return true;
      case "code":
        if (indentOf(rest) < 4 && !isBlank(rest)) return false;
        this.#push(leaf, "lines", dedent(rest, 4));
        return true;
      case "math":
        return this.#moreMath(leaf, rest);
      case "paragraph":
        return !isPartial && this.#underlined(leaf, rest);
      case "rows":
        if (isBlank(rest)) return false;
        this.#push(leaf, "lines", rest);
        return true;
      default:
        return false;
    }
  }

  // A blank line ends a formula that nothing closes: it is shown as it stands then.
  #moreMath(leaf, rest) {
    if (isBlank(rest)) return false;
    const trimmed = rest.trimEnd();
    const closes = trimmed.endsWith(leaf.closer);
    this.#push(leaf, "lines", closes ? trimmed.slice(0, -2) : rest);
    if (closes) {
      this.#set(leaf, "closed", true);
      this.#open.pop();
    }
    return true;
  }

  // A paragraph whose last line is a heading, or a table's head, by the line below it.
  #underlined(leaf, rest) {
    const level = underline(rest);
    if (level) {
      this.#set(leaf, "level", level);
      this.#set(leaf, "type", "heading");
      this.#open.pop();
      return true;
    }
    const head = leaf.lines[leaf.lines.length - 1];
    if (!isDelimiterRow(rest)) return false;
    const aligned = alignments(rest);
    const names = cells(head);
    if (names.length !== aligned.length) return false;
    const depth = this.#open.length - 1;
    this.#pop(leaf, "lines");
    if (!leaf.lines.length) this.#pop(leaf.parent, "children");
    const table = this.#add(depth, "table", { children: [], aligned });
    this.#row(table, names);
    return true;
  }

  #row(table, texts) {
    const { aligned } = table;
    const row = { type: "row", parent: table, rev: 0, cells: aligned.map((_, i) => texts[i] ?? "") };
    touch(row);
    this.#push(table, "children", row);
  }

  // Begins a block: what is left of the line within it; true: the line is used up; null: none begins.
  #start(rest, depth) {
    if (isBlank(rest)) return null;
    const indent = indentOf(rest);
    const leaf = this.#open[this.#open.length - 1];
    if (indent >= 4) {
      if (leaf.type === "paragraph" || this.#open[depth - 1].type === "list") return null;
      this.#add(depth, "code", { lines: [dedent(rest, 4)] });
      return true;
    }
    const text = rest.trimStart();
    return (
      this.#startLeaf(text, indent, depth) ??
      (depth < MAX_DEPTH ? this.#startContainer(text, indent, depth) : null)
    );
  }

  #startLeaf(text, indent, depth) {
    const fence = openingFence(text);
    if (fence) {
      this.#add(depth, "fence", { ...fence, indent, lines: [] });
      return true;
    }
    const heading = headingOf(text);
    if (heading) {
      this.#add(depth, "heading", heading);
      this.#open.pop();
      return true;
    }
    if (isRule(text)) {
      this.#add(depth, "rule", {});
      this.#open.pop();
      return true;
    }
    const math = openingMath(text);
    if (!math) return null;
    this.#add(depth, "math", math);
    if (math.closed) this.#open.pop();
    return true;
  }

  #startContainer(text, indent, depth) {
    if (text[0] === ">") {
      this.#add(depth, "quote", { children: [] });
      return dedent(text.slice(1), 1);
    }
    const mark = marker(text);
    if (!mark) return null;
    const above = this.#open[depth];
    const interrupts = above?.type === "paragraph";
    if (interrupts && (isBlank(mark.content) || (mark.ordered && mark.start !== 1))) return null;
    const list = this.#open[depth - 1];
    const isOf = list.type === "list" && list.sign === mark.sign;
    if (!isOf || list.children.length >= MAX_ITEMS) {
      const { ordered, sign } = mark;
      const start = isOf ? list.start + MAX_ITEMS : mark.start;
      this.#add(depth, "list", { children: [], ordered, start, sign });
      depth = this.#open.length;
    }
    const inset = indent + mark.width + mark.space;
    this.#add(depth, "item", { children: [], indent, inset });
    return dedent(mark.content, mark.space);
  }

  // A line that begins nothing: text, or a blank line.
  #text(rest, depth) {
    const leaf = this.#open[this.#open.length - 1];
    if (isBlank(rest)) {
      this.#open.length = depth;
      return;
    }
    const table = this.#open[depth];
    if (table?.type === "table") {
      this.#tableText(table, rest, depth);
    } else if (leaf.type === "paragraph") {
      this.#push(leaf, "lines", rest.trimStart());
    } else {
      this.#add(depth, "paragraph", { lines: [rest.trimStart()] });
    }
  }

  #tableText(table, rest, depth) {
    if (table.children.length * table.aligned.length < MAX_CELLS) this.#row(table, cells(rest));
    else this.#add(depth, "rows", { lines: [rest] });
  }
}

// ---- what lines look like

function within(node, rest) {
  if (node.type === "list") return rest;
  if (node.type === "quote") {
    const text = indentOf(rest) < 4 ? rest.trimStart() : "";
    return text[0] === ">" ? dedent(text.slice(1), 1) : null;
  }
  if (node.type !== "item") return null;
  if (isBlank(rest)) return node.children.length ? "" : null;
  const indent = indentOf(rest);
  if (indent >= node.inset) return dedent(rest, node.inset);
  // Many models set inner lists in by two spaces, whatever the outer marker's width.
  return indent >= node.indent + 2 && marker(rest.trimStart()) ? rest.trimStart() : null;
}

function isSpace(char) {
  return char === " " || char === "\t";
}

function isBlank(text) {
  return text.trim() === "";
}

// Columns of white space at the beginning.
function indentOf(text) {
  let columns = 0;
  for (let at = 0; at < text.length && isSpace(text[at]); at += 1) {
    columns += text[at] === "\t" ? 4 - (columns % 4) : 1;
  }
  return columns;
}

// Without at most so many columns of white space.
function dedent(text, most) {
  let columns = 0;
  let at = 0;
  while (columns < most && at < text.length && isSpace(text[at])) {
    columns += text[at] === "\t" ? 4 - (columns % 4) : 1;
    at += 1;
  }
  return (columns > most ? " ".repeat(columns - most) : "") + text.slice(at);
}

function runLength(text, at = 0) {
  let end = at;
  while (end < text.length && text[end] === text[at]) end += 1;
  return end - at;
}

function openingFence(text) {
  if (text[0] !== "`" && text[0] !== "~") return null;
  const length = runLength(text);
  if (length < 3) return null;
  const info = text.slice(length).trim();
  if (text[0] === "`" && info.includes("`")) return null;
  return { mark: text[0], length, language: info.split(/[\s{,]/, 1)[0] };
}

function closesFence(fence, rest) {
  if (indentOf(rest) >= 4) return false;
  const text = rest.trim();
  return text[0] === fence.mark && text.length >= fence.length && runLength(text) === text.length;
}

function headingOf(text) {
  if (text[0] !== "#") return null;
  const level = runLength(text);
  if (level > 6 || (text.length > level && !isSpace(text[level]))) return null;
  let words = text.slice(level).trim();
  let end = words.length;
  while (end > 0 && words[end - 1] === "#") end -= 1;
  if (end === 0 || isSpace(words[end - 1])) words = words.slice(0, end).trimEnd();
  return { level, lines: [words] };
}

function isRule(text) {
  if (!"-*_".includes(text[0])) return false;
  let marks = 0;
  for (const char of text) {
    if (char === text[0]) marks += 1;
    else if (!isSpace(char)) return false;
  }
  return marks >= 3;
}

function underline(rest) {
  const text = rest.trim();
  if ((text[0] !== "=" && text[0] !== "-") || indentOf(rest) >= 4) return 0;
  if (text.length < 2 || runLength(text) < text.length) return 0;
  return text[0] === "=" ? 1 : 2;
}

const MATH = { $$: "$$", "\\[": "\\]" };

function openingMath(text) {
  const closer = MATH[text.slice(0, 2)];
  if (!closer) return null;
  const body = text.slice(2).trimEnd();
  const end = body.indexOf(closer);
  if (end < 0) return { closer, opener: text.slice(0, 2), closed: false, lines: [body] };
  if (end !== body.length - 2) return null; // text follows: it is part of a paragraph
  return { closer, opener: text.slice(0, 2), closed: true, lines: [body.slice(0, end)] };
}

// A list's marker at the beginning. sign: what items of one list have in common.
function marker(text) {
  let width = 0;
  while (width < 10 && text[width] >= "0" && text[width] <= "9") width += 1;
  const ordered = width > 0;
  const sign = text[width] ?? "";
  if (ordered ? width > 9 || (sign !== "." && sign !== ")") : !"-+*•".includes(sign) || !sign) {
    return null;
  }
  const content = text.slice(width + 1);
  if (content && !isSpace(content[0])) return null;
  const spaces = indentOf(content);
  const space = spaces > 4 || isBlank(content) ? 1 : spaces;
  const start = ordered ? Number(text.slice(0, width)) : 0;
  return { ordered, sign: ordered ? `1${sign}` : sign, start, width: width + 1, space, content };
}
