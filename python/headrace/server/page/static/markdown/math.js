// LaTeX's formulas as a tree of MathML: {tag, attributes, children} or {tag, attributes, text}.
// What isn't known is shown by its name; nothing is looked at twice, and nesting is bounded.

import { ACCENTS, ARROWS, FONTS, FUNCTIONS, LIMITS, SPACES, SYMBOLS, styled } from "./symbols.js";

const MAX_DEPTH = 24;
const BIG = new Set(["big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr"]);
const IGNORED = new Set(["displaystyle", "textstyle", "limits", "nolimits", "nonumber", "notag"]);
const TEXTS = new Set(["text", "textrm", "mbox", "textit", "textbf", "textnormal", "operatorname"]);
const FENCES = { cases: ["{", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], vmatrix: ["|", "|"] };
FENCES.Bmatrix = ["{", "}"];
FENCES.Vmatrix = ["‖", "‖"];
FENCES.rcases = ["", "}"];

// null: nested too deeply, or empty.
export function formula(text, isDisplay) {
  try {
    const children = new Parser(tokens(text)).row(() => false);
    if (!children.length) return null;
    const attributes = isDisplay ? { display: "block" } : {};
    return { tag: "math", attributes, children: [row(children)] };
  } catch (error) {
    if (error instanceof TooDeep) return null;
    throw error;
  }
}

class TooDeep extends Error {}

// Commands with their backslash, and single characters; white space but for that in texts is gone.
function tokens(text) {
  const found = [];
  for (let at = 0; at < text.length; ) {
    const char = String.fromCodePoint(text.codePointAt(at));
    let end = at + char.length;
    if (char === "\\") {
      while (end < text.length && isLetter(text[end])) end += 1;
      if (end === at + 1) end += 1;
    } else if (char === "%") {
      while (end < text.length && text[end] !== "\n") end += 1;
    }
    if (char !== "%") found.push({ name: text.slice(at, end), at, end });
    at = end;
  }
  found.source = text;
  return found;
}

function isLetter(char) {
  return (char >= "a" && char <= "z") || (char >= "A" && char <= "Z");
}

function isSpace(name) {
  return name === " " || name === "\n" || name === "\t" || name === "\r";
}

function node(tag, children, attributes = {}) {
  return { tag, attributes, children };
}

function leaf(tag, text, attributes = {}) {
  return { tag, attributes, text };
}

function row(children) {
  return children.length === 1 ? children[0] : node("mrow", children);
}

class Parser {
  #tokens;
  #at = 0;
  #depth = 0;

  constructor(found) {
    this.#tokens = found;
  }

