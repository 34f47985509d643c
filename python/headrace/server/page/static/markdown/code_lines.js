// The lines of a block of code, coloured, in chunks: those that are full are laid out once.

import { element } from "../dom.js";
import { coloured } from "./code.js";
import { patchInline } from "./draw_inline.js";

const CHUNK = 40; // lines

export class CodeLines {
  #chunks = []; // {node, drawn, state: of its first line}
  #shown = null;

  constructor(parent, language) {
    this.parent = parent;
    this.language = language;
  }

  text() {
    return trimmed(this.#shown).join("\n");
  }

  update(block) {
    const isSame = this.#shown === block;
    this.#shown = block;
    const lines = trimmed(block);
    // All but the last line of the same block stay what they are.
    const first = isSame ? Math.max(this.#chunks.length - 1, 0) : 0;
    const count = Math.ceil(lines.length / CHUNK);
    while (this.#chunks.length > count) this.#chunks.pop().node.remove();
    for (let at = Math.min(first, count); at < count; at += 1) this.#draw(at, lines);
  }

  #draw(at, lines) {
    const chunk = (this.#chunks[at] ??= this.#newChunk());
    let state = at ? this.#chunks[at - 1].end : "";
    const parts = [];
    for (const line of lines.slice(at * CHUNK, (at + 1) * CHUNK)) {
      const found = coloured(line, this.language, state);
      state = found.state;
      for (const [kind, text] of found.parts) add(parts, kind, text);
      add(parts, "", "\n");
    }
    chunk.end = state;
    patchInline(chunk.node, parts, chunk.drawn);
  }

  #newChunk() {
    const node = element("span", { className: "lines" });
    this.parent.append(node);
    return { node, drawn: [], end: "" };
  }
}

function add(parts, kind, text) {
  const last = parts[parts.length - 1];
  if (!kind && last?.type === "text") last.text += text;
  else parts.push(kind ? { type: "colour", kind, text } : { type: "text", text });
}

// Blank lines at the end of a block that is set in belong to what follows.
function trimmed(block) {
  if (block.type !== "code") return block.lines;
  let end = block.lines.length;
  while (end > 1 && !block.lines[end - 1].trim()) end -= 1;
  return block.lines.slice(0, end);
}
