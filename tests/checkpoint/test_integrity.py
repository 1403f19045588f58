"""C6: a checkpoint that is not what was written is refused, and the one before it is used."""

import errno
import fcntl
import io
import json
import multiprocessing
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint.network import Run
from ranks import run_ranks

from ringshard.checkpoint import directory, load, manifest
from ringshard.checkpoint.directory import committed, pin, pins, reading
from ringshard.checkpoint.export import to_torch
from ringshard.checkpoint.manifest import DamagedError, Manifest
from ringshard.checkpoint.save import Place, save
from ringshard.config.schema.checkpoint import Verify
from ringshard.errors import ConfigError

FILES = ["__0_0.distcp", "__1_0.distcp", ".metadata", "train_state.json", "manifest.json"]


def two_checkpoints(root: Path) -> None:
    run = Run().train(1)
    run.save(root)
    run.train(1).save(root)


def flip(path: Path, seed: int) -> None:
    """One bit anywhere."""
    content, generator = bytearray(path.read_bytes()), random.Random(seed)
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    path.write_bytes(content)


def cut(path: Path, _: int) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def remove(path: Path, _: int) -> None:
    path.unlink()


def restored(root: Path, verify: Verify = Verify.shard) -> tuple[int, list[str], list[str]]:
    run = Run(seed=9)
    said = run.restore(root, verify)
    return run.step, said, [path.name for path in committed(root).values()]


@pytest.mark.rotated(3)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", [flip, cut, remove])
def test_a_damaged_checkpoint_is_used(
    file: str, damage: Callable[[Path, int], None], tmp_path: Path
) -> None:
    run_ranks(2, two_checkpoints, tmp_path)
    damage(tmp_path / "step-00000002" / file, 0)
    for step, said, listed in run_ranks(2, restored, tmp_path):
        assert step == 1 and listed == ["step-00000001"]
        if not (file == "manifest.json" and damage is remove):  # that one was never finished
            assert len(said) == 1 and "step-00000002 is damaged" in said[0]
            assert "the one before it is used" in said[0]
            (event,) = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
            assert event["checkpoint"] == "step-00000002" and event["rejected"] in said[0]
            assert any(tmp_path.glob("damaged-step-00000002-*"))


def unreadable(monkeypatch: pytest.MonkeyPatch, checkpoint: str, number: int) -> None:
    """Reading tensors of this checkpoint fails."""
    open_ = Path.open

    def on_broken_disk(path: Path, *args: Any, **kwargs: Any) -> Any:
        file = open_(path, *args, **kwargs)
        return _Broken(file, number) if checkpoint in str(path) and "distcp" in path.name else file

    monkeypatch.setattr(Path, "open", on_broken_disk)


class _Broken(io.BufferedReader):
    """A file of which only the beginning can be read."""

    def __init__(self, file: Any, number: int) -> None:
        super().__init__(file.detach())
        self._number = number

    def _require_readable(self) -> None:
        if self.tell() > 300:
            raise OSError(self._number, os.strerror(self._number), self.name)

    def read(self, *size: Any) -> Any:
        self._require_readable()
        return super().read(*size)

    def readinto(self, buffer: Any) -> Any:
        self._require_readable()
        return super().readinto(buffer)


@pytest.mark.parametrize("verify", Verify)
def test_a_block_that_the_disk_has_lost_ends_the_run(
    verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_ranks(2, two_checkpoints, tmp_path)
    unreadable(monkeypatch, "step-00000002", errno.EIO)
    for step, said, listed in run_ranks(2, restored, tmp_path, verify):
        assert step == 1 and listed == ["step-00000001"]
        assert "step-00000002 is damaged" in said[0] and "Input/output error" in said[0]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EACCES])
def test_what_another_try_may_read_is_called_damaged(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(sharded=False)
    run.save(tmp_path)
    unreadable(monkeypatch, "step-00000000", number)
    with pytest.raises(OSError, match=os.strerror(number)):
        run.restore(tmp_path)
    assert list(committed(tmp_path)) == [0]


def _on_a_node_that_sees_nothing(root: Path) -> tuple[str, list[int]]:
    load.PATIENCE_S = 0.0
    if torch.distributed.get_rank() == 1:
        load.is_listed = lambda path: False  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError) as error:
        Run(seed=9).restore(root)
    return str(error.value), list(committed(root))


