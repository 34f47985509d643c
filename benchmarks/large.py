"""A model of published size with random weights: how it loads, and how fast it answers.

    python benchmarks/large.py --shape ernie-4.5-21b-a3b [--quantization wint4] [--tokens 32]

Only config.json and a tokenizer are written: load_choices="dummy" makes the weights while it packs
them. Reports parameters, the packed weights' bytes, the peak of resident memory while the model
loads as a share of them, and decoding of one request: the bytes that a token reads against a plain
loop over memory, measured before and after."""

import argparse
import resource
import tempfile
import threading
import time
from pathlib import Path

import common
import make_checkpoint
from headrace import LLM, SamplingParams


def resident() -> int:
    """Bytes of this process in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Peak:
    """The largest resident() while the block ran, above what it was before."""

    def __enter__(self) -> "Peak":
        self._before = resident()
        self.bytes = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            self.bytes = max(self.bytes, resident() - self._before)

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="ernie-4.5-21b-a3b", choices=make_checkpoint.SHAPES)
    parser.add_argument("--quantization", default="wint4")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as cores")
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = make_checkpoint.write_config(args.shape, Path(temporary) / args.shape)
        begin = time.perf_counter()
        with Peak() as peak:
            llm = LLM(
                str(folder),
                load_choices="dummy",
                quantization=args.quantization,
                num_threads=args.threads,
                max_model_len=1024,
                num_gpu_blocks_override=32,
            )
        load = time.perf_counter() - begin
    with llm:
        info = llm.model_info
        limits = common.measure_limits(info.num_threads)
        rate = decode_rate(llm, args.tokens)
        after = common.measure_limits(info.num_threads)
        read = (limits.read + after.read) / 2
        common.report(
            shape=args.shape,
            parameters=info.num_parameters,
            active_parameters=info.num_active_parameters,
            weight_gb=round(info.weight_bytes / 1e9, 2),
            load_s=round(load, 1),
            peak_over_weights=round(peak.bytes / info.weight_bytes, 3),
            token_weight_gb=round(info.token_weight_bytes / 1e9, 3),
            decode_tokens_s=round(rate, 2),
            of_read_bandwidth=round(rate * info.token_weight_bytes / read, 3),
        )


def decode_rate(llm: LLM, tokens: int) -> float:
    """Tokens a second of one request, without its prompt."""
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    begin = time.perf_counter()
    updates = []  # when each came, and with how many tokens
    for outputs in llm.generate([5, 6, 7, 8], params, stream=True, use_tqdm=False):
        count = sum(len(one.outputs.token_ids) for one in outputs if one is not None)
        updates.append((time.perf_counter(), count))
    later = sum(count for _, count in updates[1:])
    if later == 0:  # a tiny model's come at once: with the prompt's time, then
        return updates[0][1] / (updates[0][0] - begin)
    return later / (updates[-1][0] - updates[0][0])


if __name__ == "__main__":
    main()
