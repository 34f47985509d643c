"""Loading: anonymous memory peaks under 1.15 x the packed weights (the mapped file is file cache),
also where several devices load their shares at once, and closing gives it back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20

CHILD = """
import json, sys, threading, time
from headrace import _core

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

peak, done = 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, anonymous())
        time.sleep(0.001)

engine = _core.Engine()
before = anonymous()
thread = threading.Thread(target=watch)
thread.start()
options = _core.ModelOptions(path=sys.argv[1], max_model_len=256, max_num_seqs=4, dtype=sys.argv[2],
                             device="cpu", num_threads=4, tensor_parallel_size=int(sys.argv[3]))
engine.install_model("m", options)
done = True
thread.join()
info = engine.model_info("m")
engine.release_model("m")
print(json.dumps({"peak": peak - before, "weights": info.weight_bytes, "left": anonymous() - before,
                  "scratch": info.scratch_bytes, "threads": info.num_threads}))
"""


def make_checkpoint(folder: Path) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import make_checkpoint as maker

    small = dict(maker.SHAPES["smoke"], vocab_size=16384, hidden_size=768, num_hidden_layers=8)
    small |= {"intermediate_size": 3072, "num_attention_heads": 12, "head_dim": 64}
    maker.SHAPES["memory-test"] = small
    maker.write("memory-test", folder)


def test_peak_memory_at_load_and_after_release(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    whole = {}
    for dtype, ranks in (("auto", 1), ("float32", 1), ("auto", 2), ("float32", 4)):
        out = subprocess.run(
            [sys.executable, "-c", CHILD, str(tmp_path), dtype, str(ranks)],
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(out.stdout)
        assert found["weights"] > 100 * MIB
        # What all devices have together is hardly more: norms, and what fills up layouts.
        assert found["weights"] <= 1.05 * whole.setdefault(dtype, found["weights"])
        # Packing may hold 1 MiB a thread; 8 MiB are for the interpreter and allocator.
        slack = found["scratch"] + found["threads"] * MIB + 8 * MIB
        assert found["peak"] <= 1.15 * found["weights"] + slack, (dtype, ranks, found)
        assert found["left"] <= 16 * MIB, (dtype, ranks, found)
