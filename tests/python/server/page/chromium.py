"""Pages in headless Chromium, driven through its debugging pipe."""

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
_SECONDS = 60
_KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowDown": (40, "")}


class Browser:
    """`with Browser(folder) as browser`; `folder`: for its profile."""

    def __init__(self, folder: Path) -> None:
        self._ids = itertools.count(1)
        self._rest = b""
        from_here, self._to = os.pipe()
        self._from, to_here = os.pipe()
        self._process = subprocess.Popen(
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

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def profile(self) -> str:
        """A new one, which shares nothing with others: its id, for `open`."""
        context: str = self.call("Target.createBrowserContext")["browserContextId"]
        return context

    def download_to(self, profile: str, folder: Path) -> None:
        self.call(
            "Browser.setDownloadBehavior",
            behavior="allow",
            browserContextId=profile,
            downloadPath=str(folder),
        )

    def open(self, url: str, profile: str) -> Page:
        target = self.call("Target.createTarget", url="about:blank", browserContextId=profile)
        session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)[
            "sessionId"
        ]
        return Page(self, session, url)

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            got = os.read(self._from, 1 << 20)
            if not got:
                raise RuntimeError("the browser has ended")
            *whole, self._rest = (self._rest + got).split(b"\0")
            for text in whole:
                answer = json.loads(text)
                if answer.get("id") == number:
                    if "error" in answer:
                        raise RuntimeError(str(answer["error"]))
                    return answer["result"]


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str, url: str) -> None:
        self._browser = browser
        self._session = session
        self._call("Page.enable")
        self.go(url)

    def forget(self, origin: str) -> None:
        """As if new: an empty page, with nothing stored."""
        self.evaluate("document.URL === 'about:blank' || sessionStorage.clear()")
        self.go("about:blank")
        self._call("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.resize(1100, 800)
        self.scheme("light")
        self.offline(False)

    def go(self, url: str) -> None:
        self.evaluate("window.isOld = true")
        self._call("Page.navigate", url=url)
        self.until("!window.isOld && document.readyState === 'complete'")

    def reload(self) -> None:
        self.evaluate("window.isOld = true")
        self._call("Page.reload")
        self.until("!window.isOld && document.readyState === 'complete'")

    def close(self) -> None:
        self._call("Page.close")

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
        while not self._holds(condition):
            assert time.monotonic() < deadline, condition
            time.sleep(0.02)

    def _holds(self, condition: str) -> Any:
        try:
            return self.evaluate(condition)
        except RuntimeError as error:
            if "context" in str(error):  # the page is just being left
                return False
            raise

    def type(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        code, written = _KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": written} if written else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", **common)

    def choose(self, selector: str, *files: Path) -> None:
        """Files for an <input type=file>."""
        root = self._call("DOM.getDocument")["root"]["nodeId"]
        node = self._call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self._call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def offline(self, is_off: bool) -> None:
        speeds = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._call("Network.enable")
        self._call("Network.emulateNetworkConditions", offline=is_off, **speeds)

    def scheme(self, name: str) -> None:
        """ "dark" or "light"."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def cpu_seconds(self) -> float:
        """What the page's thread has worked so far."""
        self._call("Performance.enable", timeDomain="threadTicks")
        metrics = self._call("Performance.getMetrics")["metrics"]
        seconds: float = next(one["value"] for one in metrics if one["name"] == "TaskDuration")
        return seconds

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, self._session, **params)
