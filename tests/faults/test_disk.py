"""The disk of a run is full, or read-only of a sudden, in the middle of training."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from parity.test_command_line import ROOT
from runs import curve, parameters_of
from slurm.cluster import SLOW, TRAIN, project, until

from ringshard.tracking.spool import read_spool

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems, which root alone may"),
]
OPTIONS = ("train.steps=40", "checkpoint.every=5", "checkpoint.keep=2", "output.root=disk/outputs")


@contextmanager
def mounted(place: Path, *how: str) -> Iterator[None]:
    """A file system of a few MB."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", *how, str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def small_ext4(path: Path) -> Path:
    """A file with a file system."""
    with path.open("wb") as file:
        file.truncate(2**26)
    subprocess.run(["mkfs.ext4", "-q", str(path)], check=True)
    return path


class Training:
    """`jobs/train.py` in `folder`, slow until `quick` is there; what it says so far."""

    def __init__(self, folder: Path, *argv: str) -> None:
        self.folder, self.told = folder, folder / "told"
        command = [sys.executable, str(ROOT / "jobs/train.py"), *argv]
        with self.told.open("w") as file:
            self.process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file)

    def says(self, words: str) -> None:
        """Waits for it."""
        until(lambda: words in self.told.read_text() or self._ended(), 120, words)
        assert words in self.told.read_text(), self.told.read_text()

    def _ended(self) -> bool:
        return self.process.poll() is not None

    def ends(self) -> int:
        """Its exit code, when nothing slows it down."""
        (self.folder / "quick").touch()
        return self.process.wait(120)

    @property
    def run(self) -> Path:
        """Its only run."""
        (found,) = (self.folder / "disk/outputs/runs").iterdir()
        return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    folder = project(tmp_path_factory.mktemp("undisturbed"))
    training = Training(folder, *TRAIN, *SLOW, *OPTIONS)
    assert training.ends() == 0, training.told.read_text()
    return training.run


def first_checkpoint(training: Training) -> Callable[[], bool]:
    """Whether it is there."""
    pattern = "disk/outputs/runs/*/checkpoints/step-*/manifest.json"
    return lambda: any(training.folder.glob(pattern))


def assert_same_end(run: Path, undisturbed: Path) -> None:
    assert (run / "DONE").exists()
    found, expected = parameters_of(run), parameters_of(undisturbed)
    assert found.keys() == expected.keys()
    assert all((found[name] == tensor).all() for name, tensor in expected.items())


def test_a_disk_that_is_full_for_a_while_stops_training(tmp_path: Path, undisturbed: Path) -> None:
    folder, filler = project(tmp_path / "user"), tmp_path / "user/disk/filler"
    with mounted(folder / "disk", "-t", "tmpfs", "-o", "size=16m", "tmpfs"):
        training = Training(folder, *TRAIN, *SLOW, *OPTIONS)
        until(first_checkpoint(training), 120, "the first checkpoint")
        fill(filler)
        training.says("A checkpoint could not be saved")
        filler.unlink()
        assert training.ends() == 0, training.told.read_text()
        assert_same_end(training.run, undisturbed)
        assert_incomplete(training.run, undisturbed)


def fill(path: Path) -> None:
    """Takes the disk's last byte."""
    with path.open("wb", buffering=0) as file:
        for size in (2**16, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def assert_incomplete(run: Path, undisturbed: Path) -> None:
    """What is there is true, and what is not was counted."""
    (spool,) = (run / "track").glob("spool-*-rank0.jsonl")
    records = [record for record, _ in read_spool(spool) if record]
    found = {r.step: r.metrics["train/loss"] for r in records if "train/loss" in r.metrics}
    expected = curve(undisturbed)
    assert found.items() < expected.items()
    assert max(record.dropped for record in records) >= len(expected) - len(found)


def test_a_disk_that_turns_read_only_costs_what_was_saved(
    tmp_path: Path, undisturbed: Path
) -> None:
    folder = project(tmp_path / "user")
    disk, image = folder / "disk", small_ext4(tmp_path / "image")
    how = ("-o", "loop,errors=remount-ro", str(image))
    with mounted(disk, *how):
        training = Training(folder, *TRAIN, *SLOW, *OPTIONS, "checkpoint.max_failed_saves=1")
        until(first_checkpoint(training), 120, "the first checkpoint")
        subprocess.run(["mount", "-o", "remount,abort", str(disk)], check=True)
        training.says("Read-only file system")
        assert training.ends() == 1, training.told.read_text()
    with mounted(disk, *how):  # repaired
        resumed = Training(folder, f"resume={training.run}")
        assert resumed.ends() == 0, resumed.told.read_text()
        assert_same_end(training.run, undisturbed)
        shutil.rmtree(disk / "outputs")