def test_a_checkpoint_that_one_node_does_not_see_is_called_damaged(tmp_path: Path) -> None:
    run_ranks(2, two_checkpoints, tmp_path)
    for told, listed in run_ranks(2, _on_a_node_that_sees_nothing, tmp_path):
        assert told == f"checkpoint {tmp_path / 'step-00000002'} is not there on every rank"
        assert listed == [1, 2]


def _on_a_node_that_reads_other_bytes(root: Path) -> tuple[int, list[str], list[str]]:
    digest = manifest.digest_of_file

    def of_stale_cache(path: Path) -> str:
        return "another" if "step-00000002" in str(path) else digest(path)

    if torch.distributed.get_rank() == 1:
        manifest.digest_of_file = of_stale_cache  # type: ignore[attr-defined]
    return restored(root)


def test_a_table_of_contents_that_one_rank_reads_otherwise_is_used(tmp_path: Path) -> None:
    run_ranks(2, two_checkpoints, tmp_path)
    for step, said, listed in run_ranks(2, _on_a_node_that_reads_other_bytes, tmp_path):
        assert step == 1 and listed == ["step-00000001"]
        assert "step-00000002 is damaged" in said[0]


@pytest.mark.parametrize("seed", range(10))
def test_a_bit_anywhere_in_the_tensors_is_overlooked(seed: int, tmp_path: Path) -> None:
    run = Run(sharded=False)
    path = run.save(tmp_path)
    flip(path / "__0_0.distcp", seed)
    for verify in (Verify.shard, Verify.full):
        with pytest.raises(DamagedError, match="has other bytes than were written"):
            run.load(path, verify)


def test_a_damaged_checkpoint_that_was_asked_for_is_replaced_by_another(tmp_path: Path) -> None:
    run_ranks(2, two_checkpoints, tmp_path)
    path = tmp_path / "step-00000002"
    flip(path / "__1_0.distcp", 1)

    def load() -> tuple[str, bool]:
        run = Run(seed=9)
        before = run.contents()
        with pytest.raises(DamagedError) as error:
            run.load(path)
        same = all(np.array_equal(before[name], after) for name, after in run.contents().items())
        return str(error.value), same

    assert {told for told, _ in run_ranks(2, load)} == {
        f"checkpoint {path} is damaged (__1_0.distcp has other bytes than were written at "
        f"{_flipped_item(path)})"
    }
    assert all(untouched for _, untouched in run_ranks(2, load))
    assert path in committed(tmp_path).values()


def _flipped_item(path: Path) -> int:
    written = Manifest.read(path)
    for item in written.files["__1_0.distcp"].items:
        try:
            written.check_items(path, "__1_0.distcp", {(item.offset, item.length)})
        except DamagedError:
            return item.offset
    raise AssertionError("all are intact")


def test_a_run_all_of_whose_checkpoints_are_damaged_begins_anew(tmp_path: Path) -> None:
    run_ranks(2, two_checkpoints, tmp_path)
    for path in committed(tmp_path).values():
        cut(path / "__0_0.distcp", 0)

    def told() -> str:
        with pytest.raises(ConfigError) as error:
            Run(seed=9).restore(tmp_path)
        return str(error.value)

    (first, second) = run_ranks(2, told)
    assert first == second
    assert "step-00000001 is damaged" in first and "start a new run" in first


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    run = Run(sharded=False)
    assert run.restore(tmp_path / "absent") == [] and run.step == -1


