// Which runs of *, _ and ~ belong together: CommonMark's way, in linear time.

const NAMES = { "*": ["em", "strong"], _: ["em", "strong"], "~": ["", "s"] };

export class Emphasis {
  #marks = []; // those that may still find another
  #bottoms = new Map(); // below which there is no opener for a kind of closer

  get top() {
    return this.#marks.length;
  }

  // The part that stands for a run, or null if it can neither open nor close anything.
  add(char, count, before, after) {
    const left = flanks(after, before);
    const right = flanks(before, after);
    const isUnder = char === "_";
    const opens = left && (!isUnder || !right || isPunctuation(before));
    const closes = right && (!isUnder || !left || isPunctuation(after));
    if (!opens && !closes) return null;
    const part = { type: "mark", char, count, opens: [], closes: [] };
    this.#marks.push({ part, canOpen: opens, canClose: closes, length: count });
    return part;
  }

  // Pairs what is above `bottom`, and forgets it.
  close(bottom) {
    const openers = [];
    this.#bottoms.clear();
    for (let at = bottom; at < this.#marks.length; at += 1) {
      const mark = this.#marks[at];
      if (mark.canClose) this.#pair(mark, openers);
      if (mark.canOpen && mark.part.count) openers.push(mark);
    }
    this.#marks.length = bottom;
  }

  #pair(closer, openers) {
    const kind = `${closer.part.char}${closer.canOpen}${closer.length % 3}`;
    while (closer.part.count) {
      const lowest = this.#bottoms.get(kind) ?? 0;
      let at = openers.length - 1;
      while (at >= lowest && !fits(openers[at], closer)) at -= 1;
      if (at < lowest) {
        this.#bottoms.set(kind, openers.length);
        return;
      }
      const opener = openers[at];
      const used = opener.part.count > 1 && closer.part.count > 1 ? 2 : 1;
      const name = NAMES[closer.part.char][used - 1];
      opener.part.count -= used;
      closer.part.count -= used;
      opener.part.opens.push(name);
      closer.part.closes.push(name);
      this.#cut(openers, opener.part.count ? at + 1 : at); // what lies between marks nothing
    }
  }

  #cut(openers, length) {
    openers.length = length;
    for (const [kind, bottom] of this.#bottoms) {
      if (bottom > length) this.#bottoms.set(kind, length);
    }
  }
}

function fits(opener, closer) {
  if (opener.part.char !== closer.part.char) return false;
  if (!opener.canClose && !closer.canOpen) return true;
  return (opener.length + closer.length) % 3 !== 0 || closer.length % 3 === 0;
}

// A run stands at `inner`'s side, which is text. Han, kana and the like need no space around marks.
function flanks(inner, outer) {
  if (isSpace(inner)) return false;
  return !isPunctuation(inner) || isSpace(outer) || isPunctuation(outer) || isCjk(outer);
}

function isSpace(char) {
  return char.trim() === "";
}

function isPunctuation(char) {
  return /[\p{P}\p{S}]/u.test(char);
}

function isCjk(char) {
  return /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u.test(char);
}
