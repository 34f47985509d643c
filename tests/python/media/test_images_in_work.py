"""Images that are decoded at once: there is room for so many, in turn."""

from __future__ import annotations

import threading
import time

from headrace.media.pictures import InWork


def test_a_large_one_has_its_turn() -> None:
    """Though small ones go on coming, for which there is room before."""
    work, order = InWork(10), []

    def decode(name: str, count: int) -> None:
        with work.share(count):
            order.append(name)

    threads = []
    with work.share(3):
        for name, count in (("large", 50), ("small", 3)):
            threads.append(threading.Thread(target=decode, args=(name, count)))
            threads[-1].start()
            deadline = time.monotonic() + 60
            while len(work._turns) < len(threads) and name not in order:
                assert time.monotonic() < deadline
                time.sleep(0.001)
        order.append("first")
    for thread in threads:
        thread.join(60)
    assert order == ["first", "large", "small"]
    with work.share(10):
        pass
