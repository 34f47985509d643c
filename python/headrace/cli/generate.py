"""headrace generate: continue prompts, or answer them with --chat."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from headrace.cli.media import add_media_files, media_counts, media_parts, multimodal_data
from headrace.cli.options import (
    add_engine_options,
    add_guiding_options,
    add_model_option,
    add_sampling_options,
    load_model,
    lora_options,
    lora_request,
    refuse_folder,
    sampling_params,
    tell_of_toy,
)
from headrace.cli.usage import UsageError

if TYPE_CHECKING:
    from headrace import LLM, CompletionOutput, RequestOutput, SamplingParams


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "generate",
        help="continue prompts",
        description="Continues each prompt; without one, standard input is the prompt.",
    )
    parser.add_argument("prompts", nargs="*", metavar="PROMPT")
    add_model_option(parser, positional=False)
    parser.add_argument("--chat", action="store_true", help="put each prompt in the chat template")
    parser.add_argument("--system", help="system message, with --chat")
    add_media_files(parser)
    parser.add_argument("--lines", action="store_true", help="each line of the input is a prompt")
    parser.add_argument("--json", action="store_true", help="print one JSON object per output")
    parser.add_argument("-n", "--n", type=int, default=1, help="outputs per prompt")
    parser.add_argument(
        "--logprobs",
        type=int,
        metavar="K",
        help="with --json: log-probabilities of each token and of the K likeliest ones",
    )
    add_sampling_options(parser)
    add_guiding_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.system is not None and not args.chat:
        raise UsageError("--system needs --chat")
    if args.logprobs is not None and not args.json:
        raise UsageError("--logprobs needs --json")
    refuse_folder(args.prompts)
    params = sampling_params(args, n=args.n, logprobs=args.logprobs)
    tell_of_toy(args)
    lora = lora_request(args)
    parts = media_parts(args)
    prompts = _requests(args, args.prompts or _standard_input(args.lines), parts)
    how = {"lora_request": lora}
    more = {**lora_options(args), **_logprob_options(args), **media_counts(parts)}
    with load_model(args, **more) as llm:
        if len(prompts) == args.n == 1 and not args.json:
            return _stream(llm, args, prompts, params, **how)
        show_bar = len(prompts) * args.n > 1 and sys.stderr.isatty()
        failed = False
        for output in _call(llm, args, prompts, params, use_tqdm=show_bar, **how):
            failed |= _print_result(output, args.json)
    return 1 if failed else 0


def _logprob_options(args: argparse.Namespace) -> dict[str, Any]:
    if args.logprobs is None:
        return {}
    return {"enable_logprob": True, "max_logprobs": -1}


def _standard_input(lines: bool) -> list[str]:
    """The prompts there; without `lines` one, less the line break that ends it."""
    if sys.stdin.isatty():
        print("Type the prompt; Ctrl-D at the start of a line ends it.", file=sys.stderr)
    text = sys.stdin.read()
    if lines:
        prompts = [line for line in text.splitlines() if line]
    else:
        prompts = [text.removesuffix("\n").removesuffix("\r")]
    if not any(prompts):
        raise UsageError("there is no prompt: pass one, or write it to standard input")
    return prompts


def _requests(
    args: argparse.Namespace, prompts: list[str], parts: list[dict[str, Any]]
) -> list[Any]:
    """What LLM.generate takes of the prompts, or LLM.chat; the model is shown `parts` with each."""
    if not args.chat:
        data = multimodal_data(parts)
        return [{"prompt": text, "multimodal_data": data} for text in prompts] if parts else prompts
    system = [] if args.system is None else [{"role": "system", "content": args.system}]
    return [
        [
            *system,
            {
                "role": "user",
                "content": [*parts, {"type": "text", "text": prompt}] if parts else prompt,
            },
        ]
        for prompt in prompts
    ]


def _call(
    llm: LLM, args: argparse.Namespace, prompts: list[Any], params: SamplingParams, **how: Any
) -> Any:
    return (llm.chat if args.chat else llm.generate)(prompts, params, **how)


def _stream(
    llm: LLM, args: argparse.Namespace, prompts: list[Any], params: SamplingParams, **how: Any
) -> int:
    failed = spoke = False
    for (output,) in _call(llm, args, prompts, params, stream=True, **how):
        failed |= _report_error(output)
        sys.stdout.write(output.outputs.text)
        sys.stdout.flush()
        spoke |= bool(output.outputs.text)
    if spoke or not failed:
        sys.stdout.write("\n")
    return 1 if failed else 0


def _print_result(output: RequestOutput, as_json: bool) -> bool:
    """Whether the request failed."""
    failed = _report_error(output)
    completion = output.outputs
    if not as_json:
        if not failed:
            print(completion.text)
        return failed
    record = {
        "prompt": output.prompt,
        "index": completion.index,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "prompt_tokens": len(output.prompt_token_ids),
        "cached_tokens": output.num_cached_tokens,
        "image_tokens": output.num_input_image_tokens,
        "video_tokens": output.num_input_video_tokens,
        "error_code": output.error_code,
        "error_msg": output.error_msg,
    }
    if completion.logprobs is not None:
        record["logprobs"] = _token_logprobs(completion)
    print(json.dumps(record, ensure_ascii=False))
    return failed


def _token_logprobs(completion: CompletionOutput) -> list[list[dict[str, Any]]]:
    """For each token: itself, then the likeliest ones."""
    return [
        [
            {"id": token, "text": one.decoded_token, "logprob": one.logprob, "rank": one.rank}
            for token, one in position.items()
        ]
        for position in completion.logprobs or ()
    ]


def _report_error(output: RequestOutput) -> bool:
    if output.error_code == 200:
        return False
    print(f"headrace: error: {output.error_msg}", file=sys.stderr)
    return True
