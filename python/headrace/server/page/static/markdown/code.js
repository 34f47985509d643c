// Colours for code: comments, strings, numbers, keywords and names that are called, a line at a time.

import { languageOf } from "./languages.js";

const LONGEST = 2000; // characters of a line that is coloured

// The parts of a line, [kind, text] with kind "" for plain text, and the state for the next line: the
// end of what goes on there, or "".
export function coloured(line, name, state) {
  const language = languageOf(name);
  if (!language || line.length > LONGEST) return { parts: [["", line]], state };
  if (language.byLine) return { parts: [[language.byLine[line[0]] ?? "", line]], state };
  return new Line(line, language).read(state);
}

class Line {
  #at = 0;
  #done = 0;
  #parts = [];

  constructor(line, language) {
    this.line = line;
    this.language = language;
  }

  read(state) {
    let goesOn = state ? this.#until(state.end, state.kind, 0) : "";
    while (!goesOn && this.#at < this.line.length) goesOn = this.#next();
    this.#plain(this.line.length);
    return { parts: this.#parts, state: goesOn };
  }

  #plain(end) {
    if (end > this.#done) this.#parts.push(["", this.line.slice(this.#done, end)]);
    this.#done = end;
  }

  #put(kind, end) {
    this.#plain(this.#at);
    this.#parts.push([kind, this.line.slice(this.#at, end)]);
    this.#at = this.#done = end;
    return "";
  }

  // Up to `end`, or to the end of the line, which the next line goes on with then.
  #until(end, kind, skip) {
    const found = this.line.indexOf(end, this.#at + skip);
    if (found >= 0) return this.#put(kind, found + end.length);
    this.#put(kind, this.line.length);
    return { end, kind };
  }

  #next() {
    const { line, language } = this;
    const at = this.#at;
    const char = line[at];
    if (language.comment?.some((mark) => line.startsWith(mark, at) && this.#standsAlone(mark))) {
      return this.#put("comment", line.length);
    }
    for (const [open, close, kind] of language.blocks ?? []) {
      if (line.startsWith(open, at)) return this.#until(close, kind, open.length);
    }
    if (language.quotes.includes(char)) return this.#string(char);
    if (isDigit(char)) return this.#put("number", this.#while(isNumeric));
    if (isName(char)) return this.#word();
    this.#at += 1;
    return "";
  }

  // A # within a word begins no comment of a shell.
  #standsAlone(mark) {
    return mark !== "#" || this.#at === 0 || !isName(this.line[this.#at - 1]);
  }

  #string(quote) {
    let end = this.#at + 1;
    while (end < this.line.length && this.line[end] !== quote) end += this.line[end] === "\\" ? 2 : 1;
    return this.#put("string", Math.min(end + 1, this.line.length));
  }

  #word() {
    const end = this.#while(isNamePart);
    const { language } = this;
    const word = this.line.slice(this.#at, end);
    const key = language.anyCase ? word.toLowerCase() : word;
    if (language.words.has(key)) return this.#put("keyword", end);
    if (language.values?.has(key)) return this.#put("number", end);
    if (language.keys && this.line.slice(end, end + 2).trimStart()[0] === ":") return this.#put("name", end);
    if (this.line[end] === "(") return this.#put("name", end);
    this.#at = end;
    return "";
  }

  #while(belongs) {
    let end = this.#at + 1;
    while (end < this.line.length && belongs(this.line[end])) end += 1;
    return end;
  }
}

function isDigit(char) {
  return char >= "0" && char <= "9";
}

function isName(char) {
  return (char >= "a" && char <= "z") || (char >= "A" && char <= "Z") || char === "_" || char > "\x7f";
}

function isNamePart(char) {
  return isName(char) || isDigit(char);
}

function isNumeric(char) {
  return isNamePart(char) || char === ".";
}
