"""Why a run failed: the first rank that did, in its own words."""

import re
import signal
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ringshard.files import read_json


@dataclass(frozen=True)
class Failure:
    """What to show last on the terminal."""

    rank: int | None
    message: str
    traceback: str | None = None

    def text(self) -> str:
        """The traceback and the sentence; a user's error has no traceback."""
        return f"{self.traceback.rstrip()}\n\n{self.message}" if self.traceback else self.message


class Death(NamedTuple):
    """What torchrun tells of a rank that ended with an exit code other than 0."""

    time: datetime
    """When torchrun noticed, in whole seconds."""
    rank: int
    code: int
    """Exit code; below 0: the signal that killed it."""


_DEATH = re.compile(
    r"^  time +: (?P<time>\S+)$.*?^  rank +: (?P<rank>\d+).*?^  exitcode +: (?P<code>-?\d+)",
    re.MULTILINE | re.DOTALL,
)
# torchrun ends the others itself, with SIGKILL those that have not ended after its
# --shutdown-timeout of 5 s: what died before that was killed by somebody else.
_OWN = timedelta(seconds=2)


def has_failed(attempt: Path) -> bool:
    """Whether a rank failed, as the rank itself or torchrun says."""
    return bool(_errors(attempt) or _deaths(attempt))


def first_failure(attempt: Path) -> Failure:
    """A rank that was killed, else the earliest of the error files, else what torchrun saw.

    A killed rank can't tell, and all its neighbours fail of it: they lose their connections.
    """
    deaths = _deaths(attempt)
    killed = [d for d in deaths if d.code < 0 and d.time - deaths[0].time < _OWN]
    if killed:
        return _killed(attempt, killed[0])
    if errors := _errors(attempt):
        return _told(errors)
    log = attempt / "torchrun.log"
    if not deaths:
        return Failure(None, f"the ranks did not start{_last_words(log)}: see {log}")
    rank, code = deaths[0].rank, deaths[0].code
    where = f"see {attempt / f'rank-{rank}.log'} and {log}"
    return Failure(rank, f"rank {rank} ended with exit code {code}: {where}")


def _last_words(log: Path) -> str:
    """Of torchrun itself, such as a port that is taken."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    words = [line.strip() for line in lines if re.match(r"\S*(Error|Exception)\b", line)]
    return f" ({words[-1][:300]})" if words else ""


def _errors(attempt: Path) -> list[dict[str, Any]]:
    return [read_json(path) or {} for path in attempt.glob("error-rank-*.json")]


def _deaths(attempt: Path) -> list[Death]:
    """From the reports of all nodes' torchruns, the earliest first."""
    text = "\n".join(log.read_text(errors="replace") for log in attempt.glob("torchrun*.log"))
    found = [(datetime.fromisoformat(m["time"]), m) for m in _DEATH.finditer(text)]
    return sorted(Death(time, int(m["rank"]), int(m["code"])) for time, m in found)


def _told(errors: list[dict[str, Any]]) -> Failure:
    """The earliest error; one of the user's is a sentence, without a traceback."""
    first = min(errors, key=lambda error: error["time"])
    if first["type"] == "ConfigError":
        return Failure(first["rank"], first["message"])
    others = f", and {len(errors) - 1} more after it" if errors[1:] else ""
    sentence = f"rank {first['rank']} failed first{others}: {first['type']}: {first['message']}"
    return Failure(first["rank"], sentence, first["traceback"])


def _killed(attempt: Path, death: Death) -> Failure:
    known = {number.value: number.name for number in signal.Signals}
    name = known.get(-death.code, f"signal {-death.code}")
    hint = " (out of memory? `dmesg` tells)" if name == "SIGKILL" else ""
    where = f"see {attempt / f'rank-{death.rank}.log'} and {attempt / 'torchrun.log'}"
    return Failure(death.rank, f"rank {death.rank} was killed by {name}{hint}: {where}")
