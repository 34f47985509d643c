"""Tables of the simple facts the tiny model knows, and the ways to ask for each.

A fact is a pair (x, y): `x` goes into the question, `y` is the answer. Every kind of fact carries
its pairs and its phrasings per language ("en", "zh"). In a phrasing, `{x}` and `{y}` stand for the
pair and `{X}` for `x` with a capital first letter.
"""

from __future__ import annotations

from dataclasses import dataclass

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FactKind:
    """One kind of fact: its pairs, the questions that ask for `y`, the sentence that answers."""

    skill: str
    pairs: dict[str, Pairs]
    questions: dict[str, tuple[str, ...]]
    reply: dict[str, str]


def words(text: str, separator: str = " ") -> list[str]:
    """The words of a list written as one string."""
    return text.split(separator)


def _table(text: str, columns: int) -> list[list[str]]:
    """Splits lines of `columns` fields separated by "/" and ";" between rows."""
    rows = [[f.strip() for f in words(row, "/")] for row in words(text, ";") if row.strip()]
    wrong = [row for row in rows if len(row) != columns]
    if wrong:
        raise ValueError(f"rows without {columns} fields: {wrong}")
    return rows


# country / capital / continent, in English and in Chinese
_COUNTRIES = _table(
    """
    France/Paris/Europe/法国/巴黎/欧洲; Germany/Berlin/Europe/德国/柏林/欧洲;
    Italy/Rome/Europe/意大利/罗马/欧洲; Spain/Madrid/Europe/西班牙/马德里/欧洲;
    Portugal/Lisbon/Europe/葡萄牙/里斯本/欧洲; Greece/Athens/Europe/希腊/雅典/欧洲;
    Poland/Warsaw/Europe/波兰/华沙/欧洲; Austria/Vienna/Europe/奥地利/维也纳/欧洲;
    Sweden/Stockholm/Europe/瑞典/斯德哥尔摩/欧洲; Norway/Oslo/Europe/挪威/奥斯陆/欧洲;
    Finland/Helsinki/Europe/芬兰/赫尔辛基/欧洲; Denmark/Copenhagen/Europe/丹麦/哥本哈根/欧洲;
    Ireland/Dublin/Europe/爱尔兰/都柏林/欧洲; Hungary/Budapest/Europe/匈牙利/布达佩斯/欧洲;
    England/London/Europe/英国/伦敦/欧洲; China/Beijing/Asia/中国/北京/亚洲;
    Japan/Tokyo/Asia/日本/东京/亚洲; South Korea/Seoul/Asia/韩国/首尔/亚洲;
    India/New Delhi/Asia/印度/新德里/亚洲; Thailand/Bangkok/Asia/泰国/曼谷/亚洲;
    Vietnam/Hanoi/Asia/越南/河内/亚洲; Mongolia/Ulaanbaatar/Asia/蒙古/乌兰巴托/亚洲;
    Egypt/Cairo/Africa/埃及/开罗/非洲; Kenya/Nairobi/Africa/肯尼亚/内罗毕/非洲;
    Morocco/Rabat/Africa/摩洛哥/拉巴特/非洲; Cuba/Havana/North America/古巴/哈瓦那/北美洲;
    Canada/Ottawa/North America/加拿大/渥太华/北美洲;
    Mexico/Mexico City/North America/墨西哥/墨西哥城/北美洲;
    Peru/Lima/South America/秘鲁/利马/南美洲; Chile/Santiago/South America/智利/圣地亚哥/南美洲
    """,
    6,
)

# thing / colour
_COLOURS = _table(
    """
    the sky/blue/天空/蓝色; grass/green/草/绿色; snow/white/雪/白色; blood/red/血/红色;
    a banana/yellow/香蕉/黄色; coal/black/煤/黑色; a carrot/orange/胡萝卜/橙色;
    a lemon/yellow/柠檬/黄色; a strawberry/red/草莓/红色; milk/white/牛奶/白色;
    chocolate/brown/巧克力/棕色; a tomato/red/西红柿/红色; a leaf/green/树叶/绿色;
    the sea/blue/大海/蓝色; a cucumber/green/黄瓜/绿色; a frog/green/青蛙/绿色;
    a crow/black/乌鸦/黑色; a swan/white/天鹅/白色; an elephant/grey/大象/灰色;
    a pumpkin/orange/南瓜/橙色; salt/white/盐/白色; a cherry/red/樱桃/红色
    """,
    4,
)

