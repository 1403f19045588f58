"""A real MLflow server on the loopback, and a gate before it that a test can close."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from ringshard.tracking import store


class Server:
    """`mlflow server` with an SQLite file; it may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "mlflow.db"
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        store.ensure(f"sqlite:///{self.database}", "ringshard")

    def start(self) -> None:
        """Returns when it answers."""
        command = f"-m mlflow server --host 127.0.0.1 --port {self.port} --workers 1".split()
        command += ["--backend-store-uri", f"sqlite:///{self.database}"]
        command += ["--artifacts-destination", str(self._folder / "files")]
        lean = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **store.ENVIRONMENT}
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                env=os.environ | lean,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        await_answer(self.port, self._process)

    def kill(self) -> None:
        """What a power cut does to it and its workers."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def await_answer(port: int, process: "subprocess.Popen[bytes]", seconds: float = 120) -> None:
    """Waits until a server says that it is well."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
            return
        time.sleep(0.1)
    raise AssertionError(f"no MLflow server on port {port}: {process.returncode}")


class Gate:
    """Passes bytes on to a server, or refuses, swallows, or renames the host that is asked for."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._listener.close()
        self.host: bytes | None = None
        self.delay_s = 0.0
        self._held: list[socket.socket] = []
        self._swallows = False

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self, host: bytes | None = None, delay_s: float = 0.0) -> None:
        """host: what the server is told that the client has asked for; delay_s: of each answer."""
        self.close()
        self.host, self._swallows, self.delay_s = host, False, delay_s
        self._listen()

    def hole(self) -> None:
        """Takes every connection and never answers."""
        self.close()
        self._swallows = True
        self._listen()

    def close(self) -> None:
        """Refuses every connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for held in self._held:
            held.close()
        self._held = []

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._held.append(client)
                if not self._swallows:
                    threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._behind)) as on:
            back = threading.Thread(target=self._answer, args=[on, client], daemon=True)
            back.start()
            while data := client.recv(65536):
                if self.host:
                    asked = f"Host: 127.0.0.1:{self.port}".encode()
                    data = data.replace(asked, b"Host: " + self.host)
                on.sendall(data)

    def _answer(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                time.sleep(self.delay_s)
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
