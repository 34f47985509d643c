"""The shipped model through LLM: what the fake engine can't show."""

from __future__ import annotations

import gc
import math
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT

from headrace import LLM, RequestOutput, SamplingParams, shipped_model

CHECKPOINT = ROOT / "examples" / "tiny_model" / "checkpoint" / "config.json"
GREEDY = SamplingParams(temperature=0.0, max_tokens=40)
QUESTIONS = [
    "What is 2 + 3?",
    "What is the capital of France?",
    "3加4等于几?",
    "Count from 2 to 6.",
]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(shipped_model(), enable_logprob=True, block_size=16) as own:
        yield own


def ask(llm: LLM, questions: list[str], params: Any = GREEDY) -> list[RequestOutput]:
    conversations = [[{"role": "user", "content": question}] for question in questions]
    return llm.chat(conversations, params, use_tqdm=False)


def answer(output: RequestOutput) -> tuple[list[int], str]:
    assert output.error_msg is None
    assert output.outputs is not None
    return output.outputs.token_ids, output.outputs.text or ""


def test_it_answers(llm: LLM) -> None:
    texts = [answer(output)[1] for output in ask(llm, QUESTIONS)]
    assert "5" in texts[0]
    assert "Paris" in texts[1]
    assert "7" in texts[2]


def test_an_answer_ends_with_the_end_token(llm: LLM) -> None:
    (output,) = ask(llm, QUESTIONS[:1])
    ids, text = answer(output)
    assert ids[-1] in llm.model_info.eos_token_ids
    assert "</s>" not in text
    assert output.outputs is not None
    assert (output.outputs.finish_reason, output.outputs.stop_reason) == ("stop", None)


def test_alone_or_in_company(llm: LLM) -> None:
    together = [answer(output) for output in ask(llm, QUESTIONS * 8)]
    alone = [answer(ask(llm, [question])[0]) for question in QUESTIONS]
    assert together == alone * 8


def test_stream_is_the_same(llm: LLM) -> None:
    whole = [answer(output) for output in ask(llm, QUESTIONS)]
    parts: list[tuple[list[int], str]] = [([], "") for _ in QUESTIONS]
    conversations = [[{"role": "user", "content": question}] for question in QUESTIONS]
    for step in llm.chat(conversations, GREEDY, use_tqdm=False, stream=True):
        for place, output in enumerate(step):
            if output is not None:
                ids, text = answer(output)
                parts[place] = (parts[place][0] + ids, parts[place][1] + text)
    assert parts == whole


def test_prefix_cache(llm: LLM) -> None:
    llm.clear_prefix_cache()
    prompt = " ".join(str(number) for number in range(100))
    cold, warm = (llm.generate(prompt, GREEDY, use_tqdm=False)[0] for _ in range(2))
    assert cold.num_cached_tokens == 0
    assert warm.num_cached_tokens >= len(warm.prompt_token_ids) - 16
    assert warm.num_cached_tokens % 16 == 0
    assert answer(cold) == answer(warm)