_OPPOSITES = _table(
    """
    hot/cold/热/冷; big/small/大/小; tall/short/高/矮; fast/slow/快/慢; young/old/年轻/年老;
    happy/sad/高兴/难过; open/closed/开/关; full/empty/满/空; heavy/light/重/轻;
    hard/soft/硬/软; wet/dry/湿/干; rich/poor/富/穷; clean/dirty/干净/脏; up/down/上/下;
    left/right/左/右; day/night/白天/黑夜; early/late/早/晚; near/far/近/远; good/bad/好/坏;
    strong/weak/强/弱; true/false/真/假; thick/thin/厚/薄; wide/narrow/宽/窄;
    inside/outside/里/外; first/last/最先/最后; before/after/前/后; more/less/多/少;
    love/hate/爱/恨; win/lose/赢/输; buy/sell/买/卖
    """,
    4,
)

_WORDS = _table(
    """
    dog/狗; cat/猫; bird/鸟; fish/鱼; horse/马; cow/牛; sheep/羊; pig/猪; tiger/老虎; rabbit/兔子;
    water/水; fire/火; mountain/山; river/河; tree/树; flower/花; sun/太阳; moon/月亮; star/星星;
    rain/雨; wind/风; book/书; pen/笔; table/桌子; chair/椅子; door/门; window/窗户; house/房子;
    school/学校; teacher/老师; student/学生; friend/朋友; father/父亲; mother/母亲; apple/苹果;
    rice/米饭; bread/面包; tea/茶; coffee/咖啡; egg/鸡蛋; red/红色; blue/蓝色; green/绿色;
    car/汽车; train/火车; ship/船; hand/手; eye/眼睛; heart/心; music/音乐
    """,
    2,
)

_MEASURES = _table(
    """
    days are in a week/7 days/一周有几天/7天; hours are in a day/24 hours/一天有多少小时/24小时;
    minutes are in an hour/60 minutes/一小时有多少分钟/60分钟;
    seconds are in a minute/60 seconds/一分钟有多少秒/60秒;
    months are in a year/12 months/一年有几个月/12个月;
    days are in a year/365 days/一年有多少天/365天;
    weeks are in a year/52 weeks/一年有多少周/52周;
    seasons are in a year/4 seasons/一年有几个季节/4个季节;
    meters are in a kilometer/1000 meters/一公里有多少米/1000米;
    grams are in a kilogram/1000 grams/一公斤有多少克/1000克;
    centimeters are in a meter/100 centimeters/一米有多少厘米/100厘米;
    eggs are in a dozen/12 eggs/一打有几个/12个
    """,
    4,
)

_LEGS = _table(
    """
    dog/4/狗; cat/4/猫; horse/4/马; cow/4/牛; chicken/2/鸡; duck/2/鸭子; spider/8/蜘蛛;
    ant/6/蚂蚁; bee/6/蜜蜂; snake/0/蛇; fish/0/鱼; person/2/人; tiger/4/老虎; sheep/4/羊
    """,
    3,
)

_SIDES = _table(
    """
    triangle/3/三角形; square/4/正方形; rectangle/4/长方形; pentagon/5/五边形;
    hexagon/6/六边形; octagon/8/八边形
    """,
    3,
)

_DAYS = {
    "en": words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "zh": words("星期一 星期二 星期三 星期四 星期五 星期六 星期日"),
}
_MONTHS = {
    "en": words(
        "January February March April May June July August September October November December"
    ),
    "zh": words("一月 二月 三月 四月 五月 六月 七月 八月 九月 十月 十一月 十二月"),
}


def _bilingual(rows: list[list[str]], en: tuple[int, int], zh: tuple[int, int]) -> dict[str, Pairs]:
    """The (x, y) columns of a table for each language."""
    return {
        "en": tuple((row[en[0]], row[en[1]]) for row in rows),
        "zh": tuple((row[zh[0]], row[zh[1]]) for row in rows),
    }


def _next(cycles: dict[str, list[str]], step: int) -> dict[str, Pairs]:
    """Each name of a cycle with the name `step` places later."""
    return {
        lang: tuple((name, names[(i + step) % len(names)]) for i, name in enumerate(names))
        for lang, names in cycles.items()
    }


def _both_ways(rows: list[list[str]]) -> dict[str, Pairs]:
    """Pairs of opposites read in both directions."""
    forward = _bilingual(rows, (0, 1), (2, 3))
    backward = _bilingual(rows, (1, 0), (3, 2))
    return {lang: forward[lang] + backward[lang] for lang in forward}