  #name() {
    return this.#tokens[this.#at]?.name;
  }

  #next() {
    while (isSpace(this.#name())) this.#at += 1;
    return this.#name();
  }

  #take() {
    const name = this.#next();
    this.#at += 1;
    return name;
  }

  // Nodes up to a token that `ends` names, which stays.
  row(ends) {
    if ((this.#depth += 1) > MAX_DEPTH) throw new TooDeep();
    const children = [];
    for (let name = this.#next(); name !== undefined && !ends(name); name = this.#next()) {
      if (name === "}") this.#at += 1; // closes nothing
      else {
        const one = this.#scripted();
        if (one) children.push(one);
      }
    }
    this.#depth -= 1;
    return children;
  }

  // Something with what stands above and below it.
  #scripted() {
    const first = this.#next();
    const base = first === "^" || first === "_" ? node("mrow", []) : this.#atom();
    let low = null;
    let high = null;
    for (let name = this.#next(); ; name = this.#next()) {
      if (name === "_" && !low) low = this.#script();
      else if (name === "^" && !high) high = this.#script();
      else if (name === "'") high = this.#primes(high);
      else if (name === "\\limits" || name === "\\nolimits") this.#at += 1;
      else break;
    }
    if (!low && !high) return base;
    if (low && high) {
      return node(base?.limits ? "munderover" : "msubsup", [base ?? row([]), low, high]);
    }
    const tag = low ? (base?.limits ? "munder" : "msub") : base?.limits ? "mover" : "msup";
    return node(tag, [base ?? row([]), low ?? high]);
  }

  #script() {
    this.#at += 1;
    return this.#argument();
  }

  #primes(high) {
    let text = "";
    for (; this.#name() === "'"; this.#at += 1) text += "′";
    const primes = leaf("mo", text);
    return high ? node("mrow", [primes, high]) : primes;
  }

  // A group in braces, or a single thing.
  #argument() {
    if ((this.#depth += 1) > MAX_DEPTH) throw new TooDeep();
    const name = this.#next();
    let found;
    if (name === undefined || name === "}" || name === "&") found = row([]);
    else if (name >= "0" && name <= "9") found = leaf("mn", this.#take());
    else found = this.#atom() ?? row([]);
    this.#depth -= 1;
    return found;
  }

  #group() {
    this.#at += 1;
    const children = this.row((name) => name === "}");
    this.#at += 1;
    return row(children);
  }

  #atom() {
    const name = this.#take();
    if (name === "{") {
      this.#at -= 1;
      return this.#group();
    }
    if (name[0] === "\\") return this.#command(name.slice(1));
    if (name >= "0" && name <= "9") return this.#number(name);
    if (/\p{L}/u.test(name)) return leaf("mi", name);
    if (name === "&" || name === "^" || name === "_") return null;
    if (name === "~") return leaf("mtext", "\u00a0");
    const shown = { "-": "−", "*": "∗" }[name] ?? name;
    return leaf("mo", shown, "()[]|".includes(name) ? { stretchy: "false" } : {});
  }

  #number(first) {
    let text = first;
    for (let name = this.#name(); name !== undefined; name = this.#name()) {
      const follows = this.#tokens[this.#at + 1]?.name;
      const isPoint = (name === "." || name === ",") && follows >= "0" && follows <= "9";
      if (!(name >= "0" && name <= "9" && name.length === 1) && !isPoint) break;
      text += name;
      this.#at += 1;
    }
    return leaf("mn", text);
  }

  #command(name) {
    if (Object.hasOwn(SYMBOLS, name)) return this.#symbol(name);
    if (Object.hasOwn(SPACES, name)) return node("mspace", [], { width: SPACES[name] });
    if (Object.hasOwn(FUNCTIONS, name)) return { ...leaf("mi", name), limits: FUNCTIONS[name] };
    if (Object.hasOwn(FONTS, name)) return this.#styled(FONTS[name]);
    if (Object.hasOwn(ACCENTS, name)) return this.#accent(name);
    if (TEXTS.has(name)) return leaf("mtext", this.#raw());
    if (BIG.has(name)) return this.#delimiter(this.#take(), {});
    if (IGNORED.has(name)) return null;
    return this.#structure(name);
  }

  #symbol(name) {
    const text = SYMBOLS[name];
    const made = leaf(/\p{L}/u.test(text) ? "mi" : "mo", text);
    return LIMITS.has(name) ? { ...made, limits: true } : made;
  }

  #structure(name) {
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
      case "cfrac":
        return node("mfrac", [this.#argument(), this.#argument()]);
      case "binom":
        return fenced("(", node("mfrac", this.#two(), { linethickness: "0" }), ")");
      case "sqrt":
        return this.#root();
      case "left":
        return this.#fenced();
      case "right":
        return this.#delimiter(this.#take(), {});
      case "middle":
        return this.#delimiter(this.#take(), { stretchy: "true" });
      case "begin":
        return this.#environment();
      case "end":
        this.#raw();
        return null;
      case "stackrel":
      case "overset":
        return node("mover", this.#two().reverse());
      case "underset":
        return node("munder", this.#two().reverse());
      case "boxed":
        return node("menclose", [this.#argument()], { class: "boxed" });
      case "tag":
        return leaf("mtext", ` (${this.#raw()})`);
      case "not":
        return this.#negated();
      case "pmod":
        return node("mrow", [leaf("mtext", " (mod "), this.#argument(), leaf("mtext", ")")]);
      case "\\":
      case "":
        return null;
      default:
        return leaf("mtext", isLetter(name[0]) ? `\\${name}` : name);
    }
  }

  #two() {
    return [this.#argument(), this.#argument()];
  }

  #negated() {
    const made = this.#argument();
    return made.text === undefined ? made : { ...made, text: `${made.text}\u0338` };
  }

  #root() {
    if (this.#next() !== "[") return node("msqrt", [this.#argument()]);
    this.#at += 1;
    const degree = row(this.row((name) => name === "]"));
    this.#at += 1;
    return node("mroot", [this.#argument(), degree]);
  }

  // What stands in braces, as it is written.
  #raw() {
    if (this.#next() !== "{") return this.#name() === undefined ? "" : this.#take();
    const from = this.#tokens[this.#at].end;
    let depth = 0;
    for (; this.#at < this.#tokens.length; this.#at += 1) {
      if (this.#name() === "{") depth += 1;
      else if (this.#name() === "}" && (depth -= 1) === 0) break;
    }
    const to = this.#tokens[this.#at]?.at ?? this.#tokens.source.length;
    this.#at += 1;
    return this.#tokens.source.slice(from, to).replaceAll("$", "").replaceAll("\\", "");
  }

  #styled(variant) {
    const inner = this.#argument();
    const walk = (one) => {
      if (one.text !== undefined && one.tag !== "mtext") {
        one.text = styled(one.text, variant);
        if (one.tag === "mi") one.attributes = { mathvariant: "normal" };
      }
      one.children?.forEach(walk);
    };
    walk(inner);
    return inner;
  }

  #accent(name) {
    const [mark, isBelow] = ACCENTS[name];
    const stretches = name.length > 5 || ARROWS.has(name);
    const above = leaf("mo", mark, stretches ? { stretchy: "true" } : { stretchy: "false" });
    const inner = this.#argument();
    const made = node(isBelow ? "munder" : "mover", [inner, above], { accent: "true" });
    return name.endsWith("brace") ? { ...made, limits: true } : made;
  }

  #delimiter(name, attributes) {
    if (name === undefined || name === ".") return null;
    const text = name[0] === "\\" ? (SYMBOLS[name.slice(1)] ?? name.slice(1)) : name;
    return leaf("mo", text, attributes);
  }

  #fenced() {
    const open = this.#delimiter(this.#take(), { stretchy: "true" });
    const inner = this.row((name) => name === "\\right");
    this.#at += 1;
    const close = this.#delimiter(this.#take(), { stretchy: "true" });
    return node("mrow", [open, ...inner, close].filter(Boolean));
  }

  // Rows and columns: matrices, cases, aligned lines.
  #environment() {
    const name = this.#raw().replaceAll("*", "");
    if (name === "array") this.#raw(); // its columns' alignment
    const rows = [[]];
    for (;;) {
      const cell = this.row((token) => token === "&" || token === "\\\\" || token === "\\end");
      rows[rows.length - 1].push(node("mtd", cell));
      const end = this.#take();
      if (end === "\\\\") rows.push([]);
      else if (end !== "&") break;
    }
    this.#raw();
    if (rows.length > 1 && rows[rows.length - 1].every((cell) => !cell.children.length)) rows.pop();
    const lines = rows.map((cells) => node("mtr", cells));
    const aligned = ["aligned", "align", "split", "alignedat", "gathered", "gather"].includes(name);
    const kind = aligned ? "aligned" : name.endsWith("cases") ? "cases" : "matrix";
    const table = node("mtable", lines, { class: kind });
    const [open, close] = FENCES[name] ?? ["", ""];
    return open || close ? fenced(open, table, close) : table;
  }
}

function fenced(open, inner, close) {
  const marks = [open, close].map((mark) => leaf("mo", mark, { stretchy: "true" }));
  return node("mrow", [marks[0], inner, marks[1]].filter((one) => one.text !== ""));
}
