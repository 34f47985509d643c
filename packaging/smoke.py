"""What a wheel must do where there is nothing but it: run by packaging/build_wheels."""

import ctypes
import shutil

import headrace
from headrace import LLM, SamplingParams, shipped_model

for compiler in ("cc", "c++", "gcc", "g++", "clang"):
    assert shutil.which(compiler) is None, f"{compiler} is in PATH: this would prove little"

with LLM(model=shipped_model(), max_model_len=256) as llm:
    params = SamplingParams(temperature=0, max_tokens=16)
    prompts = ["What is 12 + 7?", "Count from 3 to 9."]
    alone = [llm.generate(prompt, params)[0].outputs.token_ids for prompt in prompts]
    together = [output.outputs.token_ids for output in llm.generate(prompts, params)]
    assert together == alone, (together, alone)
    assert all(together), together
    # An exception has to find its way from the library through the module.
    (refused,) = llm.generate([[10**8]], params)
    assert refused.error_code, refused

library = ctypes.CDLL(headrace.get_library())
library.headrace_version.restype = ctypes.c_char_p
print(f"headrace {library.headrace_version().decode()}: {together[0]}")
