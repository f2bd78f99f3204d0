"""A real Chromium without a window, driven by its DevTools protocol over a pipe.

It needs no driver, no port, no package.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

__all__ = ["Browser", "Page", "chromium"]

_TIMEOUT = 100.0
_SWITCHES = [
    *(
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    ),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-proxy-server",
    ),
    *("--disable-extensions", "--mute-audio", "--remote-debugging-pipe"),
]
# Chromium reads commands from descriptor 3 and writes events to 4; the two must not collide.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """Return the path of Chromium, if it is installed."""
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


class Browser:
    """A browser process, for several pages."""

    def __init__(self, program: str, folder: Path) -> None:
        to_read, self._output = os.pipe()
        self._input, to_write = os.pipe()
        command = [sys.executable, "-c", _LAUNCH, str(to_read), str(to_write), program, *_SWITCHES]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_read, to_write),
        )
        os.close(to_read)
        os.close(to_write)
        self._numbers = count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._reader = threading.Thread(target=self._read, name="chromium", daemon=True)
        self._reader.start()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(_TIMEOUT)
        self._reader.join(_TIMEOUT)
        os.close(self._output)
        os.close(self._input)

    def open(
        self, address: str, *, width: int = 1200, height: int = 900, dark: bool = False
    ) -> Page:
        """A page in a context of its own, with nothing left of others."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)[
            "targetId"
        ]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self._pages[session] = page
        for domain in ("Page", "Runtime", "Log"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", features=[scheme])
        page.send("Page.navigate", url=address)
        page.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")
        return page

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = queue.Queue()
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._output, json.dumps(message).encode() + b"\0")
        received = answer.get(timeout=_TIMEOUT)
        del self._answers[number]
        assert "error" not in received, received
        result: dict[str, Any] = received["result"]
        return result

    def _read(self) -> None:
        rest = b""
        while chunk := os.read(self._input, 1 << 16):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers[message["id"]].put(message)
                elif message.get("sessionId") in self._pages:
                    self._pages[message["sessionId"]].notice(message["method"], message["params"])


class Page:
    """A page, and the errors that occurred on it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        """Errors of the console, exceptions, and dialogs, which our page has none of."""

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **parameters)

    def notice(self, method: str, parameters: dict[str, Any]) -> None:
        bad = method in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening")
        bad = bad or (method == "Log.entryAdded" and parameters["entry"]["level"] == "error")
        bad = bad or (
            method == "Runtime.consoleAPICalled"
            and parameters["type"] in ("error", "warning", "assert")
        )
        if bad:
            self.complaints.append(f"{method}: {json.dumps(parameters)[:500]}")

    def resize(self, width: int, height: int) -> None:
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: float = 60.0) -> None:
        """Return as soon as an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.run(f"!!({script})"):
            assert time.monotonic() < deadline, (
                f"{script} does not become true; the page says: {self.text}"
            )
            time.sleep(0.05)

    @property
    def text(self) -> str:
        """Return the text that a reader sees."""
        return str(self.run("document.body ? document.body.innerText : ''"))

    def screenshot(self, file: Path) -> None:
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))