def test_on_nfs_nothing_is_pruned_and_every_save_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which locks alone what may be written, see flock(2)."""
    lock = fcntl.flock

    def of_nfs(file: Any, how: int) -> None:
        if how & fcntl.LOCK_EX and not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE:
            raise OSError(errno.EBADF, "Bad file descriptor")
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", of_nfs)
    run = Run(sharded=False)
    for run.step in (1, 2, 3):
        save(Place(tmp_path, keep=1), run.state, run.model, run.optimizer, None)
    assert list(committed(tmp_path)) == [3]


def test_pinned_regular_and_read_checkpoints_are_removed(tmp_path: Path) -> None:
    run = Run(sharded=False)
    for run.step in (1, 2, 3, 4, 5):
        path = run.save(tmp_path)
    pin(tmp_path / "step-00000001", "mine")
    place = Place(tmp_path, keep=1, keep_every=2)
    run.step = 6
    with reading(tmp_path / "step-00000003"):
        save(place, run.state, run.model, run.optimizer, None)
    assert list(committed(tmp_path)) == [1, 2, 3, 4, 6]
    pin(tmp_path / "step-00000002", "mine")
    run.step = 7
    path = save(place, run.state, run.model, run.optimizer, None)
    assert list(committed(tmp_path)) == [2, 4, 6, 7]
    assert pins(tmp_path) == {"mine": "step-00000002"} and path.name == "step-00000007"


def resumes(path: Path, _: Path) -> None:
    Run(seed=9, sharded=False).load(path)


def evaluates(path: Path, _: Path) -> None:
    load.load(path, Run(seed=9, sharded=False).model, None, None)


def exports(path: Path, target: Path) -> None:
    to_torch(path, target)


@pytest.mark.parametrize("read", [resumes, evaluates, exports])
def test_a_checkpoint_is_removed_that_another_process_reads(
    read: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    """Which has verified its bytes, and has not read them yet."""
    run, context = Run(sharded=False), multiprocessing.get_context("fork")
    for run.step in (1, 2):
        run.save(tmp_path)
    verified, go_on = context.Event(), context.Event()

    def slowly(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            result = function(*args)
            verified.set()
            assert go_on.wait(60)
            return result

        return call

    def other() -> None:
        for name in ("check_items", "verified"):
            setattr(Manifest, name, slowly(getattr(Manifest, name)))
        read(tmp_path / "step-00000001", tmp_path / "model.pt")

    reader = context.Process(target=other)
    reader.start()
    assert verified.wait(60)
    run.step = 3
    run.save(tmp_path, keep=1)
    assert list(committed(tmp_path)) == [1, 3]
    go_on.set()
    reader.join()
    assert reader.exitcode == 0
    run.step = 4
    run.save(tmp_path, keep=1)
    assert list(committed(tmp_path)) == [4]


@pytest.mark.parametrize("damage", [cut, remove])
def test_a_damaged_checkpoint_is_kept_in_place_of_a_whole_one(
    damage: Callable[[Path, int], None], tmp_path: Path
) -> None:
    run = Run(sharded=False)
    for run.step in (1, 2, 3):
        run.save(tmp_path)
    damage(tmp_path / "step-00000003" / "__0_0.distcp", 0)
    (tmp_path / "step-00000009").mkdir()  # of a save that never finished
    run.step = 4
    run.save(tmp_path, keep=2)
    assert list(committed(tmp_path)) == [2, 3, 4]


def test_a_checkpoint_of_another_user_keeps_older_ones_from_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(sharded=False)
    for run.step in (1, 2):
        run.save(tmp_path)
    open_, others = Path.open, tmp_path / "step-00000001/manifest.json"

    def refused(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if path == others and mode != "rb":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refused)
    run.step = 3
    run.save(tmp_path, keep=1)
    assert list(committed(tmp_path)) == [1, 3]


def test_a_checkpoint_is_removed_while_a_reader_takes_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at its lock and its removal."""
    run = Run(sharded=False)
    path = run.save(tmp_path)
    take_off, held = directory._take_off, []

    def beside_a_reader(checkpoint: Path, what: str) -> None:
        with (checkpoint / "manifest.json").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(checkpoint)
        take_off(checkpoint, what)

    monkeypatch.setattr(directory, "_take_off", beside_a_reader)
    directory.prune(tmp_path, tmp_path / "step-00000001", keep=0, keep_every=0)
    assert held == [] and path.exists()
    run.step = 1
    run.save(tmp_path, keep=1)
    assert held == [path] and not path.exists()
    with pytest.raises(directory.RemovedError, match="has just been removed"), reading(path):
        pass


def test_a_pin_that_is_just_taken_away_is_an_error(tmp_path: Path) -> None:
    path = Run(sharded=False).save(tmp_path)
    pin(path, "mine")
    (tmp_path / "pins/other").symlink_to("gone")
    assert pins(tmp_path) == {"mine": path.name}


def _drawn(path: Path, save: bool) -> Any:
    rank = torch.distributed.get_rank()
    for number, seed in enumerate((random.seed, np.random.seed, torch.manual_seed)):
        seed(10 * rank + number if save else 99)
    random.gauss(0, 1), np.random.normal(), torch.randn(1)
    run = Run()
    if save:
        run.save(path.parent)
    else:
        run.load(path)
    return random.gauss(0, 1), np.random.normal(), torch.randn(1).item(), random.random()


def test_ranks_draw_other_numbers_after_a_load(tmp_path: Path) -> None:
    path = tmp_path / "step-00000000"
    before = run_ranks(2, _drawn, path, True)
    assert before[0] != before[1]
    assert run_ranks(2, _drawn, path, False) == before
    assert run_ranks(3, _drawn, path, False)[0] != before[0]  # of other ranks: not taken over
