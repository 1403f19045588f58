"""Chromium without a window, spoken to over a pipe in its own protocol: no driver in between."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOUND = shutil.which("chromium") or shutil.which("google-chrome")
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--no-first-run"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe", "about:blank"),
)


@dataclass
class Browser:
    """One tab; what its console and its scripts complain of is in `complaints`."""

    write: int
    read: int
    session: str = ""
    complaints: list[str] = field(default_factory=list)
    _asked: int = 0
    _buffer: bytes = b""
    _loaded: bool = False

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command; raises RuntimeError where it is an error."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (told := self._next()).get("id") != self._asked:
            self._note(told)
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error']}")
        return dict(told["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self.read, 1 << 20)
            assert more, "the browser is gone"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        told, params = event.get("method"), event.get("params", {})
        self._loaded |= told == "Page.loadEventFired"
        if told == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        if told == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
            self.complaints.append(str(params["entry"]["text"]))
        if told == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error"):
            self.complaints.append(str(params["args"]))

    def open(self, file: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Shows a file in a window of this size, and waits until its scripts have run."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self._loaded = False
        self.call("Page.navigate", url=file.absolute().as_uri())
        while not self._loaded:
            self._note(self._next())
        self.settle()

    def settle(self) -> None:
        """Waits until what a script has begun is drawn."""
        two = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.ask(two)

    def ask(self, script: str) -> Any:
        """The value of an expression on the page."""
        options = {"returnByValue": True, "awaitPromise": True}
        told = self.call("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def picture(self, file: Path) -> None:
        """The whole page as a PNG."""
        told = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(told["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser for a while."""
    assert FOUND, "no Chromium"
    ours, theirs = os.pipe(), os.pipe()  # what we write, what it writes
    wired = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            ["bash", "-c", wired, "bash", FOUND, f"--user-data-dir={home}", *_OPTIONS],
            pass_fds=(ours[0], theirs[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        try:
            yield _tab(Browser(ours[1], theirs[0]))
        finally:
            process.kill()
            process.wait()
            os.close(ours[1])
            os.close(theirs[0])


def _tab(found: Browser) -> Browser:
    pages = found.call("Target.getTargets")["targetInfos"]
    page = next(target for target in pages if target["type"] == "page")
    told = found.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
    found.session = told["sessionId"]
    for domain in ("Page", "Runtime", "Log"):
        found.call(f"{domain}.enable")
    return found
