"""A headless Chromium driven over its debugging pipe, with the standard library alone."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--force-device-scale-factor=1", "--remote-debugging-pipe",
)  # fmt: skip


def find() -> str | None:
    """The browser's path: $FORERUN_CHROMIUM, else what is on PATH, else None."""
    named = os.environ.get("FORERUN_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser process; `open` gives pages."""

    def __init__(self, program: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="forerun-browser-")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4: ours are moved out of their way first.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_read, to_write)]
        log = os.open(Path(self.folder) / "log", os.O_CREAT | os.O_WRONLY)
        actions = [
            (os.POSIX_SPAWN_DUP2, high[0], 3),
            (os.POSIX_SPAWN_DUP2, high[1], 4),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ]
        arguments = [program, *_FLAGS, f"--user-data-dir={self.folder}", "about:blank"]
        self.process = os.posix_spawn(program, arguments, dict(os.environ), file_actions=actions)
        for fd in (to_read, to_write, *high, log):
            os.close(fd)
        self._number = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, /, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile is kept in `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], 60.0)
            assert ready, "the browser does not answer"
            piece = os.read(self._read, 1 << 20)
            assert piece, (
                "the browser has gone: " + (Path(self.folder) / "log").read_text(errors="replace")[-2000:]
            )
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def open(self, path: Path, *, width: int = 1280, scheme: str = "light") -> Page:
        """A page of a file, drawn at a width, for readers who prefer a scheme."""
        return Page(self, path, width, scheme)

    def close(self) -> None:
        """End the browser and remove what it wrote."""
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self._read)
        os.close(self._write)
        shutil.rmtree(self.folder, ignore_errors=True)


class Page:
    """A page that has been loaded."""

    def __init__(self, browser: Browser, path: Path, width: int, scheme: str) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._target = target
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        self.media(scheme)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("document.readyState === 'complete'")

    def call(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def media(self, scheme: str, kind: str = "screen") -> None:
        """Show the page to readers who prefer a scheme, on a screen or in print."""
        self.call(
            "Emulation.setEmulatedMedia",
            media=kind,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            # As the page itself, which may not compile text.
            allowUnsafeEvalBlockedByCSP=False,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, most_s: float = 30.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + most_s
        while not self.value(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16_000), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)[
            "data"
        ]
        return base64.b64decode(data)

    def complaints(self) -> list[str]:
        """Console messages of any kind, exceptions, and log entries (refused loads among them)."""
        found = []
        for event in self._browser.events:
            method, about = event.get("method"), event.get("params", {})
            if method == "Runtime.consoleAPICalled":
                found.append(f"{about['type']}: {[piece.get('value') for piece in about['args']]}")
            elif method == "Runtime.exceptionThrown":
                found.append(str(about["exceptionDetails"]))
            elif method == "Log.entryAdded":
                found.append(about["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Everything the page asked for, itself included."""
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
