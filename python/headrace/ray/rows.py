"""Rows of a dataset on their way to an engine and back.

What a row asks for and what it is answered travel as JSON text in a column each: as columns of
their own, Arrow would give all rows of a block the same fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from headrace.quoting import quoted

REQUEST, ANSWER = "__headrace_request", "__headrace_answer"
ERROR = "__inference_error__"  # Ray's
PROMPTS = ("messages", "prompt", "tokenized_prompt")
FIELDS = (*PROMPTS, "sampling_params", "tools", "tool_choice", "chat_template_kwargs")

Row = dict[str, Any]
RowFunction = Callable[[Row], Row]


class Preprocess:
    """From a row of the caller's to one with a request."""

    def __init__(self, function: RowFunction | None, keeps_errors: bool = False) -> None:
        """keeps_errors: a request that is no JSON fails its row alone, in read_request."""
        self._function = function
        self._keeps_errors = keeps_errors

    def __call__(self, row: Row) -> Row:
        made = dict(row)
        if self._function is not None:
            made.update(self._function(row))
        request = {name: made.pop(name) for name in FIELDS if name in made}
        try:
            made[REQUEST] = json.dumps(plain(request), allow_nan=False)
        except (TypeError, ValueError) as error:
            message = f"the row's request is no JSON: {error}"
            if not self._keeps_errors:
                raise ValueError(message) from error
            made[REQUEST] = json.dumps({ERROR: message})
        return made


class Postprocess:
    """From a row with an answer to one of the caller's; failed rows keep what is known of them."""

    def __init__(self, function: RowFunction | None, keeps_errors: bool) -> None:
        self._function = function
        self._keeps_errors = keeps_errors

    def __call__(self, row: Row) -> Row:
        request, answer = json.loads(row[REQUEST]), json.loads(row[ANSWER])
        own = {name: value for name, value in row.items() if name not in (REQUEST, ANSWER)}
        whole = {**own, **request, **answer}
        if not self._keeps_errors:
            whole.pop(ERROR)
        if self._function is None or answer[ERROR]:
            return whole
        made = dict(self._function(whole))
        if self._keeps_errors:
            made[ERROR] = ""
        return made


def read_request(text: str) -> Row:
    """The fields of a row's request. Raises ValueError."""
    request: Row = json.loads(text)
    if ERROR in request:
        raise ValueError(request[ERROR])
    given = [name for name in PROMPTS if request.get(name) is not None]
    if len(given) != 1:
        raise ValueError(f"a row needs one of {', '.join(PROMPTS)}; this has {given or 'none'}")
    params = request.get("sampling_params") or {}
    if not isinstance(params, dict):
        raise ValueError(f"sampling_params must be a dict, got {quoted(params)}")
    if params.get("n", 1) != 1:
        raise ValueError(f"n must be 1, got {quoted(params['n'])}: make a row for each output")
    for name in ("logprobs", "prompt_logprobs"):
        if params.get(name) is not None:
            raise ValueError(f"{name} has no column in the answers: leave it out")
    chats_only = {"tools", "tool_choice", "chat_template_kwargs"} & request.keys()
    if given != ["messages"] and chats_only:
        raise ValueError(f"{min(chats_only)} needs messages")
    return request


def plain(value: Any) -> Any:
    """As JSON has it: arrays as lists, and no fields that are None, as Arrow gives to rows where
    others have a value."""
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
