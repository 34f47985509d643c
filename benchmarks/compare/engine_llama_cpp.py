"""llama.cpp through llama-cpp-python's C functions, for worker.py: all requests share batches."""

import ctypes

import llama_cpp as c
from setup import Setup

ALL_LAYERS = 1 << 16


class Engine:
    def __init__(self, setup: Setup) -> None:
        on_gpu = setup.device != "cpu"
        if on_gpu and not c.llama_supports_gpu_offload():
            raise SystemExit("this llama-cpp-python was built without CUDA (-DGGML_CUDA=on)")
        c.llama_log_set(_silent, ctypes.c_void_p(0))
        c.llama_backend_init()
        where = c.llama_model_default_params()
        where.n_gpu_layers = ALL_LAYERS if on_gpu else 0
        self._model = c.llama_model_load_from_file(setup.model.encode(), where)
        params = c.llama_context_default_params()
        params.n_ctx = setup.context * setup.requests
        self._budget = params.n_batch = params.n_ubatch = setup.budget
        params.n_seq_max = setup.requests
        params.n_threads = params.n_threads_batch = setup.threads
        params.flash_attn_type = c.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = c.llama_init_from_model(self._model, params)
        self._sampler = c.llama_sampler_init_greedy()
        self._batch = c.llama_batch_init(setup.budget, 0, 1)
        self.vocab_size = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self._model))

    def _add(self, token: int, position: int, sequence: int, sample: bool) -> None:
        i = self._batch.n_tokens
        self._batch.token[i], self._batch.pos[i] = token, position
        self._batch.n_seq_id[i], self._batch.seq_id[i][0] = 1, sequence
        self._batch.logits[i] = sample
        self._batch.n_tokens += 1

    def _decode(self) -> dict[int, int]:
        """Runs the batch; the token of every sequence that samples."""
        if c.llama_decode(self._context, self._batch) != 0:
            raise SystemExit("llama_decode failed")
        found = {}
        for i in range(self._batch.n_tokens):
            if self._batch.logits[i]:
                token = c.llama_sampler_sample(self._sampler, self._context, i)
                found[self._batch.seq_id[i][0]] = token
        self._batch.n_tokens = 0
        return found

    def run(self, work, clock) -> None:
        c.llama_memory_clear(c.llama_get_memory(self._context), True)
        self._batch.n_tokens = 0
        last: dict[int, int] = {}

        def step() -> None:
            got = self._decode()
            last.update(got)
            clock.token(len(got))

        for sequence, (ids, _) in enumerate(work):
            for position, token in enumerate(ids):
                self._add(token, position, sequence, position + 1 == len(ids))
                if self._batch.n_tokens == self._budget:
                    step()
        if self._batch.n_tokens:
            step()
        for made in range(1, max(output for _, output in work)):
            for sequence, (ids, output) in enumerate(work):
                if made < output:
                    self._add(last[sequence], len(ids) + made - 1, sequence, True)
            step()


@c.llama_log_callback
def _silent(level, text, user_data):
    pass
