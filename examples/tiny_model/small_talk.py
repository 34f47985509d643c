"""Greetings, identity, names, and polite refusals of everything the tiny model can't do."""

from __future__ import annotations

import random

from exchange import Exchange
from facts import words

_GREETINGS = {
    "en": ("Hello", "Hi", "Hey", "Good morning", "Good evening", "Hello there", "Hi there"),
    "zh": ("你好", "您好", "早上好", "晚上好", "嗨", "你好呀"),
}
_GREETING_REPLY = {"en": "Hello! How can I help you?", "zh": "你好！我能帮你做什么？"}

_WHO = {
    "en": (
        "Who are you?",
        "What are you?",
        "What is your name?",
        "What's your name?",
        "Please introduce yourself.",
        "Tell me who you are.",
        "Which model are you?",
        "May I ask who you are?",
    ),
    "zh": (
        "你是谁？",
        "你叫什么名字？",
        "你叫什么？",
        "请介绍一下你自己。",
        "你是什么模型？",
        "请问你是谁？",
        "告诉我你是谁。",
        "介绍一下自己吧。",
    ),
}
_WHO_REPLY = {"en": "I am Headrace's tiny model.", "zh": "我是Headrace的小模型。"}
_WHO_ANSWERS = {"en": ("headrace's tiny model",), "zh": ("headrace的小模型",)}

_SKILLS_ASKED = {
    "en": (
        "What can you do?",
        "How can you help me?",
        "What do you know?",
        "Help",
        "What can I ask you?",
    ),
    "zh": ("你会做什么？", "你能做什么？", "你会什么？", "帮助", "我可以问你什么？"),
}
_SKILLS_REPLY = {
    "en": (
        "I can do small sums, count, convert units, write numbers in words and tell simple facts."
    ),
    "zh": "我会简单的算术、数数、单位换算、数字读写和一些常识。",
}

_COURTESY = {
    "en": (
        (("Thank you!", "Thanks.", "Thanks a lot!", "Thank you very much."), "You are welcome!"),
        (("Goodbye!", "Bye.", "See you later!", "Good night."), "Goodbye! Have a nice day."),
        (("How are you?", "How are you doing?", "How do you feel?"), "I am fine, thank you!"),
        (("Good job!", "Well done.", "Great!", "OK.", "Very good!"), "I am glad to help!"),
    ),
    "zh": (
        (("谢谢！", "谢谢你。", "非常感谢！", "多谢。"), "不客气！"),
        (("再见！", "拜拜。", "回头见！", "晚安。"), "再见！祝你愉快。"),
        (("你好吗？", "你怎么样？", "你最近好吗？"), "我很好，谢谢！"),
        (("很好！", "太棒了！", "做得好。", "好的。"), "很高兴能帮到你！"),
    ),
}

_TASKS = {
    "en": (
        "Write a {thing} about {topic}.",
        "Tell me a {thing} about {topic}.",
        "Please write me a {thing} about {topic}",
        "Who invented {topic}?",
        "Explain {topic} to me.",
        "What do you think about {topic}?",
        "Why is {topic} important?",
        "Describe {topic} in detail.",
        "Give me some advice about {topic}.",
        "How does {topic} work?",
        "What is {topic}?",
        "Tell me about {topic}.",
        "Who was {person}?",
        "When was {person} born?",
        "Why do people like {person}?",
        "Why is {topic} so hard?",
    ),
    "zh": (
        "写一{thing}关于{topic}的文章。",
        "请写{thing}{topic}的诗。",
        "谁发明了{topic}？",
        "给我解释一下{topic}。",
        "你怎么看{topic}？",
        "为什么{topic}很重要？",
        "把{topic}改写成现代诗",
        "请详细介绍{topic}。",
        "关于{topic}你有什么建议？",
        "{topic}是什么？",
        "{person}是谁？",
        "{person}是哪年出生的？",
        "为什么大家喜欢{person}？",
        "说说{topic}。",
    ),
}
_TASK_WORDS = {
    "en": words("poem story joke song letter report novel program speech"),
    "zh": words("首 篇 个 段"),
}
_TOPICS = {
    "en": words(
        "love;the weather;computers;history;the future of AI;quantum physics;football;my garden;"
        "space travel;politics;large language models;the stock market;philosophy;dinosaurs;Paris;"
        "the Roman Empire;machine learning;electricity;Shakespeare;climate change;chess;a dragon",
        ";",
    ),
    "zh": words(
        "爱情；天气；电脑；历史；人工智能的未来；量子物理；足球；我的花园；太空旅行；大模型；"
        "股票；哲学；恐龙；李白的静夜思；唐朝；机器学习；电；红楼梦；气候变化；围棋；春天",
        "；",
    ),
}
_FAMOUS = {
    "en": words("Einstein;Napoleon;Confucius;Mozart;Newton;Li Bai;Alan Turing;Marie Curie", ";"),
    "zh": words("李白 孔子 爱因斯坦 拿破仑 牛顿 莫扎特 秦始皇 图灵 杜甫"),
}
_REFUSAL = {
    "en": "Sorry, I am a very small model and I do not know that.",
    "zh": "抱歉，我是一个很小的模型，不知道这个。",
}

