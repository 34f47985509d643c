"""Grammars: what callers give, made into constraints, or refused."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import GuidedDecodingParams
from headrace.grammar import Grammar, compile_constraint, from_guided_params, from_response_format
from headrace.grammar.compiler import CACHED_GRAMMARS, _compiler_of
from headrace.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(native_folder: Any) -> Tokenizer:
    return Tokenizer.from_pretrained(native_folder)


def compile_one(tokenizer: Tokenizer, **params: Any) -> Any:
    return compile_constraint(GuidedDecodingParams(**params), tokenizer)


def schema_of(grammar: Grammar) -> Any:
    """Without what it says of whitespace."""
    schema = json.loads(grammar.text)
    own = schema.pop("x-guidance", {})
    assert own.keys() <= {"whitespace_pattern"}
    return schema


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ({}, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "json_schema": '{"type": "array"}'}, {"type": "array"}),
        ({"type": "json_object", "json_schema": {"type": "array"}}, {"type": "array"}),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"a": 1}}}, {"a": 1}),
        ({"type": "json_schema", "json_schema": {"type": "null"}}, {"type": "null"}),
        ({"type": "json_schema", "json_schema": '{"type": "null"}'}, {"type": "null"}),
    ],
)
def test_response_format(value: Any, expected: Any) -> None:
    grammar = from_response_format(value)
    assert (None if grammar is None else schema_of(grammar)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "xml"}, "type must be"),
        ({"json_schema": {}}, "type must be"),
        ({"type": "json_schema"}, "needs a 'json_schema'"),
        ({"type": "json_schema", "json_schema": "{"}, "not valid JSON"),
        ({"type": "json_schema", "json_schema": "[" * 100_000}, "JSON"),
        ({"type": "json_schema", "json_schema": [1]}, "must be a dict"),
        ({"type": "json_schema", "json_schema": {"a": object()}}, "can't be written"),
        ({"type": "json_schema", "json_schema": {"const": "\ud800"}}, "UTF-8"),
        ({"type": "structural_tag"}, "needs 'structures'"),
        ("json_object", "must be a dict"),
    ],
)
def test_bad_response_format(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_response_format(value)


def test_a_pydantic_model_is_a_schema() -> None:
    class Model:
        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return {"type": "boolean"}

    for model in (Model, Model()):
        grammar = from_guided_params(GuidedDecodingParams(json=model))
        assert grammar is not None
        assert schema_of(grammar) == {"type": "boolean"}


def test_whitespace_in_json() -> None:
    def own(schema: Any, compact: bool = False) -> Any:
        grammar = from_guided_params(GuidedDecodingParams(json=schema), compact)
        assert grammar is not None
        return json.loads(grammar.text).get("x-guidance")

    bounded = {"whitespace_pattern": r" |\r?\n(?: {0,20}|\t{0,10})"}
    assert own({"type": "object"}) == bounded
    assert own("true") == bounded
    assert own({"x-guidance": {"lenient": True}}) == {"lenient": True, **bounded}
    for said in ({"whitespace_pattern": " "}, {"whitespace_flexible": True}):
        assert own({"x-guidance": said}) == said
    assert own({"type": "object"}, compact=True) == {"whitespace_flexible": False}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def chain(length: int) -> dict[str, Any]:
    links: dict[str, Any] = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(length)}
    return {"$ref": "#/$defs/a0", "$defs": {**links, f"a{length}": {"type": "null"}}}


WIDE = "start: x\nx: " + " | ".join(f"r{i}" for i in range(1500))
WIDE += "".join(f'\nr{i}: /a?/ x | "b"' for i in range(1500))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"regex": "["}, "regular expression can't be used"),
        ({"regex": "a(?=b)"}, "look-around"),
        ({"regex": "a" * 70_000}, "limit"),
        ({"regex": "a" * 300_000}, "limit"),
        ({"regex": "a\0"}, "NUL"),
        ({"regex": "(" * 5_000 + ")" * 5_000}, "regular expression"),
        ({"json": "{"}, "not valid JSON"),
        ({"json": "false"}, "Unsatisfiable"),
        ({"json": {"$ref": "#"}}, "JSON schema can't be used"),
        ({"json": {"uniqueItems": True}}, "uniqueItems"),
        ({"json": {"type": "mystery"}}, "JSON schema can't be used"),
        ({"json": {"$ref": "http://example.com/x"}}, "JSON schema can't be used"),
        ({"json": nested(900)}, "JSON schema|deeply"),
        ({"json": {"enum": [f"v{i}" for i in range(50_000)]}}, "limit"),
        ({"grammar": "nothing here"}, "grammar"),
        ({"grammar": "start: missing"}, "missing"),
        ({"grammar": "start: " + "(" * 5_000 + '"a"' + ")" * 5_000}, "deeply"),
        ({"grammar": "root ::= ("}, "GBNF|grammar"),
        ({"grammar": "root ::= " + "(" * 5_000}, "grammar"),
        ({"structural_tag": "{}"}, "structures"),
        (
            {"structural_tag": '{"structures": [{"begin": "<a>"}], "triggers": ["<b"]}'},
            "begin.*end",
        ),
        (
            {
                "structural_tag": json.dumps(
                    {
                        "structures": [{"begin": "<a>", "schema": {}, "end": ""}],
                        "triggers": ["<b"],
                    }
                )
            },
            "no trigger",
        ),
    ],
)
def test_bad_grammars(tokenizer: Tokenizer, params: Any, message: str, capfd: Any) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        compile_one(tokenizer, **params)
    assert len(str(caught.value)) < 1000
    assert capfd.readouterr() == ("", "")  # the library doesn't print


@pytest.mark.parametrize(
    "params",
    [
        {"json": chain(3_000)},
        {"json": nested(100)},
        {
            "grammar": "start: r0\n"
            + "\n".join(f"r{i}: r{i + 1}" for i in range(3_000))
            + '\nr3000: "a"'
        },
        {"regex": "(" * 100 + "a" + ")" * 100},
        {"regex": "(a{1000}){1000}"},
        {"choice": ["", "a", "a", 'quoted "text"', "\n\\", "你好"]},
        {"json": "true"},
    ],
    ids=lambda params: next(iter(params)),
)
def test_deep_and_large_grammars_compile(tokenizer: Tokenizer, params: Any) -> None:
    assert compile_one(tokenizer, **params) is not None


def test_a_grammar_that_takes_for_ever_is_given_up(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"processor time|limit"):
        compile_one(tokenizer, grammar=WIDE)


def test_without_a_tokenizer() -> None:
    with pytest.raises(ValueError, match="needs a tokenizer"):
        compile_constraint({"type": "json_object"}, None)
    assert compile_constraint({"type": "text"}, None) is None
    assert compile_constraint(None, None) is None


def test_compiled_grammars_are_kept_in_bounds(tokenizer: Tokenizer) -> None:
    first = compile_one(tokenizer, regex="a")
    assert compile_one(tokenizer, regex="a") is first
    assert compile_constraint(first, None) is first
    for i in range(CACHED_GRAMMARS):
        compile_one(tokenizer, regex=f"b{i}")
    assert compile_one(tokenizer, regex="a") is not first
    assert len(_compiler_of(tokenizer)._compiled) == CACHED_GRAMMARS


def test_threads_compile_at_the_same_time(tokenizer: Tokenizer) -> None:
    made: list[Any] = []

    def work(i: int) -> None:
        made.append(compile_one(tokenizer, json={"const": i}))

    threads = [threading.Thread(target=work, args=(i % 3,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 12
    assert None not in made


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYWORDS = """type properties required items enum const anyOf allOf oneOf not minimum maximum
minLength maxLength pattern format minItems maxItems $ref $defs additionalProperties prefixItems
patternProperties multipleOf propertyNames if then x-guidance"""
KEYWORDS = st.sampled_from(sorted(_KEYWORDS.split()))
TYPES = st.sampled_from(("string", "integer", "number", "object", "array", "boolean", "null"))


def schemas() -> st.SearchStrategy[Any]:
    def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        values = st.one_of(
            inner,
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            TYPES,
            st.sampled_from(["#", "#/$defs/a", "^a+$", "(", "date", "[a-z]{2,5}"]),
            JSON,
        )
        return st.dictionaries(KEYWORDS, values, max_size=4)

    return st.recursive(st.fixed_dictionaries({"type": TYPES}) | JSON, wider, max_leaves=8)


def refusal(grammar: Grammar, tokenizer: Tokenizer) -> str:
    """Why it is refused; all that a message may name if it isn't."""
    try:
        compile_constraint(grammar, tokenizer)
    except ValueError as error:
        return str(error)
    return "grammar, JSON schema, regular expression"


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=schemas())
def test_random_schemas_compile_or_are_refused(tokenizer: Tokenizer, schema: Any) -> None:
    assert "JSON schema" in refusal(Grammar("json_schema", json.dumps(schema)), tokenizer)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(kind=st.sampled_from(["regex", "lark", "llguidance"]), text=st.text(max_size=60))
def test_random_texts_compile_or_are_refused(tokenizer: Tokenizer, kind: str, text: str) -> None:
    message = refusal(Grammar(kind, text), tokenizer)
    assert "grammar" in message or "regular expression" in message
