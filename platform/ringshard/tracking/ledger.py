"""What of a run has reached MLflow: `track/shipped.json`, written once MLflow has answered."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ringshard.files import write_json
from ringshard.tracking.batches import Batch


@dataclass(frozen=True)
class Ledger:
    """Progress of shipping one run to one target; another target starts from nothing."""

    uri: str
    """Address of MLflow."""
    experiment: str
    """Its experiment."""
    run_id: str | None = None
    """The MLflow run."""
    described: list[int] = field(default_factory=list)
    """Attempts whose parameters have arrived."""
    attached: list[str] = field(default_factory=list)
    """Files that have arrived."""
    models: dict[str, str] = field(default_factory=dict)
    """Checkpoints that MLflow knows -> the id of the model."""
    told: str = ""
    """Where the run stands, as it was told last."""
    offsets: dict[str, int] = field(default_factory=dict)
    """Spool name -> what has arrived [bytes]."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Spool name -> lines that the disk refused."""
    damaged: dict[str, int] = field(default_factory=dict)
    """Spool name -> lines with a wrong checksum."""
    unrecorded: int = 0
    """Steps of which the disk took nothing at all."""
    mismatches: dict[str, int] = field(default_factory=dict)
    """Spool name -> steps that were trained again and came out otherwise."""

    @property
    def warnings(self) -> dict[str, str]:
        """Tags that say what is wrong with the record."""
        found = {}
        if self.lost:
            found["incomplete"] = f"{self.lost} lines lost"
        if self.mismatches:
            count = sum(self.mismatches.values())
            found["mismatch"] = f"{count} steps trained again came out otherwise"
        return found

    @property
    def lost(self) -> int:
        """Lines that can never arrive."""
        return sum(self.dropped.values()) + sum(self.damaged.values()) + self.unrecorded

    def after(self, spool: str, batch: Batch) -> "Ledger":
        """The ledger once a batch of a spool has arrived."""
        dropped = max(self.dropped.get(spool, 0), batch.dropped)
        damaged = self.damaged.get(spool, 0) + batch.damaged
        mismatches = self.mismatches.get(spool, 0) + len(batch.mismatches)
        return replace(
            self,
            offsets=self.offsets | {spool: batch.offset},
            dropped=self.dropped | {spool: dropped},
            damaged=self.damaged | {spool: damaged},
            mismatches=self.mismatches | ({spool: mismatches} if mismatches else {}),
        )

    @classmethod
    def noted(cls, run_dir: Path) -> "Ledger | None":
        """The ledger of where a run was sent last; None: nowhere, so far as is known."""
        try:
            return cls(**json.loads(_file(run_dir).read_text(encoding="utf-8")))
        except (FileNotFoundError, TypeError, ValueError):
            return None

    @classmethod
    def read(cls, run_dir: Path, uri: str, experiment: str) -> "Ledger":
        """The ledger of a target; an empty one if there is none (then all is sent again)."""
        known = cls.noted(run_dir)
        if known and (known.uri, known.experiment) == (uri, experiment):
            return known
        return cls(uri, experiment)

    def write(self, run_dir: Path) -> None:
        """Replace the file in one step."""
        file = _file(run_dir)
        file.parent.mkdir(exist_ok=True)
        write_json(file, asdict(self))


def _file(run_dir: Path) -> Path:
    return run_dir / "track" / "shipped.json"
