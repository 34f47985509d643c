"""Writes the Unicode tables of cpp/text/regex/tables: asks Oniguruma in the `tokenizers` package.

Run it after an update of that package: python tools/regex_tables.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, __version__
from tokenizers.pre_tokenizers import Split

ROOM = Path(__file__).parent.parent / "cpp/text/regex/tables"
LAST = 0x10FFFF
# "Cn" is the rest.
CATEGORIES = (
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co",
)  # fmt: skip
_SCRIPTS = """
    Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali
    Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian
    Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret
    Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay
    Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul
    Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi
    Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
    Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B
    Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi
    Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian
    Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu
    Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian
    Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya
    Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan
    Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese
    Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut
    Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi
    Wancho Warang_Citi Yezidi Yi Zanabazar_Square
"""
SCRIPTS = _SCRIPTS.split()
# What isn't a union of categories, with those that it contains: the table has the rest.
PROPERTIES = {
    "Alphabetic": ("Lu", "Ll", "Lt", "Lm", "Lo", "Nl"),
    "Uppercase": ("Lu",),
    "Lowercase": ("Ll",),
    "White_Space": ("Zs", "Zl", "Zp"),
}


def characters(last: int = LAST) -> str:
    return "".join(chr(c) for c in range(last + 1) if not 0xD800 <= c <= 0xDFFF)


def matched(pattern: str, text: str) -> list[tuple[int, int]]:
    split = Split(Regex(pattern), "removed", invert=True)
    return [place for _, place in split.pre_tokenize_str(text)]


def ranges(name: str, text: str) -> list[tuple[int, int]]:
    """First and last of each run of characters that have the property."""
    return [(ord(text[b]), ord(text[e - 1])) for b, e in matched(rf"\p{{{name}}}+", text)]


def partition(names: Sequence[str], text: str) -> list[int]:
    """start << 8 | index of the name, for each run of characters that have one (else 0)."""
    index = bytearray(LAST + 1)
    for number, name in enumerate(names):
        if number == 0:
            continue
        for first, last in ranges(name, text):
            index[first : last + 1] = bytes([number]) * (last + 1 - first)
    return [c << 8 | index[c] for c in range(LAST + 1) if c == 0 or index[c] != index[c - 1]]


def rest(name: str, text: str) -> list[tuple[int, int]]:
    """First and last of each run of characters that only the property's own name has."""
    contained = "".join(rf"\p{{{category}}}" for category in PROPERTIES[name])
    assert not matched(rf"[{contained}&&\P{{{name}}}]", text)
    own = matched(rf"[\p{{{name}}}&&[^{contained}]]+", text)
    return [(ord(text[b]), ord(text[e - 1])) for b, e in own]


def folds(text: str) -> list[tuple[int, int, int, int]]:
    """Runs (first, last, step, delta): c + delta is the next character that is c in another case,
    and the last of them leads to the first again."""
    candidates = {
        form
        for c in text
        for form in (c, c.lower(), c.upper(), c.title(), c.casefold(), c.swapcase())
        if len(form) == 1 and (c != c.lower() or c != c.upper() or c != c.casefold())
    }
    for name in ("Lu", "Ll", "Lt"):
        candidates |= {chr(c) for first, last in ranges(name, text) for c in range(first, last + 1)}
    pool = "".join(sorted(candidates))
    pairs: list[tuple[int, int]] = []
    for c in pool:
        same = [pool[b:e] for b, e in matched(rf"(?i:\x{{{ord(c):x}}})", pool)]
        same = [found for found in same if len(found) == 1]
        if len(same) > 1:
            following = same[(same.index(c) + 1) % len(same)]
            pairs.append((ord(c), ord(following) - ord(c)))
    runs: list[list[int]] = []
    for code, delta in pairs:
        if runs and runs[-1][3] == delta:
            first, last, step, _ = runs[-1]
            if first == last and code - last <= 2:
                runs[-1] = [first, code, code - last, delta]
                continue
            if code - last == step:
                runs[-1][1] = code
                continue
        runs.append([code, code, 1, delta])
    return [(first, last, step, delta) for first, last, step, delta in runs]


def long_folds(text: str) -> list[str]:
    """What characters are that are several characters in another case, those they are."""
    return sorted({c.casefold() for c in text if len(c.casefold()) > 1})


def rows(items: Iterable[str]) -> str:
    lines, line = [], " "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            lines.append(line)
            line = " "
        line += f" {item},"
    return "\n".join([*lines, line])


def write(name: str, body: str) -> None:
    head = f"""// Made by tools/regex_tables.py from tokenizers {__version__}.

#include "text/regex/tables/tables.h"

namespace headrace::text::tables {{

// clang-format off
"""
    tail = "// clang-format on\n\n}  // namespace headrace::text::tables\n"
    (ROOM / name).write_text(head + body + tail, encoding="utf-8")


def array(kind: str, name: str, items: Iterable[str]) -> str:
    values = list(items)
    return (
        f"constexpr {kind} {name}Values[] = {{\n{rows(values)}\n}};\n"
        f"const std::span<const {kind}> {name} = {name}Values;\n"
    )


def main() -> None:
    text = characters()
    names = [f'"{name}"' for name in CATEGORIES]
    body = array("std::string_view", "kCategoryNames", names)
    body += array("uint32_t", "kCategories", (hex(v) for v in partition(CATEGORIES, text)))
    write("categories.cc", body)
    # Beyond these planes (and a few tags, of script Common and Inherited) there is nothing else.
    text = characters(0x3FFFF) + "".join(chr(c) for c in range(0xE0000, 0xE0200))
    scripts = ["", *SCRIPTS]
    names = [f'"{name.replace("_", "").lower()}"' for name in scripts]
    body = array("std::string_view", "kScriptNames", names)
    body += array("uint32_t", "kScripts", (hex(v) for v in partition(scripts, text)))
    write("scripts.cc", body)
    body = ""
    for name in PROPERTIES:
        bounds = (f"{{{first:#x}, {last:#x}}}" for first, last in rest(name, text))
        body += array("CodeRange", f"kOther{name.replace('_', '')}", bounds)
    write("properties.cc", body)
    body = array("Fold", "kFolds", (f"{{{a:#x}, {b:#x}, {c}, {d}}}" for a, b, c, d in folds(text)))
    multi = long_folds(text)
    several = [c for c in text if len(c.casefold()) > 1]
    body += array("uint32_t", "kLongFolding", (hex(ord(c)) for c in several))
    starts = sorted({(ord(folded[0]), ord(folded[1])) for folded in multi})
    places = (f"{{{first:#x}, {second:#x}}}" for first, second in starts)
    body += array("CodeRange", "kLongFoldStarts", places)
    write("folds.cc", body)


if __name__ == "__main__":
    main()
