"""transformers with torch and an image before the text, for worker.py: bfloat16, on the CPU."""

import torch
from setup import Setup, image_marks
from transformers import AutoImageProcessor, AutoModelForImageTextToText


class Engine:
    def __init__(self, setup: Setup) -> None:
        if setup.weights != "bf16":
            raise SystemExit("transformers is compared in bf16 only")
        torch.set_num_threads(setup.threads)
        self._processor = AutoImageProcessor.from_pretrained(setup.model)
        self._model = AutoModelForImageTextToText.from_pretrained(setup.model, dtype=torch.bfloat16)
        self._model.generation_config.eos_token_id = None
        self._marks = image_marks(setup.model)

    @torch.inference_mode()
    def show(self, picture, text, clock) -> None:
        image = self._processor(picture, return_tensors="pt")
        begin, pad, end = self._marks
        rows = int(image["image_grid_thw"].prod()) // self._processor.merge_size**2
        ids = torch.tensor([[begin, *[pad] * rows, end, *text]])
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=(ids == pad).to(torch.int),
            pixel_values=image["pixel_values"],
            image_grid_thw=image["image_grid_thw"],
            max_new_tokens=1,
            min_new_tokens=1,
            do_sample=False,
            pad_token_id=0,
        )
        clock.token()
