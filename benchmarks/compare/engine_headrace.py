"""Headrace, for worker.py."""

from typing import Any

from setup import Setup, image_marks

from headrace import LLM, SamplingParams

QUANTIZATION = {"bf16": None, "int8": "wint8", "int4": "wint4", "a8w8": "a8w8"}


class Engine:
    def __init__(self, setup: Setup) -> None:
        self._llm = LLM(
            setup.model,
            device=setup.device,
            num_threads=setup.threads,
            max_model_len=setup.context,
            max_num_seqs=setup.requests,
            max_num_batched_tokens=setup.budget,
            enable_prefix_caching=False,
            quantization=QUANTIZATION[setup.weights],
        )
        self._model = setup.model
        self.vocab_size = self._llm.model_info.vocab_size

    def run(self, work: list[tuple[list[int], int]], clock: Any) -> None:
        params = [SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for _, n in work]
        prompts = [ids for ids, _ in work]
        for items in self._llm.generate(prompts, params, use_tqdm=False, stream=True):
            for item in items:
                if item is not None:
                    clock.token(len(item.outputs.token_ids))

    def show(self, picture: Any, text: list[int], clock: Any) -> None:
        prompt = {
            "prompt_token_ids": [*image_marks(self._model), *text],
            "multi_modal_data": {"image": [picture]},
        }
        params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
        self._llm.generate(prompt, params, use_tqdm=False)
        clock.token()
