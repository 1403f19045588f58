"""The spool keeps every point the disk took, says how many it refused, and never stops training."""

import math
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringshard.tracking.spool import Record, Spool, Steps, read_spool, spools


def records(path: Path, offset: int = 0) -> list[Record | None]:
    return [record for record, _ in read_spool(path, offset)]


def write(run_dir: Path, steps: range, attempt: int = 1, restart: int = 0) -> Path:
    spool = Spool(run_dir, attempt, restart=restart)
    for step in steps:
        spool.log(step, {"train/loss": 1 / (step + 1)})
    spool.close()
    return run_dir / "track" / f"spool-{attempt}.{restart}-rank0.jsonl"


def test_what_is_logged_is_read_back_exactly(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1)
    spool.log(3, {"train/loss": 0.1 + 0.2, "val/loss": math.inf})
    (record,) = records(tmp_path / "track" / "spool-1.0-rank0.jsonl")
    assert record is not None
    assert (record.step, record.metrics) == (3, {"train/loss": 0.1 + 0.2, "val/loss": math.inf})


def test_others_cannot_read_a_spool(tmp_path: Path) -> None:
    assert stat.S_IMODE(write(tmp_path, range(1)).stat().st_mode) == 0o600


def test_reading_goes_on_at_the_offset(tmp_path: Path) -> None:
    path = write(tmp_path, range(4))
    offsets = [offset for _, offset in read_spool(path)]
    assert [record.step for record in records(path, offsets[1]) if record] == [2, 3]
    assert offsets[-1] == path.stat().st_size


def test_a_line_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    path = write(tmp_path, range(3))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    *_, (_, offset) = read_spool(path)
    assert len(records(path)) == 2
    path.write_bytes(whole)
    assert [record.step for record in records(path, offset) if record] == [2]


def test_a_damaged_line_is_told_and_the_others_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path, range(3))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"0.5", b"0.7") + lines[2])
    assert [record and record.step for record in records(path)] == [0, None, 2]


def test_a_process_that_died_in_a_line_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    path = write(tmp_path, range(2))
    os.truncate(path, path.stat().st_size - 5)
    write(tmp_path, range(2, 3))
    assert [record and record.step for record in records(path)] == [0, None, 2]


