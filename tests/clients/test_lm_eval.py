"""lm-evaluation-harness against headrace serve: local-completions at its defaults, which asks for
the log-probabilities of what it sends (ids, `echo`), and for answers up to a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

lm_eval = pytest.importorskip("lm_eval")
pytest.importorskip("transformers")

from lm_eval.tasks import TaskManager  # noqa: E402

FOLDER = Path(__file__).parents[2] / "examples/tiny_model/checkpoint"
SUMS = [(2, 2, 4, 7), (12, 7, 19, 3), (1, 1, 2, 9), (3, 5, 8, 80)]  # a, b, the sum, a wrong one
ASKED = "User: What is {{a}} + {{b}}?\\nAssistant: "
SOURCE = """
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
"""
CHOICES = f"""
task: choices
output_type: multiple_choice
doc_to_text: "{ASKED}{{{{a}}}} + {{{{b}}}} ="
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
metric_list: [{{metric: acc}}]
"""
ANSWERS = f"""
task: answers
output_type: generate_until
doc_to_text: "{ASKED}"
doc_to_target: "{{{{sum}}}}"
generation_kwargs: {{until: [".", "\\nUser:"], max_gen_toks: 20}}
filter_list:
  - name: number
    filter: [{{function: regex, regex_pattern: "([0-9]+)$"}}, {{function: take_first}}]
metric_list: [{{metric: exact_match}}]
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskManager:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data.jsonl"
    rows = [
        {"a": a, "b": b, "sum": c, "choices": [f"{c}.", f"{wrong}."]} for a, b, c, wrong in SUMS
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, text in (("choices", CHOICES), ("answers", ANSWERS)):
        (tmp_path / f"{name}.yaml").write_text((text + SOURCE).replace("DATA", str(data)))
    return TaskManager(include_path=str(tmp_path), include_defaults=False)


def evaluate(url: str, tasks: TaskManager, **arguments: Any) -> dict[str, Any]:
    """What each task's samples came to."""
    model = {"model": "tiny", "base_url": f"{url}/completions"}
    done = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={**model, **arguments},
        tasks=["choices", "answers"],
        task_manager=tasks,
        bootstrap_iters=0,
    )
    assert done["results"]["choices"]["acc,none"] == 1
    assert done["results"]["answers"]["exact_match,number"] == 1
    samples: dict[str, Any] = done["samples"]
    return samples


def test_tasks(url: str, tasks: TaskManager) -> None:
    samples = evaluate(url, tasks, tokenizer=str(FOLDER))
    for sample in samples["choices"]:
        ((right, greedy),), ((wrong, surprising),) = sample["resps"]
        assert greedy  # it is what the model itself says
        assert not surprising
        assert wrong < right - 1 < 0
    assert samples["answers"][1]["resps"] == [["12 + 7 = 19"]]  # without the text that ends it
    # Without a tokenizer, the server's is asked.
    together = evaluate(url, tasks, auth_token="sesame", batch_size=4, num_concurrent=2)
    assert [s["resps"] for s in together["choices"]] == [s["resps"] for s in samples["choices"]]
    assert [s["resps"] for s in together["answers"]] == [s["resps"] for s in samples["answers"]]
