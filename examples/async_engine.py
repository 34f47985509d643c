"""Several requests at once, streamed by asyncio: each token is shown when it is there.

    python examples/async_engine.py [MODEL] [PROMPT ...]

MODEL is a folder as published on Hugging Face; without one, the model shipped with Headrace runs.
"""

import asyncio
import sys

import headrace
from headrace import Engine, GenerationConfig

PROMPTS = ["What is the capital of Italy?", "What is the capital of France?", "Who are you?"]


async def stream(engine: Engine, number: int, prompt: str) -> str:
    """Shows one request's text as it comes; gives all of it."""
    config = GenerationConfig(temperature=0, max_tokens=32)
    text = ""
    # Leaving the block, by an exception or a cancelled task too, ends the request.
    async with engine.submit("m", f"User: {prompt}\nAssistant: ", config) as request:
        async for output in request.results():
            text += output.text
            if output.text:
                print(f"[{number}] {output.text!r}", flush=True)
            if output.error_code not in ("ok", "cancelled"):
                raise RuntimeError(output.error_message)
    stats = request.results().stats()
    seconds = stats.first_token_time - stats.arrival_time
    print(f"[{number}] {stats.generated_tokens} tokens, the first after {seconds * 1e3:.1f} ms")
    return text


async def main(model: str, prompts: list[str]) -> None:
    with Engine() as engine:
        # Loading takes long, and waits without the GIL: in a thread it doesn't stop the loop.
        await asyncio.to_thread(engine.install_model, "m", model)
        await asyncio.to_thread(engine.start_model, "m")
        tasks = [stream(engine, number, prompt) for number, prompt in enumerate(prompts, 1)]
        texts = await asyncio.gather(*tasks)
        await asyncio.to_thread(engine.stop_model, "m")
    for prompt, text in zip(prompts, texts, strict=True):
        print(f"\n{prompt}\n  {text.strip()}")


if __name__ == "__main__":
    model = sys.argv[1] if len(sys.argv) > 1 else headrace.shipped_model()
    asyncio.run(main(model, sys.argv[2:] or PROMPTS))