@contextmanager
def full_disk(size: int = 100) -> Iterator[None]:
    """No file can grow beyond its first line, or `size`."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def dropping(run_dir: Path) -> Spool:
    """A spool of which the disk took line 0 and refused lines 1 to 3."""
    spool = Spool(run_dir, 1)
    spool.log(0, {"train/loss": 1.0})
    with full_disk():
        for step in range(1, 4):
            spool.log(step, {"train/loss": 1.0})
    return spool


def dropped(run_dir: Path) -> list[tuple[int, int]]:
    read = [record for record in records(run_dir / "track" / "spool-1.0-rank0.jsonl") if record]
    return [(record.step, record.dropped) for record in read]


def test_a_full_disk_drops_and_counts(tmp_path: Path) -> None:
    dropping(tmp_path).log(4, {"train/loss": 1.0})
    assert dropped(tmp_path) == [(0, 0), (4, 3)]


@pytest.mark.parametrize("end", ["whole", "torn"])
def test_a_line_of_which_the_disk_took_a_part_counts_twice(tmp_path: Path, end: str) -> None:
    path = write(tmp_path, range(2))
    if end == "torn":
        os.truncate(path, path.stat().st_size - 5)
    spool = Spool(tmp_path, 1)
    with full_disk(path.stat().st_size + 20):
        spool.log(2, {"train/loss": 1.0})
    spool.log(3, {"train/loss": 1.0})
    before = [0, 1] if end == "whole" else [0, None]
    assert [record and record.step for record in records(path)] == [*before, 3]
    assert spool.dropped == 1


def test_a_part_of_a_line_takes_the_room_of_the_one_that_tells_of_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1)
    spool.log(0, {"train/loss": 1.0})
    with full_disk(200):
        spool.log(1, {"train/loss" + 200 * "s": 1.0})
        spool.close()
    assert dropped(tmp_path) == [(0, 0), (1, 1)]


def test_a_part_of_a_line_that_stays_spoils_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int, length: int) -> None:
        raise OSError

    monkeypatch.setattr(os, "ftruncate", refuse)
    dropping(tmp_path).log(4, {"train/loss": 1.0})
    assert dropped(tmp_path) == [(0, 0), (4, 3)]


def test_lines_dropped_at_the_end_are_counted_when_it_closes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dropping(tmp_path).close()
    assert dropped(tmp_path) == [(0, 0), (3, 3)]
    assert capsys.readouterr().err == ""


def test_lines_dropped_by_a_disk_that_stays_full_are_told_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = dropping(tmp_path)
    with full_disk():
        spool.close()
    assert dropped(tmp_path) == [(0, 0)]
    assert capsys.readouterr().err == f"{spool.path}: 3 lines were lost\n"


def test_a_folder_that_cannot_be_made_does_not_raise(tmp_path: Path) -> None:
    (tmp_path / "track").write_text("not a folder")
    spool = Spool(tmp_path, 1)
    spool.log(0, {"train/loss": 1.0})
    spool.close()
    assert spool.dropped == 1


def test_what_is_no_number_is_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1)
    for metrics in ({"train/loss": "high"}, {"train/loss": 10**400}, None):
        spool.log(0, metrics)  # type: ignore[arg-type]
    assert spool.dropped == 3


def test_a_spool_that_the_disk_does_not_take_stops_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, 1)
    asked: list[Path] = []

    def refuse(descriptor: int) -> None:
        asked.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        raise OSError

    monkeypatch.setattr(os, "fsync", refuse)
    spool.sync()
    spool.close()
    spool.sync()
    assert asked == [spool.path]


@pytest.mark.parametrize(("attempt", "restart"), [(2, 0), (1, 1)])
def test_a_resumed_run_repeats_no_step(tmp_path: Path, attempt: int, restart: int) -> None:
    write(tmp_path, range(6))
    write(tmp_path, range(4, 9), attempt, restart)
    kept = [
        record.step
        for spool in spools(tmp_path)
        for record, _ in read_spool(spool.path)
        if record and spool.fresh(record)
    ]
    assert kept == list(range(9))


@pytest.mark.parametrize("loss", ["refused", "damaged"])
def test_lines_that_were_lost_once_are_lost_when_they_are_trained_again(
    tmp_path: Path, loss: str
) -> None:
    path = write(tmp_path, range(10))
    lines = path.read_bytes().splitlines(keepends=True)
    lost = b"" if loss == "refused" else b"{damaged}\n"
    path.write_bytes(b"".join(lines[:4]) + lost + b"".join(lines[7:]))
    write(tmp_path, range(3, 12), attempt=2)
    write(tmp_path, range(8, 13), attempt=3)
    kept = [
        [record.step for record, _ in read_spool(spool.path) if record and spool.fresh(record)]
        for spool in spools(tmp_path)
    ]
    assert kept == [[0, 1, 2, 3, 7, 8, 9], [4, 5, 6, 10, 11], [12]]


@given(st.lists(st.integers(0, 20)))
def test_steps_are_no_set(numbers: list[int]) -> None:
    steps = Steps()
    for number in numbers:
        steps.add(number)
    assert [n for n in range(-1, 22) if n in steps] == sorted(set(numbers))
    assert [n for n in range(-1, 22) if n in steps.copy()] == sorted(set(numbers))


def test_an_evaluation_missed_by_the_killed_attempt_is_kept(tmp_path: Path) -> None:
    write(tmp_path, range(6))
    Spool(tmp_path, 2).log(5, {"train/loss": 1.0, "val/loss": 2.0})
    _, second = spools(tmp_path)
    (again,) = records(second.path)
    assert again is not None
    assert second.fresh(again) == {"val/loss": 2.0}


def test_samples_of_a_node_whose_clock_is_behind_are_dropped(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1, "node-1")
    spool.log(-40, {"system/node-1/cpu_percent": 7.0})
    (listed,) = spools(tmp_path)
    ((record, _),) = read_spool(spool.path)
    assert record and listed.fresh(record) == {"system/node-1/cpu_percent": 7.0}
