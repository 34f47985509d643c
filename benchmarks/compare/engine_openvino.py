"""OpenVINO GenAI, for worker.py. MODEL: a folder that optimum-cli wrote, or a GGUF file."""

import numpy as np
import openvino as ov
import openvino_genai as genai
from setup import Setup


class Engine:
    def __init__(self, setup: Setup) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = setup.budget
        scheduler.max_num_seqs = setup.requests
        scheduler.enable_prefix_caching = False
        scheduler.cache_size = 1
        self._pipe = genai.ContinuousBatchingPipeline(
            setup.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": setup.threads}
        )
        self.vocab_size = 30000

    def run(self, work, clock) -> None:
        handles = []
        for number, (ids, output) in enumerate(work):
            config = genai.GenerationConfig()
            config.max_new_tokens = config.min_new_tokens = output
            config.ignore_eos = True
            config.do_sample = False
            tensor = ov.Tensor(np.array([ids], dtype=np.int64))
            handles.append(self._pipe.add_request(number, tensor, config))
        while self._pipe.has_non_finished_requests():
            self._pipe.step()
            for handle in handles:
                while handle.can_read():
                    for output in handle.read().values():
                        clock.token(len(output.generated_ids))
