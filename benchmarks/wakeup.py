"""From the publication of a token to the moment when a waiting Python consumer has it.

    python benchmarks/wakeup.py --shape qwen2-0.5b --output 64

"thread": one waits in ResultQueue.get(); "selector": one waits for all requests; "asyncio": a
task for each request, in one event loop. Samples that a later token overtook are left out. The
way from the end of a step to the publication is in benchmarks/wakeup.cc, for C++ consumers."""

import asyncio
import time

import common
from headrace import Engine, GenerationConfig, ModelOptions, Output, Request, ResultQueue, Selector


class Latencies:
    """Of one kind of consumer, in microseconds."""

    def __init__(self) -> None:
        self.samples: list[float] = []

    def note(self, queue: ResultQueue, taken: int) -> None:
        now, stats = time.time(), queue.stats()
        if stats.generated_tokens == taken:
            self.samples.append((now - stats.last_token_time) * 1e6)

    def report(self, consumer: str, requests: int) -> None:
        ordered = sorted(self.samples)
        shares = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "max_us": 1.0}
        figures = {
            name: round(ordered[int(share * (len(ordered) - 1))], 1) if ordered else None
            for name, share in shares.items()
        }
        common.report(consumer=consumer, requests=requests, samples=len(ordered), **figures)


def by_thread(requests: list[Request], latencies: Latencies) -> None:
    queue, taken = requests[-1].results(), 0
    for output in queue:
        taken += len(output.token_ids)
        latencies.note(queue, taken)


def by_selector(requests: list[Request], latencies: Latencies) -> None:
    selector = Selector()
    taken = dict.fromkeys(range(len(requests)), 0)
    for tag, request in enumerate(requests):
        selector.add(request.results(), tag)
    while taken:
        for tag in selector.wait():
            queue = requests[tag].results()
            while (output := queue.get_nowait()) is not None:
                taken[tag] += len(output.token_ids)
                latencies.note(queue, taken[tag])
                if output.finished:
                    selector.remove(tag)
                    del taken[tag]
                    break


def by_asyncio(requests: list[Request], latencies: Latencies) -> None:
    async def read(queue: ResultQueue) -> None:
        taken = 0
        output: Output
        async for output in queue:
            taken += len(output.token_ids)
            latencies.note(queue, taken)

    async def main() -> None:
        await asyncio.gather(*(read(request.results()) for request in requests))

    asyncio.run(main())


CONSUMERS = {"thread": by_thread, "selector": by_selector, "asyncio": by_asyncio}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8])
    args = parser.parse_args()
    folder, _ = common.checkpoint(args)
    config = GenerationConfig(temperature=0, max_tokens=args.output, ignore_eos=True)
    with Engine() as engine:
        options = ModelOptions(path=str(folder), num_threads=args.threads, max_model_len=4096)
        engine.install_model("m", options)
        engine.start_model("m")
        for count in args.requests:
            for name, consume in CONSUMERS.items():
                latencies = Latencies()
                for _ in range(args.repeats):
                    requests = [engine.submit("m", [3 + i], config) for i in range(count)]
                    consume(requests, latencies)
                latencies.report(name, count)


if __name__ == "__main__":
    main()
