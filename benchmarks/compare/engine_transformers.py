"""transformers with torch, for worker.py: bfloat16, a static cache, left-padded batches."""

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer


class Times(BaseStreamer):
    def __init__(self, clock) -> None:
        self._clock, self._prompt = clock, True

    def put(self, value) -> None:
        if not self._prompt:
            self._clock.token(value.numel())
        self._prompt = False

    def end(self) -> None:
        pass


class Engine:
    def __init__(self, model: str, weights: str, threads: int, context: int, requests: int) -> None:
        if weights != "bf16":
            raise SystemExit("transformers is compared in bf16 only")
        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
        self._model.generation_config.eos_token_id = None
        self.vocab_size = self._model.config.vocab_size

    @torch.inference_mode()
    def run(self, work, clock) -> None:
        if len(work) > 1:
            raise SystemExit("transformers is compared with one request at a time")
        ids, output = work[0]
        self._model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones((1, len(ids)), dtype=torch.long),
            max_new_tokens=output,
            min_new_tokens=output,
            do_sample=False,
            pad_token_id=0,
            cache_implementation="static",
            disable_compile=True,
            streamer=Times(clock),
        )
