"""A page in headless Chromium, driven through its debugging pipe."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe"
_SECONDS = 120


class Page:
    """`with Page(url, folder) as page`; `folder`: for the browser's profile."""

    def __init__(self, url: str, folder: Path, width: int = 1100, height: int = 800) -> None:
        self._ids = itertools.count(1)
        self._messages: list[str] = []
        from_here, self._to = os.pipe()
        self._from, to_here = os.pipe()
        self._browser = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$0" {_FLAGS} --user-data-dir="$1" 3<&{from_here} 4>&{to_here} 2>/dev/null',
                str(CHROMIUM),
                str(folder),
            ],
            pass_fds=(from_here, to_here),
        )
        os.close(from_here)
        os.close(to_here)
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self._call("Page.enable")
        self.resize(width, height)
        self._call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._browser.kill()
        self._browser.wait()
        os.close(self._to)
        os.close(self._from)

    def evaluate(self, code: str) -> Any:
        """The value of an expression. Raises RuntimeError for an exception in it."""
        done = self._call(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            raise RuntimeError(str(done["exceptionDetails"])[:1000])
        return done["result"].get("value")

    def until(self, condition: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, condition
            time.sleep(0.05)

    def type(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        texts = {"Enter": "\r"}
        codes = {"Enter": 13, "Escape": 27}
        common = {"key": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": texts[key]} if key in texts else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", **common)

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def dark(self) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **params: Any) -> Any:
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        rest = b""
        while True:
            data = os.read(self._from, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            *whole, rest = (rest + data).split(b"\0")
            for text in whole:
                answer = json.loads(text)
                if answer.get("id") == number:
                    if "error" in answer:
                        raise RuntimeError(str(answer["error"]))
                    return answer["result"]
