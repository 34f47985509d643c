"""1,000 mixed requests with KV memory for about a tenth of them: all finish, none is lost, memory
goes back to where it was, and every token and log-probability is bit-identical to running the
request alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

from headrace import _core, shipped_model

REQUESTS = 1000
SEED = 20260
BLOCK = 16


@dataclass
class Job:
    prompt: list[int]
    sampling: dict
    priority: int
    cancel_after: int | None  # cancel once this many tokens have come


def make_jobs() -> list[Job]:
    rng = random.Random(SEED)
    shared = [[rng.randrange(10, 2000) for _ in range(n)] for n in (20, 45)]
    jobs = []
    for index in range(REQUESTS):
        head = rng.choice([[], [], [], [], *shared])
        prompt = head + [rng.randrange(10, 2000) for _ in range(rng.randint(1, 20))]
        sampling = {
            "max_tokens": rng.choice([rng.randint(1, 8), rng.randint(40, 56)]),
            "temperature": rng.choice([0.0, 0.7, 1.3]),
            "top_p": rng.choice([1.0, 0.9]),
            "top_k": rng.choice([0, 20]),
            "seed": index,
            "ignore_eos": rng.random() < 0.9,
            "repetition_penalty": rng.choice([1.0, 1.1]),
            "logprobs": rng.choice([None, 2]),
        }
        cancel = rng.randint(0, 10) if rng.random() < 0.1 else None
        jobs.append(Job(prompt, sampling, rng.choice([0, 0, 0, 1]), cancel))
    return jobs


def start(engine: _core.Engine, **options: object) -> None:
    path = str(shipped_model())
    model_options = _core.ModelOptions(path=path, max_model_len=512, block_size=BLOCK, **options)
    engine.install_model("m", model_options)
    engine.start_model("m")


def submit(engine: _core.Engine, job: Job) -> _core.Request:
    return engine.submit(
        "m",
        prompt_token_ids=job.prompt,
        sampling=_core.SamplingParams(**job.sampling),
        priority=job.priority,
    )


class Collected:
    """What one request gave: ids, and log-probabilities as exact numbers."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[tuple] = []
        self.end: _core.FinishReason | None = None

    def take(self, out: _core.Output) -> None:
        self.tokens += out.token_ids
        self.logprobs += [(p.token, p.logprob, p.rank, tuple(p.top)) for p in out.logprobs]
        if out.finished:
            assert self.end in (None, out.finish_reason)
            self.end = out.finish_reason


def run_together(engine: _core.Engine, jobs: list[Job]) -> list[Collected]:
    requests = [submit(engine, job) for job in jobs]
    queues = [request.results() for request in requests]
    selector = _core.OutputSelector()
    for tag, queue in enumerate(queues):
        selector.add(queue, tag)
    found = [Collected() for _ in jobs]
    open_requests = set(range(len(jobs)))
    for tag, job in enumerate(jobs):
        if job.cancel_after == 0:
            requests[tag].cancel()
    while open_requests:
        ready = selector.wait(60.0)
        assert ready, f"{len(open_requests)} requests never finished"
        for tag in ready:
            out = queues[tag].get_nowait()
            if out is None:
                continue
            found[tag].take(out)
            limit = jobs[tag].cancel_after
            if limit is not None and len(found[tag].tokens) >= limit:
                requests[tag].cancel()
            if found[tag].end is not None:
                open_requests.discard(tag)
    return found


def run_alone(jobs: list[Job]) -> list[Collected]:
    engine = _core.Engine()
    start(engine, num_kv_blocks=64, max_num_seqs=1, enable_prefix_caching=False, num_threads=1)
    found = []
    for job in jobs:
        collected = Collected()
        queue = submit(engine, job).results()
        while collected.end is None:
            out = queue.get(60.0)
            assert out is not None
            collected.take(out)
        found.append(collected)
    engine.close()
    return found


def check_same(jobs: list[Job], together: list[Collected], alone: list[Collected]) -> None:
    for index, (job, many, one) in enumerate(zip(jobs, together, alone, strict=True)):
        where = f"request {index}, seed {SEED}"
        if many.end == _core.FinishReason.ABORT:
            assert job.cancel_after is not None, where
            assert many.tokens == one.tokens[: len(many.tokens)], where
            assert many.logprobs == one.logprobs[: len(many.logprobs)], where
        else:
            assert many.tokens == one.tokens, where
            assert many.logprobs == one.logprobs, where
            assert many.end == one.end, where


def test_a_thousand_mixed_requests_in_little_memory() -> None:
    jobs = make_jobs()
    tokens = sum(len(job.prompt) + job.sampling["max_tokens"] for job in jobs)
    blocks = tokens // 15 // BLOCK
    engine = _core.Engine()
    start(engine, num_kv_blocks=blocks, max_num_seqs=512, max_num_batched_tokens=2048)
    memory = [engine.model_stats("m").memory_bytes]
    rounds = []
    for number in (1, 2):  # the second over a warm prefix cache
        rounds.append(run_together(engine, jobs))
        stats = engine.model_stats("m")
        assert stats.free_kv_blocks == blocks, "a block leaked"
        assert stats.waiting_requests == stats.running_requests == 0
        assert stats.finished_requests == number * len(jobs)
        memory.append(stats.memory_bytes)
    assert memory == memory[:1] * 3, "a step took memory"
    assert stats.preemptions > 0, "memory was never short: the test shows nothing"
    assert stats.prefix_hit_tokens > 0
    engine.close()
    alone = run_alone(jobs)
    for together in rounds:
        check_same(jobs, together, alone)
