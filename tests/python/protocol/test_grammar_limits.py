"""Schemas and grammars of strangers: what they may cost, and whether outputs of them can end."""

from __future__ import annotations

import copy
import json
import pickle
import random
import re
import resource
import threading
import time
from functools import partial
from typing import Any

import llguidance
import pytest

from headrace import GuidedDecodingParams
from headrace.errors import EngineError
from headrace.grammar import compile_constraint, proof, worker
from headrace.grammar.rewriting import GuidableSchema
from headrace.limited.worker import Refused
from headrace.options.tools import ToolChoice
from headrace.parsers import Function, Start, tool_parsers
from headrace.parsers.output_plan import OutputPlan, Parsing
from headrace.protocol.chat import read_chat
from headrace.text.tokenizer import Tokenizer

COSTLY = 'start: %json {"type": "integer", "multipleOf": 9999991}'


@pytest.fixture(scope="module")
def tokenizer(native_folder: Any) -> Tokenizer:
    return Tokenizer.from_pretrained(native_folder)


@pytest.fixture
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "SLOW_SECONDS", 0.3)
    monkeypatch.setattr(proof, "QUICK_SECONDS", 0.1)
    monkeypatch.setattr(proof, "_memory", proof._Memory())


def compile_one(tokenizer: Tokenizer, **params: Any) -> Any:
    return compile_constraint(GuidedDecodingParams(**params), tokenizer)


def lark(schema: Any) -> dict[str, str]:
    return {"grammar": f"start: %json {json.dumps(schema)}"}


