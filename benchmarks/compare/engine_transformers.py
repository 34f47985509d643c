"""transformers with torch, for worker.py: bfloat16, a static cache, one request at a time; on a GPU
with compiled steps (torch.compile with CUDA graphs, what generate() does with such a cache)."""

import torch
from setup import Setup
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
    def __init__(self, setup: Setup) -> None:
        if setup.weights != "bf16":
            raise SystemExit("transformers is compared in bf16 only")
        if setup.device != "cpu" and not torch.cuda.is_available():
            raise SystemExit("this torch finds no CUDA device")
        torch.set_num_threads(setup.threads)
        self._device = setup.device
        model = AutoModelForCausalLM.from_pretrained(setup.model, dtype=torch.bfloat16)
        self._model = model.to(setup.device)
        self._model.generation_config.eos_token_id = None
        self.vocab_size = self._model.config.vocab_size

    @torch.inference_mode()
    def run(self, work, clock) -> None:
        if len(work) > 1:
            raise SystemExit("transformers is compared with one request at a time")
        ids, output = work[0]
        self._model.generate(
            torch.tensor([ids], device=self._device),
            attention_mask=torch.ones((1, len(ids)), dtype=torch.long, device=self._device),
            max_new_tokens=output,
            min_new_tokens=output,
            do_sample=False,
            pad_token_id=0,
            cache_implementation="static",
            disable_compile=self._device == "cpu",
            streamer=Times(clock),
        )
