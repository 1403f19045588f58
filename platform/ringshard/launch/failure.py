"""Why a run failed: the first rank that did, in its own words."""

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from ringshard.launch.files import read_json


@dataclass(frozen=True)
class Failure:
    """What to show last on the terminal."""

    rank: int | None
    message: str
    traceback: str | None = None

    def text(self) -> str:
        """The traceback and the sentence; a user's error has no traceback."""
        return f"{self.traceback.rstrip()}\n\n{self.message}" if self.traceback else self.message


def first_failure(attempt: Path) -> Failure:
    """The earliest of the ranks' error files, else what torchrun saw, else where to look."""
    errors = [read_json(path) or {} for path in attempt.glob("error-rank-*.json")]
    if errors:
        first = min(errors, key=lambda error: error["time"])
        if first["type"] == "ConfigError":
            return Failure(first["rank"], first["message"])
        others = f", and {len(errors) - 1} more after it" if errors[1:] else ""
        sentence = f"rank {first['rank']} failed first{others}: {first['type']}: {first['message']}"
        return Failure(first["rank"], sentence, first["traceback"])
    return _seen_by_torchrun(attempt)


def _seen_by_torchrun(attempt: Path) -> Failure:
    """torchrun's report ends with a "Root Cause" block of rank and exit code."""
    log = attempt / "torchrun.log"
    text = log.read_text(errors="replace") if log.exists() else ""
    found = re.search(r"Root Cause.*?rank\s*: (\d+).*?exitcode\s*: (-?\d+)", text, re.DOTALL)
    if not found:
        return Failure(None, f"the ranks did not start: see {log}")
    rank, code = int(found[1]), int(found[2])
    where = f"see {attempt / f'rank-{rank}.log'} and {log}"
    if code >= 0:
        return Failure(rank, f"rank {rank} ended with exit code {code}: {where}")
    name = signal.Signals(-code).name
    hint = " (SIGKILL often means that memory ran out)" if name == "SIGKILL" else ""
    return Failure(rank, f"rank {rank} was killed by {name}{hint}: {where}")
