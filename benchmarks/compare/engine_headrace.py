"""Headrace, for worker.py."""

from headrace import LLM, SamplingParams

QUANTIZATION = {"bf16": None, "int8": "wint8", "int4": "wint4", "a8w8": "a8w8"}


class Engine:
    def __init__(self, model: str, weights: str, threads: int, context: int, requests: int) -> None:
        self._llm = LLM(
            model,
            num_threads=threads,
            max_model_len=context,
            max_num_seqs=requests,
            max_num_batched_tokens=512,
            enable_prefix_caching=False,
            quantization=QUANTIZATION[weights],
        )
        self.vocab_size = self._llm.model_info.vocab_size

    def run(self, work, clock) -> None:
        params = [SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for _, n in work]
        prompts = [ids for ids, _ in work]
        for items in self._llm.generate(prompts, params, use_tqdm=False, stream=True):
            for item in items:
                if item is not None:
                    clock.token(len(item.outputs.token_ids))
