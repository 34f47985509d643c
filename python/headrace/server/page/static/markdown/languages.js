// What code.js knows of languages.

const words = (text) => new Set(text.split(" "));

const C_WORDS =
  "if else for while do switch case default break continue return goto struct union enum typedef static " +
  "const extern inline volatile sizeof void int char short long float double unsigned signed bool auto";
const C_LIKE = {
  comment: ["//"],
  blocks: [["/*", "*/", "comment"]],
  quotes: "\"'",
  values: words("true false null nullptr NULL nil None"),
};
const SLASHES = (text) => ({ ...C_LIKE, words: words(text) });
const SCRIPT =
  "async await break case catch class const continue debugger default delete do else export extends " +
  "finally for from function if import in instanceof let new of return static super switch this throw " +
  "try typeof var void while with yield interface type enum implements private public protected " +
  "readonly abstract as declare namespace keyof string number boolean any unknown never";
const TAGS = {
  blocks: [["<!--", "-->", "comment"]],
  quotes: '"',
  words: words(""),
};

const LANGUAGES = {
  python: {
    comment: ["#"],
    blocks: [['"""', '"""', "string"], ["'''", "'''", "string"]],
    quotes: "\"'",
    words: words(
      "and as assert async await break class continue def del elif else except finally for from global " +
        "if import in is lambda match nonlocal not or pass raise return try while with yield case self",
    ),
    values: words("True False None"),
  },
  javascript: {
    ...C_LIKE,
    blocks: [...C_LIKE.blocks, ["`", "`", "string"]],
    words: words(SCRIPT),
    values: words("true false null undefined NaN"),
  },
  c: SLASHES(C_WORDS),
  cpp: SLASHES(
    `${C_WORDS} class public private protected virtual override final template typename namespace using ` +
      "new delete try catch throw constexpr noexcept operator this friend explicit mutable concept requires",
  ),
  java: SLASHES(
    "abstract assert boolean break byte case catch char class const continue default do double else enum " +
      "extends final finally float for if implements import instanceof int interface long native new " +
      "package private protected public record return short static super switch synchronized this throw " +
      "throws try var void volatile while string namespace using async await get set bool foreach in out " +
      "ref readonly sealed override virtual internal fun val when object companion data is as suspend",
  ),
  go: {
    ...SLASHES(
      "break case chan const continue default defer else fallthrough for func go goto if import interface " +
        "map package range return select struct switch type var string int int64 float64 bool byte error any",
    ),
    blocks: [...C_LIKE.blocks, ["`", "`", "string"]],
  },
  rust: {
    ...SLASHES(
      "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod " +
        "move mut pub ref return self Self static struct super trait type unsafe use where while",
    ),
    quotes: '"',
  },
  swift: SLASHES(
    "let var func class struct enum protocol extension if else guard for while repeat switch case default " +
      "return throw throws try catch import in is as self init deinit static public private async await",
  ),
  php: {
    ...SLASHES(
      "abstract and array as break case catch class const continue declare default do echo else elseif " +
        "extends final fn for foreach function global if implements interface match namespace new or " +
        "private protected public return static switch throw trait try use var while",
    ),
    comment: ["//", "#"],
  },
  ruby: {
    comment: ["#"],
    quotes: "\"'",
    words: words(
      "alias and begin break case class def do else elsif end ensure for if in module next not or redo " +
        "require rescue retry return self super then undef unless until when while yield",
    ),
    values: words("true false nil"),
  },
  shell: {
    comment: ["#"],
    quotes: "\"'",
    words: words(
      "if then else elif fi for while until do done case esac in function return local export readonly " +
        "set unset source echo cd exit sudo",
    ),
  },
  json: { quotes: '"', words: words(""), values: words("true false null") },
  yaml: { comment: ["#"], quotes: "\"'", words: words(""), values: words("true false null yes no"), keys: true },
  toml: { comment: ["#"], quotes: "\"'", words: words(""), values: words("true false") },
  css: { blocks: C_LIKE.blocks, quotes: "\"'", words: words("important media import"), keys: true },
  sql: {
    comment: ["--"],
    blocks: C_LIKE.blocks,
    quotes: "'\"",
    anyCase: true,
    words: words(
      "select from where and or not in is like between join left right inner outer full cross on group by " +
        "order having limit offset insert into values update set delete create table view index drop alter " +
        "add primary key foreign references unique default as distinct union all case when then else end " +
        "with exists asc desc begin commit rollback count sum avg min max",
    ),
    values: words("null true false"),
  },
  markup: TAGS,
  diff: { byLine: { "+": "string", "-": "keyword", "@": "name" } },
};

const OTHER_NAMES = {
  python: "py python3 pycon",
  javascript: "js jsx ts tsx typescript mjs node",
  c: "h",
  cpp: "c++ cc cxx hpp cuda cu objc",
  java: "kotlin kt csharp cs c# scala dart",
  go: "golang",
  rust: "rs",
  ruby: "rb",
  shell: "bash sh zsh console dockerfile docker makefile make ini",
  json: "jsonc json5",
  yaml: "yml",
  css: "scss less",
  sql: "mysql postgresql sqlite",
  markup: "html xml svg vue",
  diff: "patch",
};
const BY_NAME = new Map(Object.keys(LANGUAGES).map((name) => [name, LANGUAGES[name]]));
for (const [name, others] of Object.entries(OTHER_NAMES)) {
  for (const other of others.split(" ")) BY_NAME.set(other, LANGUAGES[name]);
}

export function languageOf(name) {
  return BY_NAME.get(name.toLowerCase());
}