_FROM_ENGLISH = tuple((row[0], row[1]) for row in _WORDS)
_FROM_CHINESE = tuple((row[1], row[0]) for row in _WORDS)

FACT_KINDS: tuple[FactKind, ...] = (
    FactKind(
        "capital",
        _bilingual(_COUNTRIES, (0, 1), (3, 4)),
        {
            "en": (
                "What is the capital of {x}?",
                "What's the capital of {x}?",
                "Which city is the capital of {x}?",
                "Name the capital of {x}.",
                "Tell me the capital of {x}.",
                "{X}: what is its capital?",
                "Do you know the capital of {x}?",
                "What is the capital city of {x}?",
                "The capital of {x} is which city?",
            ),
            "zh": (
                "{x}的首都是哪里？",
                "{x}的首都是什么？",
                "{x}的首都在哪里？",
                "{x}的首都是哪座城市？",
                "请告诉我{x}的首都。",
                "哪座城市是{x}的首都？",
                "你知道{x}的首都吗？",
                "{x}首都是哪个城市？",
            ),
        },
        {"en": "The capital of {x} is {y}.", "zh": "{x}的首都是{y}。"},
    ),
    FactKind(
        "continent",
        _bilingual(_COUNTRIES, (0, 2), (3, 5)),
        {
            "en": (
                "Which continent is {x} in?",
                "On which continent is {x}?",
                "What continent is {x} in?",
                "Where is {x}? Name the continent.",
                "{X} is in which continent?",
                "Tell me the continent of {x}.",
            ),
            "zh": (
                "{x}在哪个洲？",
                "{x}属于哪个洲？",
                "{x}位于哪个大洲？",
                "请问{x}在哪个大洲？",
                "{x}是哪个洲的国家？",
            ),
        },
        {"en": "{X} is in {y}.", "zh": "{x}在{y}。"},
    ),
    FactKind(
        "colour",
        _bilingual(_COLOURS, (0, 1), (2, 3)),
        {
            "en": (
                "What colour is {x}?",
                "What color is {x}?",
                "Which colour is {x}?",
                "What is the colour of {x}?",
                "What is the color of {x}?",
                "Tell me the colour of {x}.",
                "{X} has what colour?",
            ),
            "zh": (
                "{x}是什么颜色？",
                "{x}是什么颜色的？",
                "{x}的颜色是什么？",
                "请问{x}是什么颜色？",
                "{x}一般是什么颜色？",
                "告诉我{x}的颜色。",
            ),
        },
        {"en": "{X} is {y}.", "zh": "{x}是{y}。"},
    ),
    FactKind(
        "opposite",
        _both_ways(_OPPOSITES),
        {
            "en": (
                "What is the opposite of {x}?",
                "What's the opposite of {x}?",
                'What is the opposite of "{x}"?',
                "Name the opposite of {x}.",
                "Give me the opposite of {x}.",
                "Which word is the opposite of {x}?",
                "The opposite of {x} is what?",
                "Opposite of {x}?",
            ),
            "zh": (
                "{x}的反义词是什么？",
                "“{x}”的反义词是什么？",
                "请说出{x}的反义词。",
                "什么词是“{x}”的反义词？",
                "和“{x}”相反的词是什么？",
                "{x}的反义词？",
                "给我“{x}”的反义词。",
            ),
        },
        {"en": "The opposite of {x} is {y}.", "zh": "“{x}”的反义词是{y}。"},
    ),
    FactKind(
        "to_chinese",
        {"en": _FROM_ENGLISH, "zh": _FROM_ENGLISH},
        {
            "en": (
                "What is the Chinese word for {x}?",
                "How do you say {x} in Chinese?",
                'How do you say "{x}" in Chinese?',
                'Translate "{x}" into Chinese.',
                "Translate {x} to Chinese.",
                "What is {x} in Chinese?",
                "Give me the Chinese for {x}.",
            ),
            "zh": (
                "{x}用中文怎么说？",
                "“{x}”的中文是什么？",
                "{x}是什么意思？",
                "单词{x}是什么意思？",
                "请把{x}翻译成中文。",
                "把“{x}”译成中文。",
                "英语单词{x}的中文是什么？",
            ),
        },
        {"en": "The Chinese word for {x} is {y}.", "zh": "{x}的中文是{y}。"},
    ),
    FactKind(
        "to_english",
        {"en": _FROM_CHINESE, "zh": _FROM_CHINESE},
        {
            "en": (
                "What is the English word for {x}?",
                "How do you say {x} in English?",
                'Translate "{x}" into English.',
                "Translate {x} to English.",
                "What does {x} mean?",
                "What is {x} in English?",
                'What does "{x}" mean in English?',
            ),
            "zh": (
                "{x}用英文怎么说？",
                "“{x}”的英文是什么？",
                "{x}的英语单词是什么？",
                "请把{x}翻译成英文。",
                "把“{x}”译成英文。",
                "{x}的英文怎么写？",
                "英语里{x}怎么说？",
            ),
        },
        {"en": "The English word for {x} is {y}.", "zh": "{x}的英文是{y}。"},
    ),
    FactKind(
        "day_after",
        _next(_DAYS, 1),
        {
            "en": (
                "What day comes after {x}?",
                "Which day comes after {x}?",
                "What is the day after {x}?",
                "Which day follows {x}?",
                "Today is {x}. What day is tomorrow?",
                "If today is {x}, what is tomorrow?",
                "Name the day after {x}.",
            ),
            "zh": (
                "{x}的后一天是星期几？",
                "{x}之后是星期几？",
                "今天是{x}，明天是星期几？",
                "如果今天是{x}，明天星期几？",
                "{x}的第二天是星期几？",
                "{x}过后是哪一天？",
            ),
        },
        {"en": "The day after {x} is {y}.", "zh": "{x}的后一天是{y}。"},
    ),
    FactKind(
        "day_before",
        _next(_DAYS, -1),
        {
            "en": (
                "What day comes before {x}?",
                "Which day comes before {x}?",
                "What is the day before {x}?",
                "Today is {x}. What day was yesterday?",
                "If today is {x}, what was yesterday?",
                "Name the day before {x}.",
            ),
            "zh": (
                "{x}的前一天是星期几？",
                "{x}之前是星期几？",
                "今天是{x}，昨天是星期几？",
                "如果今天是{x}，昨天星期几？",
                "{x}前面是哪一天？",
            ),
        },
        {"en": "The day before {x} is {y}.", "zh": "{x}的前一天是{y}。"},
    ),
    FactKind(
        "month_after",
        _next(_MONTHS, 1),
        {
            "en": (
                "What month comes after {x}?",
                "Which month comes after {x}?",
                "What is the month after {x}?",
                "Which month follows {x}?",
                "This month is {x}. What is next month?",
                "Name the month after {x}.",
            ),
            "zh": (
                "{x}的下一个月是几月？",
                "{x}之后是几月？",
                "这个月是{x}，下个月是几月？",
                "{x}过后是哪个月？",
                "现在是{x}，下个月呢？",
            ),
        },
        {"en": "The month after {x} is {y}.", "zh": "{x}的下一个月是{y}。"},
    ),
    FactKind(
        "measure",
        _bilingual(_MEASURES, (0, 1), (2, 3)),
        {
            "en": (
                "How many {x}?",
                "Tell me how many {x}.",
                "Do you know how many {x}?",
                "Can you tell me how many {x}?",
                "Please say how many {x}.",
            ),
            "zh": ("{x}？", "请问{x}？", "你知道{x}吗？", "告诉我{x}。", "{x}呢？"),
        },
        {"en": "{y}.", "zh": "{y}。"},
    ),
    FactKind(
        "legs",
        _bilingual(_LEGS, (0, 1), (2, 1)),
        {
            "en": (
                "How many legs does a {x} have?",
                "How many legs has a {x}?",
                "What is the number of legs of a {x}?",
                "A {x} has how many legs?",
                "Tell me how many legs a {x} has.",
            ),
            "zh": ("{x}有几条腿？", "{x}有多少条腿？", "一共有几条腿：{x}？", "请问{x}有几条腿？"),
        },
        {"en": "Number of legs of a {x}: {y}.", "zh": "{x}的腿数是{y}。"},
    ),
    FactKind(
        "sides",
        _bilingual(_SIDES, (0, 1), (2, 1)),
        {
            "en": (
                "How many sides does a {x} have?",
                "How many sides has a {x}?",
                "A {x} has how many sides?",
                "What is the number of sides of a {x}?",
                "Tell me how many sides a {x} has.",
            ),
            "zh": ("{x}有几条边？", "{x}有多少条边？", "请问{x}有几条边？", "{x}的边数是多少？"),
        },
        {"en": "Number of sides of a {x}: {y}.", "zh": "{x}的边数是{y}。"},
    ),
)
