// Reads prefixes of random and hostile texts, and long hostile ones. `load(name)` imports a module of the
// page; {seed, texts, units}: how many texts; units: repeat these alone. Gives what went wrong, a sentence
// each.
async function check(load, { seed, texts, units }) {
  const { Blocks } = await load("blocks.js");
  const { inline } = await load("inline.js");
  const { formula } = await load("math.js");
  const { coloured } = await load("code.js");

  const UNITS = [
    "**Note:** 2*3 ", "*a ", "_a ", "~", "~~a", "#", "#  ", "|a", "|-", "`a``b```", "[a](", "](", "![", "[",
    "\\(", "\\[", "$$", "$$ ", "$a ", "> ", "- ", "-\n", "1. a\n", " ", "\t", "<br", "&amp;", "http" + "://", "***",
    "a*_~`", "$\\frac{", "{", "* a\n  ", "<", "> a\n\n", "\\left(", "^", "a|b\n-|-\n", "x\n\n", "**a* _b_ ",
    "[a](b ", "\\begin{a}&\\\\", "(((", "[x](((((", "*a_ ", "```\n", "~~~ a\n", "    a\n", "- [ ] ", "\n", "a",
    "é", "中**，**", "$", "\\", "\\)", "\\]", "===\n", "---\n", '"""', "/*", "[a](http" + "://b)", "\r\n", "😀", "1)",
    "|\n|--|\n",
  ];
  let state = seed;
  const random = (most) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % most;
  };
  const randomText = () => {
    const own = Array.from({ length: 1 + random(6) }, () => UNITS[random(UNITS.length)]);
    let text = "";
    while (text.length < 200) text += own[random(own.length)];
    return text;
  };

  // All that drawing would read, as a tree.
  const read = (node) => {
    if (node.cells) return node.cells.map(inline);
    if (node.children) return [node.type, node.start, ...node.children.map(read)];
    if (node.type === "math" && node.closed) return ["math", formula(node.lines.join("\n"), true)];
    if (node.type === "fence" || node.type === "code") {
      return [node.type, node.lines.map((line) => coloured(line, "cpp", "").parts)];
    }
    return [node.type, node.level, inline((node.lines ?? []).join("\n")).map(withFormula)];
  };
  const withFormula = (part) => (part.type === "math" ? formula(part.text, part.display) : part);
  const whole = (text) => {
    const blocks = new Blocks();
    blocks.write(text);
    return read(blocks.root);
  };
  // Of this process' own work, where that can be told: others' doesn't count. The sum of both shares,
  // since Linux counts their sum and only guesses how it divides: the user's share alone may stand still.
  const cpu = ({ user, system }) => (user + system) / 1000;
  const clock = () => (typeof process === "undefined" ? performance.now() : cpu(process.cpuUsage()));
  const milliseconds = (work) => {
    const start = clock();
    work();
    return clock() - start;
  };
  const least = (times, work) => Math.min(...Array.from({ length: times }, () => milliseconds(work)));

  const wrong = [];
  const plain = "Plain words, some **bold**, and `code` in lines.\n\n- an item\n".repeat(40);
  const oftenPlain = () => Array.from({ length: 20 }, () => whole(plain));
  oftenPlain(); // until it is compiled
  const unit = milliseconds(oftenPlain) / (20 * plain.length);

  for (let number = 0; number < texts; number += 1) {
    const text = randomText();
    const growing = new Blocks();
    for (let end = 1; end <= text.length; end += 1) {
      growing.write(text[end - 1]);
      const prefix = text.slice(0, end);
      const most = 100 * unit * (end + 200);
      const late = milliseconds(() => whole(prefix)) > most && least(5, () => whole(prefix)) > most;
      if (late) wrong.push(`takes too long: ${JSON.stringify(prefix)}`);
      if (end % 23 && end < text.length) continue;
      if (JSON.stringify(read(growing.root)) !== JSON.stringify(whole(prefix))) {
        wrong.push(`read in pieces it is something else: ${JSON.stringify(prefix)}`);
      }
    }
  }

  // Sixteen times the length: sixteen times the time, where 256 would be quadratic.
  const long = units ?? [...UNITS, ...Array.from({ length: 10 }, randomText)];
  for (const repeated of long) {
    const short = repeated.repeat(Math.ceil(1000 / repeated.length));
    const ratio = () => least(1, () => whole(short.repeat(16))) / Math.max(least(3, () => whole(short)), 0.05);
    if (ratio() > 100 && ratio() > 100 && ratio() > 100) {
      wrong.push(`grows faster than its length: ${JSON.stringify(repeated)}`);
    }
  }
  return wrong;
}