@pytest.mark.parametrize(
    "params",
    [
        {"json": {"type": "integer", "multipleOf": 9999991}},
        {"json": {"type": "number", "multipleOf": 0.9999991}},
        {"json": {"type": "integer", "multipleOf": int("9" * 400)}},
        {"json": {"anyOf": [{"type": "integer", "multipleOf": 10_007 + i} for i in range(50)]}},
        {"json": {"allOf": [{"type": "integer", "multipleOf": n} for n in (9973, 9967, 9949)]}},
        {"grammar": COSTLY},
        lark({"anyOf": [{"type": "integer", "multipleOf": 99_001 + i} for i in range(50)]}),
    ],
    ids=["digits", "fraction", "huge", "many", "product", "lark", "lark of many"],
)
def test_what_never_finishes_compiling_is_refused(
    tokenizer: Tokenizer, params: Any, little_time: None
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.raises(ValueError, match=r"takes too long|processor time|fuel|digits"):
        compile_one(tokenizer, **params)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 1  # it was another process's
    assert after.ru_maxrss - before.ru_maxrss < 64 << 10


def test_one_that_was_refused_costs_nothing_again(tokenizer: Tokenizer, little_time: None) -> None:
    seconds = []
    for _ in range(4):
        start = time.monotonic()
        with pytest.raises(ValueError, match="processor time"):
            compile_one(tokenizer, grammar=COSTLY)
        seconds.append(time.monotonic() - start)
    assert min(seconds[1:]) < seconds[0] / 10


def test_a_process_that_fails_is_no_refusal(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(*_: Any) -> Any:
        raise EngineError("the process that tries grammars can't be started", 500)

    with monkeypatch.context() as patch:
        patch.setattr(proof._processes, "ask", failed)
        with pytest.raises(EngineError, match="can't be started"):
            compile_one(tokenizer, regex="tried twice")
    compile_one(tokenizer, regex="tried twice")


def test_what_is_remembered_is_bounded() -> None:
    memory = proof._Memory()
    for number in range(100):
        memory.put(number, True, "", 1 << 10)
        memory.put(number, True, "", 1 << 18)
    assert memory.size == 64 << 18 == proof._REMEMBERED_CHARS
    assert memory.get(35) is None
    assert memory.get(36) == (True, "")


def test_notes_say_what_they_are_about(tokenizer: Tokenizer) -> None:
    notes: list[str] = []
    guided = GuidedDecodingParams(json={"type": "nothing"}, strict=False)
    compile_constraint(guided, tokenizer, notes=notes)
    assert notes == ["the JSON schema: type at / is left to the model"]
    with pytest.warns(UserWarning, match=re.escape(notes[0])):
        compile_constraint(guided, tokenizer)


def test_notes_are_few_and_short() -> None:
    """A hundred kilobytes of a schema made a hundred megabytes of them."""
    odd = {"type": "object", "properties": {f"a{i}": {"not": {}} for i in range(50)}}
    _, notes = guidable({"type": "object", "properties": {"K" * 10_000: odd}}, lenient=True)
    assert sum(map(len, notes)) < 5000
    assert notes[-1] == "more"


def test_a_deep_schema_is_called_deep() -> None:
    deep = '{"items":' * 50_000 + "{}" + "}" * 50_000
    with pytest.raises(Refused, match="nested too deeply"):
        worker.answer(bytearray(pickle.dumps(("guidable", (deep, True)))))


def test_slow_ones_wait_for_each_other_and_hold_up_no_others(
    tokenizer: Tokenizer, little_time: None
) -> None:
    ends: dict[int, str] = {}

    def slow(number: int) -> None:
        try:
            compile_one(tokenizer, grammar=f"{COSTLY} // {number}")
        except (ValueError, EngineError) as error:
            ends[number] = f"{getattr(error, 'error_code', 400)} {error}"

    threads = [threading.Thread(target=slow, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    for number in range(3):
        compile_one(tokenizer, json={"const": f"ordinary {number}"})
    assert len(ends) < len(threads)  # they have been on it all the time
    for thread in threads:
        thread.join()
    kinds = {end.split(":")[0][:40] for end in ends.values()}
    assert all("processor time" in end or "503" in end for end in ends.values()), kinds


def follows(schema: Any, begun: str) -> str:
    """Bytes that may come after a beginning; "" at a dead end."""
    matcher = started(schema)
    assert matcher.try_consume_tokens(list(begun.encode())) == len(begun.encode())
    mask = matcher.compute_bitmask()
    return "".join(
        chr(i) for i in range(128) if not matcher.is_error() and mask[i // 8] >> i % 8 & 1
    )


def started(schema: Any) -> Any:
    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def guidable(schema: Any, lenient: bool = False) -> tuple[Any, list[str]]:
    text, notes = proof.guidable(json.dumps(schema), lenient)
    return json.loads(text), notes


SCORE = {"type": "integer", "minimum": 0, "maximum": 100}


@pytest.mark.parametrize("pattern", ["^score$", "^(score|scores?)$", "^s[c]ore$", "^scor(e|e)$"])
def test_an_object_without_more_keys_ends(pattern: str) -> None:
    schema = {
        "type": "object",
        "properties": {"score": SCORE, "scores": {"type": "null"}},
        "patternProperties": {pattern: {"type": ["integer", "null"], "maximum": 99}},
        "additionalProperties": False,
        "required": ["score"],
    }
    ready, _ = guidable(schema)
    for begun in ('{"score":95', '{"score":95,"scores":null'):
        after = follows(ready, begun)
        assert "}" in after
        assert ("," in after) == (begun == '{"score":95')
    assert "0" not in follows(ready, '{"score":10')  # what the pattern asks still holds


def test_patterns_that_add_keys_stay() -> None:
    schema = {
        "type": "object",
        "properties": {"a": SCORE},
        "patternProperties": {"^[ab]$": SCORE},
        "additionalProperties": False,
    }
    ready, _ = guidable(schema)
    assert '"' in follows(ready, '{"a":1,')
    assert follows(ready, '{"a":1,"') == "b"


def test_what_has_no_end_is_left_out_or_refused() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}
    endless = {"$ref": "#/$defs/e"}
    with pytest.raises(ValueError, match="no finite JSON"):
        guidable({"$ref": "#/$defs/n", "$defs": {"n": node}})
    with pytest.raises(ValueError, match="no finite JSON"):
        guidable({"type": "array", "items": endless, "minItems": 2, "$defs": {"e": endless}})
    ready, _ = guidable(
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}
    )
    assert follows({**ready, "additionalProperties": False}, "{").strip() == "}"
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}
    assert guidable({**tree, "required": ["kids"]})[0]["properties"]["kids"] == {
        "type": "array",
        "items": {"$ref": "#"},
    }


PATTERNS = ["^a$", "^a|b$", "^[ab]$", "a", "^", "", "^.$", "^x+$", "b$"]


def random_schema(rng: random.Random, depth: int = 0) -> Any:
    def leaf() -> Any:
        plain = [{"type": "integer"}, {"const": 1}, False]
        if depth > 1:
            return rng.choice([*plain, True, {"$ref": "#/$defs/d"}, {"$ref": "#/$defs/e"}])
        return rng.choice([*plain, random_schema(rng, depth + 1)])

    if rng.random() < 0.2:
        return {"type": "array", "items": leaf(), "minItems": rng.randint(0, 3)}
    schema: dict[str, Any] = {"type": "object"}
    names = rng.sample(["a", "b", "c", "ab", ""], rng.randint(0, 3))
    schema["properties"] = {name: leaf() for name in names}
    if rng.random() < 0.8:
        schema["patternProperties"] = {rng.choice(PATTERNS): leaf()}
    if rng.random() < 0.8:
        schema["additionalProperties"] = rng.choice([False, False, False, leaf()])
    if rng.random() < 0.5:
        schema["required"] = names[:1]
    return schema


def combined(rng: random.Random) -> Any:
    """Keys that one part of a schema names, and another has a pattern for."""
    keys = rng.sample(["a", "b", "ab"], rng.randint(1, 3))
    named = {"type": "object", "properties": {key: {"type": "integer"} for key in keys}}
    named["required"] = rng.sample(keys, rng.randint(0, len(keys)))
    pattern = rng.choice(["^a$", "^[ab]$", "^ab?$", "^(a|b|ab)$", "^a"])
    value = rng.choice([True, True, {"maximum": 3}, {"type": "integer"}, False])
    others = {"patternProperties": {pattern: value}, "additionalProperties": rng.random() < 0.2}
    return rng.choice(
        [
            {"allOf": [named, others]},
            {**named, "allOf": [others]},
            {**named, "$ref": "#/$defs/p", "$defs": {"p": others}},
            {**named, "anyOf": [others, {"required": ["a"]}]},
            {"type": "object", "required": named["required"], **others},
        ]
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"properties": {"k": SCORE}, "required": ["k"]}, {}]},
        {"properties": {"k": SCORE}, "required": ["k"], "allOf": [{}]},
        {"required": ["k"]},
    ],
)
def test_patterns_know_the_keys_of_the_other_parts(schema: dict[str, Any]) -> None:
    part = {"patternProperties": {"^k$": {"type": "integer"}}, "additionalProperties": False}
    whole = {"type": "object", **schema}
    (whole["allOf"][-1] if "allOf" in whole else whole).update(copy.deepcopy(part))
    ready, _ = guidable(whole)
    assert "," not in follows(ready, '{"k":7')
    assert "}" in follows(ready, '{"k":7')


