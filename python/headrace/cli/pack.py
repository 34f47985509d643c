"""headrace pack: write a model's weights the way this machine reads them."""

from __future__ import annotations

import argparse
from typing import Any

from headrace.cli.options import model_path
from headrace.cli.usage import UsageError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "pack",
        help="pack a model's weights for quick starts",
        description="Packs a model's weights. OUT is a file that ends in .headrace, for "
        "--packed-weights, or a folder, which becomes a model of its own.",
    )
    parser.add_argument("model", nargs="?", help="folder of the model, or its id on the hub")
    parser.add_argument("out", metavar="OUT", help="file or folder to write")
    parser.add_argument("-m", "--model", dest="named_model", metavar="MODEL", help="the same")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--quantization", help="wint8 or wint4")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads")
    parser.add_argument(
        "--tensor-parallel-size", type=int, default=1, help="devices that will share the model"
    )
    parser.add_argument(
        "--enable-expert-parallel", action="store_true", help="with whole experts on each of them"
    )
    parser.add_argument(
        "--skip-if-current", action="store_true", help="do nothing if OUT fits the model already"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing: say whether the file OUT can be loaded"
    )
    parser.add_argument(
        "--force", action="store_true", help="overwrite files in OUT that have other contents"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from headrace import packed

    if args.model is None and args.named_model is None:
        raise UsageError("name the model to pack")
    devices = {
        "tensor_parallel_size": args.tensor_parallel_size,
        "enable_expert_parallel": args.enable_expert_parallel,
    }
    if args.check:
        packed.check(model_path(args), args.out, dtype=args.dtype, **devices)
        print(f"{args.out} fits")
        return 0
    report = packed.pack(
        model_path(args),
        args.out,
        dtype=args.dtype,
        quantization=args.quantization,
        num_threads=args.threads,
        skip_if_current=args.skip_if_current,
        overwrite=args.force,
        **devices,
    )
    if report is None:
        print(f"{args.out} is current")
    else:
        print(
            f"{report.file}: {report.num_tensors} tensors, {report.file_bytes / 2**20:.1f} MiB, "
            f"{report.dtype} in the layout {report.layout}, {report.seconds:.1f} s"
        )
    return 0