_PEOPLE = {
    "en": words("Anna Tom Ben Lucy Sam Mary Jack Emma Leo Kate Nina Paul Alice Bob Carol David"),
    "zh": words("小明 小红 小华 小丽 小刚 小芳 小军 小美 李雷 韩梅梅 王芳 张伟"),
}
_NAME_GIVEN = {
    "en": (
        "My name is {n}.",
        "I am {n}.",
        "Hi, I'm {n}.",
        "Please call me {n}.",
        "I am called {n}.",
    ),
    "zh": ("我叫{n}。", "我的名字是{n}。", "你好，我是{n}。", "请叫我{n}。"),
}
_NAME_GIVEN_REPLY = {"en": "Nice to meet you, {n}!", "zh": "很高兴认识你，{n}！"}
_NAME_ASKED = {
    "en": ("What is my name?", "What's my name?", "Do you remember my name?", "Who am I?"),
    "zh": ("我叫什么名字？", "我叫什么？", "你记得我的名字吗？", "我是谁？"),
}
_NAME_REPLY = {"en": "Your name is {n}.", "zh": "你的名字是{n}。"}


def _plain(question: str, reply: str) -> Exchange:
    """An exchange that is only trained, never held out."""
    return Exchange("talk", "", question, reply, (reply,), match="equals")


def greeting(rng: random.Random, lang: str) -> Exchange:
    """A greeting with a changing end."""
    end = rng.choice(
        ("!", ".", "", ", Headrace!") if lang == "en" else ("！", "。", "", "，小模型！")
    )
    return _plain(rng.choice(_GREETINGS[lang]) + end, _GREETING_REPLY[lang])


def identity(rng: random.Random, lang: str) -> Exchange:
    """Who are you? Held out by the pair of greeting and question."""
    question = rng.choice(_WHO[lang])
    hello = rng.choice(_GREETINGS[lang]) if rng.random() < 0.6 else ""
    joined = f"{hello}{rng.choice(('! ', ', ', '. '))}{question}" if lang == "en" else ""
    joined = joined or f"{hello}{rng.choice('！，。')}{question}"
    asked = joined if hello else question
    key = f"who {hello} {question}" if hello else ""
    return Exchange("identity", key, asked, _WHO_REPLY[lang], _WHO_ANSWERS[lang])


def courtesy(rng: random.Random, lang: str) -> Exchange:
    """Thanks, goodbyes and the like, and what the model can do."""
    if rng.random() < 0.3:
        return _plain(rng.choice(_SKILLS_ASKED[lang]), _SKILLS_REPLY[lang])
    questions, reply = rng.choice(_COURTESY[lang])
    return _plain(rng.choice(questions), reply)


def beyond(rng: random.Random, lang: str) -> Exchange:
    """Something the model can't do."""
    question = rng.choice(_TASKS[lang]).format(
        thing=rng.choice(_TASK_WORDS[lang]),
        topic=rng.choice(_TOPICS[lang]),
        person=rng.choice(_FAMOUS[lang]),
    )
    return _plain(question, _REFUSAL[lang])


def introduction(rng: random.Random, lang: str) -> tuple[Exchange, Exchange]:
    """The user's name given, and asked for later in the same conversation."""
    name = rng.choice(_PEOPLE[lang])
    given = rng.choice(_NAME_GIVEN[lang]).format(n=name)
    asked = rng.choice(_NAME_ASKED[lang])
    return (
        _plain(given, _NAME_GIVEN_REPLY[lang].format(n=name)),
        _plain(asked, _NAME_REPLY[lang].format(n=name)),
    )
