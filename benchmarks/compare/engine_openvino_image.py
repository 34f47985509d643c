"""OpenVINO GenAI's pipeline for images, for worker.py. MODEL: a folder that optimum-cli wrote."""

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
        self._pipe = genai.VLMPipeline(
            setup.model, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=setup.threads
        )

    def show(self, picture, text, clock) -> None:
        """The pipeline takes strings and puts the image's marks before them."""
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = 1
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = False
        letters = "".join(chr(ord("a") + token % 16) for token in text)  # a token each
        self._pipe.generate(letters, images=[ov.Tensor(picture)], generation_config=config)
        clock.token()