def test_no_schema_reaches_a_dead_end() -> None:
    tried = 0
    for seed in range(150):
        rng = random.Random(seed)
        if seed % 3:
            schema = random_schema(rng)
            schema["$defs"] = {"d": random_schema(rng, 1), "e": random_schema(rng, 2)}
        else:
            schema = combined(rng)
        try:
            ready, _ = guidable(schema)
        except ValueError:
            continue
        tried += 1
        walk(ready, rng)
    assert tried > 50


def walk(schema: Any, rng: random.Random) -> None:
    """Follows a schema at random, 100 characters long."""
    matcher = started(schema)
    text = ""
    while len(text) < 100 and not matcher.is_stopped():
        mask = matcher.compute_bitmask()
        found = [
            chr(i) for i in range(128) if mask[i // 8] >> i % 8 & 1 and chr(i) not in " \n\r\t"
        ]
        assert not matcher.is_error(), (schema, text)
        assert found or matcher.is_accepting(), (schema, text)
        if not found:
            return
        closing = [character for character in found if character in '"}],:']
        text += rng.choice(closing or found)
        matcher.consume_token(ord(text[-1]))


@pytest.mark.parametrize(
    ("schema", "note"),
    [
        ({"propertyNames": {"type": "string", "maxLength": 9}}, "propertyNames at /"),
        ({"items": {"uniqueItems": True}}, "uniqueItems at /items"),
        ({"not": {"const": 1}}, "not at /"),
        ({"if": {}, "then": {"maxLength": 9}}, "if at /"),
        ({"contains": {}}, "contains at /"),
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"type": "string", "format": "password"}, "format at /"),
        ({"type": "string", "pattern": "^(?=a)"}, "pattern at /"),
        ({"type": "string", "pattern": r"\bword\b"}, "pattern at /"),
        ({"type": "string", "pattern": r"(a)\1"}, "pattern at /"),
        ({"patternProperties": {r"\ba": {}}, "additionalProperties": False}, "patternProperties"),
        ({"type": "float"}, "type at /"),
        ({"type": "integer", "multipleOf": 9999991}, "multipleOf at /"),
        ({"$ref": "https://example.com/x"}, "$ref at /"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "taken as anyOf"),
        ({"type": "object", "minProperties": 1, "properties": {"a": {}}}, "the schema"),
    ],
)
def test_what_cannot_be_guided_is_left_to_the_model(schema: Any, note: str) -> None:
    whole = {"type": "object", "properties": {"a": schema}} if "items" not in schema else schema
    with pytest.raises(ValueError, match=r"."):
        guidable(whole)
    ready, notes = guidable(whole, lenient=True)
    assert any(note.removesuffix("/") in left for left in notes), notes
    started(ready)


@pytest.mark.parametrize(
    "idle",
    [
        {"uniqueItems": False},
        {"not": False},
        {"propertyNames": {"type": "string", "title": "Key"}},  # of every record of zod's
        {"propertyNames": True},
        {"unevaluatedItems": True, "unevaluatedProperties": {}},
        {"dependentRequired": {}, "dependentSchemas": {"a": {}}, "dependencies": {"a": []}},
        {"contains": {"const": 1}, "minContains": 0},
        {"minContains": 2, "maxContains": 3},
        {"if": {"const": 1}},
        {"if": {"const": 1}, "then": {}, "else": True},
        {"then": {"const": 1}, "else": {"const": 2}},
    ],
)
def test_what_says_nothing_is_no_odd_keyword(idle: Any) -> None:
    assert guidable({"items": idle}) == ({"items": {}}, [])


