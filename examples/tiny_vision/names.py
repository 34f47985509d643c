"""What colours, shapes, places and motions are called in English and Chinese."""

from __future__ import annotations

from beside import words
from scenes import COLOURS, MOTIONS, PAPERS, SHAPES, Thing

_Names = dict[str, dict[str, str]]


def _both(keys: tuple[str, ...], chinese: str) -> _Names:
    return {"en": {key: key for key in keys}, "zh": dict(zip(keys, words(chinese), strict=True))}


COLOUR_NAMES = _both(tuple(COLOURS), "红色 橙色 黄色 绿色 蓝色 紫色")
PAPER_NAMES = _both(tuple(PAPERS), "白色 灰色 黑色")
SHAPE_NAMES = _both((*SHAPES, "number", "word"), "圆形 方形 三角形 菱形 十字 圆环 数字 词")
_CORNERS = ("top left", "top right", "bottom left", "bottom right")
AT: _Names = {
    "en": {
        **{place: f"at the {place}" for place in (*_CORNERS, "top", "bottom")},
        "left": "on the left",
        "right": "on the right",
        "centre": "in the centre",
    },
    "zh": {
        "top left": "左上角", "top": "上方", "top right": "右上角",
        "left": "左边", "centre": "中间", "right": "右边",
        "bottom left": "左下角", "bottom": "下方", "bottom right": "右下角",
    },
}  # fmt: skip
MOVES: _Names = {
    "en": {key: "does not move" if key == "still" else f"moves {key}" for key in MOTIONS},
    "zh": {
        "left": "向左移动",
        "right": "向右移动",
        "up": "向上移动",
        "down": "向下移动",
        "still": "没有移动",
    },
}


def counted(lang: str, thing: Thing) -> str:
    """Several of a thing: "red crosses", "红色的十字"."""
    colour, shape = COLOUR_NAMES[lang][thing.colour], SHAPE_NAMES[lang][thing.shape]
    if lang == "zh":
        return f"{colour}的{shape}"
    return f"{colour} {shape}{'es' if shape.endswith('s') else 's'}"


def a_thing(lang: str, thing: Thing) -> str:
    """One of a thing: "an orange ring", "一个橙色的圆环"."""
    if lang == "zh":
        return "一个" + counted(lang, thing)
    return f"{'an' if thing.colour == 'orange' else 'a'} {thing.colour} {thing.shape}"