def common(one: list[int], other: list[int]) -> int:
    """Tokens at the beginning that are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def test_prompts_of_one_call_share_their_prefix(llm: LLM) -> None:
    llm.clear_prefix_cache()
    rules = "Rule: answer in one word, and be kind to whoever asks. " * 8
    prompts = [f"User: {rules}{question}\nAssistant: " for question in QUESTIONS]
    alone = [answer(llm.generate(prompt, GREEDY, use_tqdm=False)[0]) for prompt in prompts]
    for _ in range(3):
        llm.clear_prefix_cache()
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
        ids = [output.prompt_token_ids for output in outputs]
        shared = [max((common(own, other) for other in ids[:i]), default=0) // 16 * 16
                  for i, own in enumerate(ids)]  # fmt: skip
        assert min(shared[1:]) >= 64
        assert [output.num_cached_tokens for output in outputs] == shared
        assert [answer(output) for output in outputs] == alone


def test_swap_space(llm: LLM) -> None:
    """A cache of 400 tokens, and prompts of 300 by turns."""
    prompts = [f"{word} " + " ".join(map(str, range(100))) for word in ("one", "two")]
    expected = [answer(output) for output in llm.generate(prompts, GREEDY, use_tqdm=False)]
    options = {"block_size": 16, "num_gpu_blocks_override": 25, "max_model_len": 400}
    with LLM(shipped_model(), swap_space=0.25, **options) as small:
        assert small.model_info.num_host_kv_blocks > 50
        for turn in range(2):
            for prompt, wanted in zip(prompts, expected, strict=True):
                (output,) = small.generate(prompt, GREEDY, use_tqdm=False)
                assert answer(output) == wanted
                assert output.metrics is not None
                both = output.metrics.gpu_cache_token_num + output.metrics.cpu_cache_token_num
                assert output.num_cached_tokens == both
                assert (output.metrics.cpu_cache_token_num > 0) == (turn == 1)
        stats = small.stats()
        assert 0 < stats.prefix_host_hit_tokens <= stats.prefix_hit_tokens


def test_seeds(llm: LLM) -> None:
    hot = SamplingParams(temperature=1.5, seed=7, max_tokens=20, n=3)
    first, second = (llm.generate("Once", hot, use_tqdm=False) for _ in range(2))
    assert [answer(output) for output in first] == [answer(output) for output in second]
    assert len({answer(output)[1] for output in first}) > 1
    later = SamplingParams(temperature=1.5, seed=8, max_tokens=20)
    assert answer(llm.generate("Once", later, use_tqdm=False)[0]) == answer(first[1])


def test_no_seed_is_a_fresh_one(llm: LLM) -> None:
    texts = {
        answer(output)[1]
        for _ in range(6)
        for output in llm.generate(
            "Once", SamplingParams(temperature=2.0, max_tokens=20), use_tqdm=False
        )
    }
    assert len(texts) > 1


def test_stop_string(llm: LLM) -> None:
    ids, text = answer(ask(llm, QUESTIONS[1:2])[0])
    middle = text[3 : len(text) // 2 + 2]
    params = SamplingParams(temperature=0.0, max_tokens=40, stop=middle[1:])
    (output,) = ask(llm, QUESTIONS[1:2], params)
    cut_ids, cut = answer(output)
    assert cut == text[: text.index(middle[1:])]
    assert cut_ids == ids[: len(cut_ids)]
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    assert cut.startswith(tokenizer.decode(cut_ids))
    assert output.outputs is not None
    assert output.outputs.stop_reason == middle[1:]


def test_bad_words_and_bias(llm: LLM) -> None:
    _, text = answer(ask(llm, QUESTIONS[1:2])[0])
    word = text.split()[-1].strip(".")
    params = SamplingParams(temperature=0.0, max_tokens=40, bad_words=[word])
    assert word not in answer(ask(llm, QUESTIONS[1:2], params)[0])[1]
    bias = SamplingParams(
        temperature=0.0, max_tokens=3, logits_processors_args={"logit_bias": {100: 1000.0}}
    )
    assert answer(ask(llm, QUESTIONS[1:2], bias)[0])[0] == [100, 100, 100]


def test_min_tokens(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=40, min_tokens=30)
    ids, _ = answer(ask(llm, QUESTIONS[:1], params)[0])
    assert len(ids) >= 30


def test_logprobs_are_a_distribution(llm: LLM) -> None:
    size = llm.model_info.vocab_size
    with LLM(shipped_model(), enable_logprob=True, max_logprobs=-1) as own:
        params = SamplingParams(temperature=0.0, max_tokens=3, logprobs=-1, ignore_eos=True)
        (output,) = own.generate("Hello", params, use_tqdm=False)
    assert output.outputs is not None
    for entry, token in zip(output.outputs.logprobs or [], output.outputs.token_ids, strict=True):
        assert len(entry) == size
        assert math.isclose(sum(math.exp(p.logprob) for p in entry.values()), 1.0, rel_tol=1e-3)
        assert entry[token].rank == 1
        assert sorted(p.rank or 0 for p in entry.values())[-1] <= size


def test_true_ranks(llm: LLM) -> None:
    params = SamplingParams(temperature=3.0, seed=3, max_tokens=30, logprobs=20, ignore_eos=True)
    (output,) = llm.generate("Hello", params, use_tqdm=False)
    assert output.outputs is not None
    ranks = set()
    for entry, token in zip(output.outputs.logprobs or [], output.outputs.token_ids, strict=True):
        best = sorted(entry.values(), key=lambda p: -p.logprob)
        assert [p.rank for p in best[:20]] == list(range(1, 21))
        ranks.add(entry[token].rank)
    assert max(rank or 0 for rank in ranks) > 20


def test_metrics(llm: LLM) -> None:
    before = time.time()
    (output,) = ask(llm, QUESTIONS[:1])
    after = time.time()
    own = output.metrics
    assert own is not None
    times = [
        before,
        own.arrival_time,
        own.preprocess_end_time,
        own.engine_get_req_time,
        own.inference_start_time,
        own.engine_recv_first_token_time,
        own.engine_recv_latest_token_time,
        after,
    ]
    assert times == sorted(times)  # type: ignore[type-var]
    assert own.prompt_token_ids_len == len(output.prompt_token_ids)


def test_one_bad_request_in_a_batch(llm: LLM) -> None:
    limit = llm.model_info.max_model_len
    prompts: list[Any] = ["Hello", [5] * limit, [2**40], "Hello"]
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert [output.error_code for output in outputs] == [200, 400, 400, 200]
    assert answer(outputs[0]) == answer(outputs[3])


def test_a_limit_of_the_engine_is_reported(llm: LLM) -> None:
    params = SamplingParams(max_tokens=2, bad_words_token_ids=[10**6])
    (output,) = llm.generate("Hello", params, use_tqdm=False)
    assert output.error_code == 400
    assert "1000000" in (output.error_msg or "")


def test_mixed_load_with_little_memory() -> None:
    """Many requests on KV for few of them, some cancelled: none lost, all as if alone."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    prompts = [[rng.randrange(5, 2000) for _ in range(rng.randint(1, 90))] for _ in range(150)]
    params = [
        SamplingParams(
            temperature=rng.choice([0.0, 1.0, 2.0]),
            top_k=rng.choice([0, 5, 50]),
            top_p=rng.choice([1.0, 0.9]),
            repetition_penalty=rng.choice([1.0, 1.2]),
            seed=rng.randrange(1000),
            max_tokens=rng.randint(1, 60),
            ignore_eos=rng.random() < 0.5,
        )
        for _ in prompts
    ]
    with LLM(shipped_model(), block_size=16) as llm:
        alone = [
            answer(llm.generate(prompt, own, use_tqdm=False)[0])
            for prompt, own in zip(prompts[:25], params[:25], strict=True)
        ]
    options = {"block_size": 16, "max_model_len": 160, "num_gpu_blocks_override": 60}
    with LLM(shipped_model(), **options) as llm:
        free = llm.stats().free_kv_blocks
        names = [{"prompt_token_ids": p, "request_id": str(i)} for i, p in enumerate(prompts)]
        cancelled = rng.sample(range(25, len(prompts)), 20)
        timer = threading.Timer(0.05, llm.abort, [[str(i) for i in cancelled]])
        timer.start()
        outputs = llm.generate(names, params, use_tqdm=False)
        timer.join()
        assert [answer(output) for output in outputs[:25]] == alone
        assert all(output.finished and output.error_code == 200 for output in outputs)
        for place, output in enumerate(outputs):
            assert output.outputs is not None
            if place not in cancelled:
                assert output.outputs.finish_reason in ("stop", "length")
        assert llm.request_ids() == []
        assert llm.stats().free_kv_blocks == free
        assert llm.stats().running_requests == 0


def test_calls_from_many_threads(llm: LLM) -> None:
    expected = [answer(output) for output in ask(llm, QUESTIONS)]
    wrong = []

    def work() -> None:
        for _ in range(3):
            got = [answer(output) for output in ask(llm, QUESTIONS)]
            if got != expected:
                wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_close_gives_the_memory_back() -> None:
    def cycle() -> None:
        with LLM(shipped_model(), kv_cache_bytes=64 << 20) as own:
            own.generate([[7] * 500] * 8, SamplingParams(max_tokens=50), use_tqdm=False)

    cycle()
    gc.collect()
    before = resident_bytes()
    for _ in range(4):
        cycle()
    gc.collect()
    assert resident_bytes() - before < 32 << 20
