"""The page's Markdown: what it makes of texts, and that no text costs more than its length.

By node where there is one, else in Chromium. HEADRACE_MARKDOWN_TEXTS=10000 tries as many random
texts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from chromium import CHROMIUM, Browser

import headrace.server.page
from serving import serving

FOLDER = Path(headrace.server.page.__file__).parent / "static" / "markdown"
NODE = shutil.which("node")
TEXTS = int(os.environ.get("HEADRACE_MARKDOWN_TEXTS", "25"))
Run = Callable[[str], Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a script with `load(name)`, which imports a module; gives the value of its last line."""
    folder = tmp_path_factory.mktemp("markdown")
    if NODE is not None:
        shutil.copytree(FOLDER, folder / "markdown")
        (folder / "package.json").write_text('{"type": "module"}')
        yield lambda script: by_node(folder, script)
    elif CHROMIUM is not None:
        with Browser(folder / "profile") as browser, serving() as url:
            page = browser.open(url, browser.profile())
            load = 'const load = (name) => import("/page/markdown/" + name);'
            yield lambda script: page.evaluate(f"(async () => {{{load} {returning(script)}}})()")
    else:
        pytest.skip("there is neither node nor chromium")


def by_node(folder: Path, script: str) -> Any:
    load = f"const load = (name) => import({json.dumps(str(folder / 'markdown') + '/')} + name);"
    text = f"{load} const made = await (async () => {{{returning(script)}}})();"
    text += "console.log(JSON.stringify(made));"
    file = folder / "script.mjs"
    file.write_text(text)
    done = subprocess.run([str(NODE), str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def returning(script: str) -> str:
    *before, last = script.strip().split("\n")
    return "\n".join([*before, f"return {last}"])


READ = """
const { Blocks } = await load("blocks.js");
const { inline } = await load("inline.js");
const { formula } = await load("math.js");
const inner = (part) => part.children ? part.children.map(short) : [part.text];
const short = (part) => part.type === "text" ? part.text
  : [part.type, ...(part.url ? [part.url] : []), ...inner(part)];
const words = (node) => inline(node.lines.join("\\n")).map(short);
const show = (node) => node.type === "row" ? node.cells
  : [node.type + (node.level ?? ""), ...(node.children ? node.children.map(show)
    : node.type === "paragraph" || node.type === "heading" ? words(node) : node.lines)];
const one = (text) => show(new Blocks().write(text + "\\n")).slice(1);
"""
P = "paragraph"
BLOCKS: dict[str, list[Any]] = {
    "**Note:** 2*3 = 6": [[P, ["strong", "Note:"], " 2*3 = 6"]],
    "**Answer:** this is *very* good": [
        [P, ["strong", "Answer:"], " this is ", ["em", "very"], " good"]
    ],
    "*a **b": [[P, "*a **b"]],
    "***a** b*": [[P, ["em", ["strong", "a"], " b"]]],
    "snake_case_name and 5 * 3 * 2": [[P, "snake_case_name and 5 * 3 * 2"]],
    "**重点：**内容": [[P, ["strong", "重点："], "内容"]],
    "~~old~~ and ~5": [[P, ["s", "old"], " and ~5"]],
    "`a*b*` and ``c`d``": [[P, ["code", "a*b*"], " and ", ["code", "c`d"]]],
    "[a](https://b.c/d_(e))": [[P, ["link", "https://b.c/d_(e)", "a"]]],
    "[a](javascript:alert(1)) [b](data:x)": [[P, "[a](javascript:alert(1)) [b](data:x)"]],
    "see https://b.c/d, or": [[P, "see ", ["link", "https://b.c/d", "https://b.c/d"], ", or"]],
    "![p](https://b.c/d.png)": [[P, ["picture", "https://b.c/d.png", "p"]]],
    "$5 and $10, $x$": [[P, "$5 and $10, ", ["math", "x"]]],
    "\\(a_1\\) and \\*": [[P, ["math", "a_1"], " and *"]],
    "$$\na\n$$": [["math", "", "a", ""]],
    "\\[ a\n\nnever closed": [["math", " a"], [P, "never closed"]],
    "# A ## b ##": [["heading1", "A ## b"]],
    "A\n===\n#no": [["heading1", "A"], [P, "#no"]],
    "- a\n- b\n  1. c\n* d": [
        ["list", ["item", [P, "a"]], ["item", [P, "b"], ["list", ["item", [P, "c"]]]]],
        ["list", ["item", [P, "d"]]],
    ],
    "1. a\n  - b\n2. c": [
        ["list", ["item", [P, "a"], ["list", ["item", [P, "b"]]]], ["item", [P, "c"]]]
    ],
    "> a\nb\n\n> c": [["quote", [P, "a", ["break", None], "b"]], ["quote", [P, "c"]]],
    "```py\na\n\n  b\n```\nc": [["fence", "a", "", "  b"], [P, "c"]],
    "- a\n  ```\n  b\n  ```": [["list", ["item", [P, "a"], ["fence", "b"]]]],
    "a|b\n-|-\n1\\|2|`c`|more\n3": [["table", ["a", "b"], ["1|2", "`c`"], ["3", ""]]],
    "a|b\n-|-|-": [[P, "a|b", ["break", None], "-|-|-"]],
    "&lt;b&gt; <br> &nope;": [[P, "<b> ", ["break", None], " &nope;"]],
    "a\r\n\r\nb": [[P, "a"], [P, "b"]],
    "    code\n    more": [["code", "code", "more"]],
}


def test_what_texts_are_read_as(run: Run) -> None:
    found = run(f"{READ}\n{json.dumps(list(BLOCKS))}.map(one)")
    for (text, wanted), made in zip(BLOCKS.items(), found, strict=True):
        assert made == wanted, text


def test_formulas(run: Run) -> None:
    formulas = {
        r"\frac{a}{b}": "<mfrac><mi>a</mi><mi>b</mi></mfrac>",
        r"x^23": "<mrow><msup><mi>x</mi><mn>2</mn></msup><mn>3</mn></mrow>",
        r"\sum_{i=1}^n": "<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow>"
        "<mi>n</mi></munderover>",
        r"\sqrt[3]{x}": "<mroot><mi>x</mi><mn>3</mn></mroot>",
        r"\mathbb{R}": "<mi>ℝ</mi>",
        r"\unknown": r"<mtext>\unknown</mtext>",
        r"\begin{pmatrix}1&2\end{pmatrix}": "<mrow><mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd>"
        "<mtd><mn>2</mn></mtd></mtr></mtable><mo>)</mo></mrow>",
    }
    show = """
const inside = (node) => node.text ?? node.children.map(text).join("");
const text = (node) => `<${node.tag}>${inside(node)}</${node.tag}>`;
"""
    found = run(
        f"{READ}{show}\n{json.dumps(list(formulas))}.map((one) => text(formula(one).children[0]))"
    )
    assert found == list(formulas.values())
    deep = run(f"{READ}\n[formula('{{'.repeat(99)), formula('^'.repeat(9999)) !== null]")
    assert deep == [None, True]


def test_time_grows_as_the_text_does(run: Run) -> None:
    source = Path(__file__).with_name("markdown_check.js").read_text()
    seed = int.from_bytes(os.urandom(3), "big")
    options = json.dumps({"seed": seed, "texts": TEXTS})
    wrong = run(f"{source}\ncheck(load, {options})")
    assert not wrong, f"seed {seed}: {wrong[:5]}"


def test_the_check_finds_what_is_slow(run: Run) -> None:
    """A reader that looks at all of the text for each of its characters."""
    source = Path(__file__).with_name("markdown_check.js").read_text()
    slow = """
const real = load;
const slowly = async (name) => name !== "inline.js" ? real(name) : {
  inline: (text) => {
    let sum = 0;
    for (let at = 0; at < text.length; at += 1) {
      for (let other = at; other < text.length; other += 8) sum += text.charCodeAt(other);
    }
    return [{ type: "text", text: String(sum) }];
  },
};
"""
    wrong = run(f'{source}{slow}\ncheck(slowly, {{"seed": 1, "texts": 0, "units": ["a"]}})')
    assert any("grows faster" in one for one in wrong)