@pytest.mark.parametrize("names", [{"enum": ["a", "b", 7]}, {"type": "string", "const": "a"}])
def test_names_from_a_list_are_properties(names: Any) -> None:
    """As zod writes records of an enum."""
    ready, notes = guidable({"propertyNames": names, "additionalProperties": SCORE})
    known = ["a", "b"] if "enum" in names else ["a"]
    assert (ready["properties"], notes) == (dict.fromkeys(known, SCORE), [])
    assert ready["additionalProperties"] is False
    assert guidable({"propertyNames": names, "additionalProperties": False})[0]["properties"] == {}
    nested = {"propertyNames": names, "additionalProperties": {"propertyNames": names}}
    with pytest.raises(ValueError, match="propertyNames"):
        guidable(nested)  # names of names of names would have no end


@pytest.mark.parametrize("name", ["additionalProperties", "additional%50roperties"])
def test_a_record_that_others_refer_to_stays_as_it_is(name: str) -> None:
    """As zod-to-json-schema writes a type that a record has, too."""
    record = {"propertyNames": {"enum": ["a", "b"]}, "additionalProperties": SCORE}
    properties = {"record": record, "other": {"$ref": f"#/properties/record/{name}"}}
    schema = {"type": "object", "properties": properties, "required": ["other"]}
    ready, notes = guidable(schema, lenient=True)
    del record["propertyNames"]
    assert ready == schema
    assert notes == ["propertyNames at /properties/record"]


def test_the_names_of_a_schema_together_are_bounded() -> None:
    names = {"enum": [f"name{i}" for i in range(100)]}
    record = {"propertyNames": names, "additionalProperties": {"const": "x" * 500}}
    wide = {"properties": {f"key{i}": record for i in range(50)}}
    schema = GuidableSchema(json.dumps(wide), True, lambda _: None)
    ready = json.loads(schema.text())["properties"].values()
    assert 0 < len([one for one in ready if "properties" in one]) < 50
    assert len(schema.text()) < len(json.dumps(wide)) + (1 << 19)
    assert schema.notes[0].startswith("propertyNames at /properties/key")


def test_padding_is_bounded(tokenizer: Tokenizer) -> None:
    from headrace.grammar import from_guided_params

    schema = {"type": "object", "properties": {"a": SCORE}, "required": ["a"]}
    grammar = from_guided_params(GuidedDecodingParams(json=schema))
    assert grammar is not None
    ready = json.loads(grammar.text)
    assert follows(ready, "{ ") == '"'
    assert "\n" not in follows(ready, "{\n")
    assert follows(ready, "{\n" + " " * 20) == '"'
    assert follows(ready, '{ "a" ') == ":"
    assert follows(ready, '{\n    "a": 1\n}') == ""


def test_tools_with_odd_keywords_are_guided_as_far_as_can_be(tokenizer: Tokenizer) -> None:
    odd = {"type": "object", "properties": {"a": {"type": "string", "format": "password"}}}

    def plan(**more: Any) -> tuple[Any, list[str]]:
        notes: list[str] = []
        function = Function("f", {**odd, "propertyNames": {"maxLength": 9}}, **more)
        parsing = Parsing(None, tool_parsers.get("hermes"), tokenizer)
        choice = ToolChoice("required")
        made = OutputPlan(parsing, parsing.calls, Start.CONTENT, [function], choice, None, None)
        compile_one = partial(compile_constraint, tokenizer=tokenizer)
        return made.constraint(None, True, compile_one, notes), notes

    constraint, notes = plan()
    assert constraint is not None
    assert notes == [
        "tools: f: propertyNames at / is left to the model",
        "tools: f: format at /properties/a is left to the model",
    ]
    with pytest.raises(ValueError, match=r"f is strict.*propertyNames"):
        plan(strict=True)


def test_strict_is_read_of_tools_and_formats() -> None:
    function = {"name": "f", "parameters": {"type": "object"}}
    assert not Function.from_tool({"function": function}).strict
    assert Function.from_tool({"function": {**function, "strict": True}}).strict
    schema = {"type": "array", "uniqueItems": True}
    for strict in (None, False, True):
        form = {"name": "a", "schema": schema, "strict": strict}
        asked = {"type": "json_schema", "json_schema": form}
        messages = [{"role": "user", "content": "Hi"}]
        guided = read_chat({"messages": messages, "response_format": asked}).params.guided_decoding
        assert guided is not None
        assert guided.strict is (strict is True)
