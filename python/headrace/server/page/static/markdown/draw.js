// Markdown in the page. What has not changed since it was last drawn is not touched, so that a selection
// in it stays, and a long answer costs what it grows by.

import { copyText, element } from "../dom.js";
import { Blocks } from "./blocks.js";
import { CodeLines } from "./code_lines.js";
import { inline } from "./inline.js";
import { formulaNode, patchInline } from "./draw_inline.js";

const PART = 16; // blocks; the browser lays out only parts that change or are in sight

export class MarkdownView {
  #parts = [];
  #blocks = new Blocks();
  #drawn = [];
  #text = "";
  #isWhole = false;

  constructor(node) {
    this.node = node;
  }

  // isWhole: nothing comes after the text.
  update(text, isWhole) {
    if (text === this.#text && isWhole === this.#isWhole) return;
    if (this.#isWhole || !text.startsWith(this.#text)) {
      this.#blocks = new Blocks();
      this.#text = "";
    }
    this.#blocks.write(text.slice(this.#text.length) + (isWhole ? "\n" : ""));
    this.#text = text;
    this.#isWhole = isWhole;
    patchBlocks((at) => this.#part(at), this.#blocks.root.children, this.#drawn);
    const used = Math.ceil(this.#drawn.length / PART);
    while (this.#parts.length > used) this.#parts.pop().remove();
  }

  // Where block number `at` stands.
  #part(at) {
    const place = Math.floor(at / PART);
    if (place === this.#parts.length) {
      this.#parts.push(element("div", { className: "part" }));
      this.node.append(this.#parts[place]);
    }
    return this.#parts[place];
  }
}

// Makes the nodes in `place(at)` those of `nodes`; `drawn` remembers what was made of which.
function patchBlocks(place, nodes, drawn) {
  for (let at = 0; at < nodes.length; at += 1) {
    const node = nodes[at];
    const old = drawn[at];
    if (old?.node === node && old.rev === node.rev) continue;
    const kind = kindOf(node);
    if (old?.kind === kind) {
      old.made.update(node);
      Object.assign(old, { node, rev: node.rev });
      continue;
    }
    const made = MAKERS[kind.split(" ")[0]](node);
    made.update(node);
    if (old) old.made.node.replaceWith(made.node);
    else place(at).append(made.node);
    drawn[at] = { node, rev: node.rev, kind, made };
  }
  while (drawn.length > nodes.length) drawn.pop().made.node.remove();
}

function kindOf(node) {
  switch (node.type) {
    case "heading":
      return `heading ${node.level}`;
    case "list":
      return node.ordered ? "ordered" : "list";
    case "fence":
      return `code ${node.language}`;
    case "code":
    case "rows":
      return "code ";
    case "math":
      return node.closed ? "math" : "paragraph";
    default:
      return node.type;
  }
}

const MAKERS = {
  paragraph: () => new Words("p"),
  heading: (node) => new Words(`h${node.level}`),
  rule: () => ({ node: element("hr"), update() {} }),
  quote: () => new Container("blockquote"),
  list: () => new Container("ul"),
  ordered: () => new Container("ol"),
  item: () => new Item(),
  code: (node) => new Code(node.language ?? ""),
  math: () => new Formula(),
  table: () => new Table(),
};

// A paragraph or a heading; or a formula that isn't closed, as it stands.
class Words {
  #drawn = [];
  constructor(name) {
    this.node = element(name);
  }
  update(node) {
    const text = node.lines.join("\n");
    const parts = node.type === "math" ? [{ type: "text", text: node.opener + text }] : inline(text);
    patchInline(this.node, parts, this.#drawn);
  }
}

class Container {
  #drawn = [];
  constructor(name) {
    this.node = element(name);
  }
  update(node) {
    if (node.ordered && this.node.start !== node.start) this.node.start = node.start;
    patchBlocks(() => this.node, node.children, this.#drawn);
  }
}

const TASK = { "[ ] ": false, "[x] ": true, "[X] ": true };

// `[x] done` has a box that shows whether it is.
class Item {
  #drawn = [];
  #box = null;
  node = element("li");
  update(node) {
    const first = node.children[0];
    const mark = first?.type === "paragraph" ? first.lines[0].slice(0, 4) : "";
    const isTask = Object.hasOwn(TASK, mark);
    if (isTask && !this.#box) {
      this.#box = element("input", { type: "checkbox", disabled: true });
      this.#box.setAttribute("aria-label", "Done");
      this.node.prepend(this.#box);
    }
    if (!isTask) {
      this.#box?.remove();
      this.#box = null;
    }
    this.node.classList.toggle("task", isTask);
    if (!isTask) return patchBlocks(() => this.node, node.children, this.#drawn);
    this.#box.checked = TASK[mark];
    const words = { ...first, lines: [first.lines[0].slice(4), ...first.lines.slice(1)] };
    return patchBlocks(() => this.node, [words, ...node.children.slice(1)], this.#drawn);
  }
}

class Formula {
  #text = null;
  node = element("div", { className: "formula" });
  update(node) {
    const text = node.lines.join("\n");
    if (text !== this.#text) this.node.replaceChildren(formulaNode(text, true));
    this.#text = text;
  }
}

class Code {
  #lines;
  constructor(language) {
    const code = element("code");
    const pre = element("pre", { tabIndex: 0 }, code);
    const copy = element("button", { type: "button", className: "copy", textContent: "Copy" });
    copy.addEventListener("click", () => copyText(this.#lines.text(), copy));
    const head = element("div", { className: "head" }, element("span", { textContent: language }), copy);
    this.node = element("div", { className: "code" }, head, pre);
    this.#lines = new CodeLines(code, language);
  }
  update(node) {
    this.#lines.update(node);
  }
}

class Table {
  #head = element("tr");
  #body = element("tbody");
  #rows = [];
  #aligned = null;
  constructor() {
    const head = element("thead", {}, this.#head);
    this.node = element("div", { className: "table", tabIndex: 0 });
    this.node.append(element("table", {}, head, this.#body));
  }
  update(node) {
    if (node.aligned !== this.#aligned) {
      this.#head.replaceChildren();
      this.#body.replaceChildren();
      this.#rows = [];
      this.#aligned = node.aligned;
    }
    node.children.forEach((row, at) => {
      if (this.#rows[at] === row) return;
      const line = at === 0 ? this.#head : (this.#body.children[at - 1] ?? element("tr"));
      line.replaceChildren(...row.cells.map((text, i) => cell(at, text, node.aligned[i])));
      if (at > 0 && !line.parentNode) this.#body.append(line);
      this.#rows[at] = row;
    });
    while (this.#rows.length > node.children.length) {
      this.#rows.pop();
      this.#body.lastElementChild.remove();
    }
  }
}

function cell(row, text, align) {
  const node = element(row === 0 ? "th" : "td", { className: align });
  if (row === 0) node.scope = "col";
  patchInline(node, inline(text), []);
  return node;
}
