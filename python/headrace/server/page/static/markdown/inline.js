// What stands within a line of text: one pass from left to right. A mark that nothing closes is text.
// Searches that find nothing are remembered, so that none is made twice.
//
// Gives a tree: {type: "text" | "code", text}, {type: "break"}, {type: "math", text, display},
// {type: "em" | "strong" | "s", children}, {type: "link" | "picture", url, children}.

import { Emphasis } from "./emphasis.js";

const MAX_DEPTH = 16; // marks within each other; deeper ones mark nothing
const ESCAPABLE = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const LINK_ENDS = " \t\n<>\"'`|，。；：！？、（）【】「」『』《》";
const SCHEMES = ["http:", "https:", "mailto:"];

export function inline(text) {
  return new Scanner(text).tree();
}

class Scanner {
  #at = 0;
  #done = 0; // up to here the text is in #parts
  #parts = [];
  #emphasis = new Emphasis();
  #brackets = []; // those that may begin a link
  #missing = new Set(); // closers that don't come any more
  #ticks = null; // where runs of backticks are, by their length
  #budget; // characters that may still be looked at for links' addresses

  constructor(text) {
    this.text = text;
    this.#budget = 4 * text.length + 1000;
  }

  tree() {
    const { text } = this;
    while (this.#at < text.length) {
      this.#at = this.#special(text[this.#at]) ?? this.#at + 1;
    }
    this.#flush(text.length);
    this.#emphasis.close(0);
    return grown(this.#parts);
  }

  // The place behind what begins here; undefined: the character is text.
  #special(char) {
    switch (char) {
      case "\\":
        return this.#backslash();
      case "`":
        return this.#code();
      case "$":
        return this.#dollars();
      case "*":
      case "_":
      case "~":
        return this.#mark(char);
      case "[":
        return this.#opening(false);
      case "!":
        return this.text[this.#at + 1] === "[" ? this.#opening(true) : undefined;
      case "]":
        return this.#closing();
      case "\n":
        return this.#put({ type: "break" }, this.#at + 1);
      case "&":
        return this.#entity();
      case "<":
        return this.#tag();
      case "h":
        return this.#address();
      default:
        return undefined;
    }
  }

  #flush(end) {
    if (end > this.#done) this.#parts.push({ type: "text", text: this.text.slice(this.#done, end) });
    this.#done = end;
  }

  #put(part, end) {
    this.#flush(this.#at);
    this.#parts.push(part);
    this.#done = end;
    return end;
  }

  // Where `mark` is next, or -1.
  #find(mark, from) {
    if (this.#missing.has(mark)) return -1;
    const at = this.text.indexOf(mark, from);
    if (at < 0) this.#missing.add(mark);
    return at;
  }

  #backslash() {
    const next = this.text[this.#at + 1];
    if (next === "(" || next === "[") {
      const end = this.#find(next === "(" ? "\\)" : "\\]", this.#at + 2);
      if (end >= 0) return this.#math(this.#at + 2, end, end + 2, next === "[");
    }
    if (next === "\n") return this.#put({ type: "break" }, this.#at + 2);
    if (!next || !ESCAPABLE.includes(next)) return undefined;
    return this.#put({ type: "text", text: next }, this.#at + 2);
  }

  #math(from, to, end, display) {
    return this.#put({ type: "math", text: this.text.slice(from, to), display }, end);
  }

  // $x$ as pandoc reads it, so that prices stay prices; $$x$$.
  #dollars() {
    const { text } = this;
    const at = this.#at;
    if (text[at + 1] === "$") {
      const end = this.#find("$$", at + 2);
      return end > at + 2 ? this.#math(at + 2, end, end + 2, true) : at + 2;
    }
    if (isSpace(text[at + 1] ?? " ") || isWord(text[at - 1])) return undefined;
    const end = this.#find("$", at + 1);
    if (end < 0 || isSpace(text[end - 1]) || text[end - 1] === "\\") return undefined;
    if (isDigit(text[end + 1]) || text[end + 1] === "$") return undefined;
    return this.#math(at + 1, end, end + 1, false);
  }

  #code() {
    const { text } = this;
    const length = run(text, this.#at);
    this.#ticks ??= tickRuns(text, this.#at);
    const places = this.#ticks.get(length) ?? []; // none: the run's first is escaped
    while (places.next < places.length && places[places.next] <= this.#at) places.next += 1;
    const end = places[places.next];
    if (end === undefined) return this.#at + length;
    const code = text.slice(this.#at + length, end).replaceAll("\n", " ");
    const inner = code.startsWith(" ") && code.endsWith(" ") && code.trim() ? code.slice(1, -1) : code;
    return this.#put({ type: "code", text: inner }, end + length);
  }

  #mark(char) {
    const length = run(this.text, this.#at);
    const end = this.#at + length;
    if (char === "~" && length !== 2) return end;
    const before = characterBefore(this.text, this.#at);
    const after = String.fromCodePoint(this.text.codePointAt(end) ?? 10);
    const mark = this.#emphasis.add(char, length, before, after);
    return mark ? this.#put(mark, end) : end;
  }

  #opening(isPicture) {
    const part = { type: "text", text: isPicture ? "![" : "[" };
    this.#brackets.push({ part, isPicture, bottom: this.#emphasis.top });
    return this.#put(part, this.#at + part.text.length);
  }

  #closing() {
    const bracket = this.#brackets.pop();
    if (!bracket || this.text[this.#at + 1] !== "(") return undefined;
    const found = this.#destination(this.#at + 2);
    if (!found || !isSafe(found.url)) return undefined;
    this.#flush(this.#at);
    this.#emphasis.close(bracket.bottom);
    Object.assign(bracket.part, { type: "open", as: bracket.isPicture ? "picture" : "link" });
    bracket.part.url = found.url;
    this.#parts.push({ type: "close" });
    this.#done = found.end;
    if (!bracket.isPicture) this.#brackets.length = 0; // no link holds another
    return found.end;
  }

  // `address "title")`; the address may hold pairs of brackets, or stand in <>.
  #destination(from) {
    const { text } = this;
    let at = from;
    let depth = 0;
    for (; at < text.length && text[at] !== "\n" && text[at] !== " "; at += 1) {
      if (this.#budget-- <= 0) return null;
      if (text[at] === "(") depth += 1;
      else if (text[at] === ")" && depth-- === 0) break;
    }
    let url = text.slice(from, at);
    if (text[at] === " ") at = this.#title(at);
    if (text[at] !== ")") return null;
    if (url.startsWith("<") && url.endsWith(">")) url = url.slice(1, -1);
    return { url, end: at + 1 };
  }

  // The place behind a title.
  #title(from) {
    const { text } = this;
    let at = from;
    while (text[at] === " ") at += 1;
    const quote = text[at];
    if (quote !== '"' && quote !== "'") return at;
    for (at += 1; at < text.length && text[at] !== quote && text[at] !== "\n"; at += 1) {
      if (this.#budget-- <= 0) return at;
    }
    at += 1;
    while (text[at] === " ") at += 1;
    return at;
  }

  #entity() {
    const part = this.text.slice(this.#at + 1, this.#at + 10);
    const length = part.indexOf(";");
    if (length < 1) return undefined;
    const name = part.slice(0, length);
    const char = Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : numbered(name);
    if (!char) return undefined;
    return this.#put({ type: "text", text: char }, this.#at + length + 2);
  }

  // <br>, which tables need, and <https:...>; all else is text.
  #tag() {
    const part = this.text.slice(this.#at, this.#at + 6).toLowerCase();
    for (const form of ["<br>", "<br/>", "<br />"]) {
      if (part.startsWith(form)) return this.#put({ type: "break" }, this.#at + form.length);
    }
    return undefined;
  }

  #address() {
    const { text } = this;
    const at = this.#at;
    const scheme = text.startsWith("https:", at) ? 6 : text.startsWith("http:", at) ? 5 : 0;
    if (!scheme || !text.startsWith("//", at + scheme) || isWord(text[at - 1])) return undefined;
    let end = at + scheme + 2;
    let closing = 0; // brackets that are closed, but not opened in the address
    for (; end < text.length && !LINK_ENDS.includes(text[end]); end += 1) {
      if (text[end] === "(") closing -= 1;
      else if (text[end] === ")") closing += 1;
    }
    for (; end > at + scheme + 2; end -= 1) {
      const last = text[end - 1];
      if (last === ")" ? closing <= 0 : !".,;:!?*_~]".includes(last)) break;
      if (last === ")") closing -= 1;
    }
    const url = text.slice(at, end);
    if (end === at + scheme + 2) return end;
    return this.#put({ type: "link", url, children: [{ type: "text", text: url }] }, end);
  }
}

// The parts as a tree. Marks that are nested too deeply mark nothing.
function grown(parts) {
  const root = [];
  const stack = [root];
  let ignored = 0;
  const open = (type, more) => {
    if (ignored || stack.length > MAX_DEPTH) {
      ignored += 1;
      return;
    }
    const node = { type, children: [], ...more };
    stack[stack.length - 1].push(node);
    stack.push(node.children);
  };
  const close = () => {
    if (ignored) ignored -= 1;
    else stack.pop();
  };
  for (const part of parts) {
    if (part.type === "open") open(part.as, { url: part.url });
    else if (part.type === "close") close();
    else if (part.type === "mark") {
      for (let i = 0; i < part.closes.length; i += 1) close();
      addText(stack[stack.length - 1], part.char.repeat(part.count));
      for (let i = part.opens.length; i > 0; i -= 1) open(part.opens[i - 1]);
    } else if (part.type === "text") addText(stack[stack.length - 1], part.text);
    else stack[stack.length - 1].push(part);
  }
  return root;
}

function addText(nodes, text) {
  if (!text) return;
  const last = nodes[nodes.length - 1];
  if (last?.type === "text") last.text += text;
  else nodes.push({ type: "text", text });
}

// Each length's list has `next`: those before it are behind the scanner.
function tickRuns(text, from) {
  const runs = new Map();
  for (let at = text.indexOf("`", from); at >= 0; ) {
    const length = run(text, at);
    if (!runs.has(length)) runs.set(length, Object.assign([], { next: 0 }));
    runs.get(length).push(at);
    at = text.indexOf("`", at + length);
  }
  return runs;
}

function run(text, at) {
  let end = at;
  while (end < text.length && text[end] === text[at]) end += 1;
  return end - at;
}

function characterBefore(text, at) {
  if (at === 0) return "\n";
  const low = text.charCodeAt(at - 1);
  const isPair = low >= 0xdc00 && low < 0xe000 && at > 1;
  return isPair ? text.slice(at - 2, at) : text[at - 1];
}

function isSpace(char) {
  return char === " " || char === "\n" || char === "\t";
}

function isDigit(char) {
  return char >= "0" && char <= "9";
}

function isWord(char) {
  return char !== undefined && /[\p{L}\p{N}_$]/u.test(char);
}

function isSafe(url) {
  const lower = url.slice(0, 8).toLowerCase();
  return SCHEMES.some((scheme) => lower.startsWith(scheme));
}

function numbered(name) {
  if (name[0] !== "#") return "";
  const code = name[1] === "x" || name[1] === "X" ? Number(`0${name.slice(1)}`) : Number(name.slice(1));
  return code > 31 && code < 0x110000 && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : "";
}
