"""What travels between ranks: no byte too many, and no silence without a name."""

import contextlib
import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from ring.whole import Case, Results, attend, the_ring

from ringshard.config.schema.parallelism import Parallelism
from ringshard.parallel import mesh as meshes
from ringshard.parallel.ring.agreement import agree, exchange
from ringshard.parallel.ring.attention import RingState, ring_attention
from ringshard.parallel.ring.plan import build_plan
from ringshard.parallel.ring.transport import TRANSPORTS
from ringshard.parallel.ring.waiting import RingError


def _bytes(case: Case) -> int:
    ring = the_ring()
    attend(case, ring)
    return ring.bytes_sent


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_ring_sends_the_least_bytes(world: int, dtype: torch.dtype) -> None:
    """Forward cp - 1 hops of keys and values, backward as many and cp of fp32 gradients."""
    case = Case(dtype=dtype, true_length=48 * world)
    elements = 2 * 48 * case.heads[1] * case.widths[0]  # K and V of a rank
    hops = 2 * (world - 1) * dtype.itemsize + (world * 4 if world > 1 else 0)
    assert run_ranks(world, _bytes, case) == [elements * hops] * world


def _operations(case: Case) -> list[int]:
    """Of each batch of messages of one pass, which is not the ring's first."""
    ring, sent, real = the_ring(), list[int](), dist.batch_isend_irecv
    attend(case, ring)

    def counted(operations: list[dist.P2POp]) -> list[dist.Work]:
        sent.append(len(operations))
        return real(operations)

    dist.batch_isend_irecv = counted
    attend(case, ring)
    return sent


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("documents", ["one", "singles", "long and short"])
def test_documents_take_more_messages_than_two_a_hop(world: int, documents: str) -> None:
    hops = 2 * (world - 1) + (world if world > 1 else 0)
    assert run_ranks(world, _operations, Case(documents=(documents,) * 2)) == [[2] * hops] * world


def _keys_passing_by(transport: str, late: int) -> list[bool]:
    """Whether each step's keys and values are those of its rank when they come, and still when
    all that is sent meanwhile has arrived."""
    ring, same = the_ring(), []
    own = torch.full((1, 2, 64, 8), 1.0 + ring.rank)
    time.sleep(0.5 * (ring.rank == late))
    for step, (k, v) in enumerate(TRANSPORTS[transport](ring).keys_values(own, -own)):
        expected = torch.full_like(own, 1.0 + (ring.rank - step) % ring.size)
        came = torch.equal(k, expected) and torch.equal(v, -expected)
        time.sleep(0.1)
        same.append(came and torch.equal(k, expected) and torch.equal(v, -expected))
    return same


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_keys_are_read_before_they_come_or_written_over_while_read(
    transport: str, late: int
) -> None:
    assert run_ranks(3, _keys_passing_by, transport, late) == [[True] * 3] * 3


def _gradients_going_home(transport: str, late: int) -> float:
    """The sum of what each rank adds for the keys of this one."""
    ring = the_ring()
    sums = TRANSPORTS[transport](ring).gradients()
    for step in range(ring.size):
        time.sleep(0.2 * (ring.rank == late))
        whose = (ring.rank - step) % ring.size
        sums.add(step, torch.full((2, 1, 64, 2, 8), 10.0**whose * (1 + ring.rank)))
    home = sums.home()
    assert (home == home.flatten()[0]).all()
    return float(home.flatten()[0])


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_gradients_are_summed_before_they_come(transport: str, late: int) -> None:
    assert run_ranks(3, _gradients_going_home, transport, late) == [6.0, 60.0, 600.0]


def _with_old_names(case: Case) -> Results:
    """As before torch 2.13, which gave both collectives other names."""
    for name in ("all_gather_single", "reduce_scatter_single"):
        if hasattr(dist, name):
            delattr(dist, name)
    warnings.simplefilter("ignore", FutureWarning)
    return attend(case, the_ring())


def test_collectives_under_their_old_names() -> None:
    case = Case(transport="allgather")
    old, new = (run_ranks(2, way, case) for way in (_with_old_names, _attend))
    assert all(torch.equal(a[n], b[n]) for a, b in zip(old, new, strict=True) for n in a)


def _attend(case: Case) -> Results:
    return attend(case, the_ring())


def _mesh() -> tuple[int, ...]:
    return meshes.build(Parallelism(dp_shard=2, cp=2), torch.device("cpu")).ring.ranks


def test_rings_are_the_lines_of_a_mesh() -> None:
    assert run_ranks(4, _mesh) == [(0, 1), (0, 1), (2, 3), (2, 3)]


def _differing() -> str:
    ring = the_ring(5)
    assert exchange(ring, [ring.rank]) == {0: [0], 1: [1], 2: [2]}
    agree(ring, length=7, rows=2)
    with pytest.raises(RingError) as told:
        agree(ring, length=7, rows=2 + (ring.rank == 2))
    return str(told.value)


def test_ranks_with_different_batches_are_told_which() -> None:
    told = run_ranks(3, _differing)
    assert "ranks 0 and 2 share a sequence but not its rows: 2 and 3" in told[0]
    assert "same rows" in told[0]


def _uneven() -> str:
    ring = the_ring(5)
    case = Case(true_length=24 + 6 * (ring.rank == 1))
    with pytest.raises(RingError) as told:
        attend(case, ring)
    return str(told.value)


def test_another_shape_is_told_before_anything_is_sent() -> None:
    """gloo would end the process."""
    told = run_ranks(3, _uneven)
    assert "ranks 0 and 1 share a sequence but not its tokens: 8 and 10" in told[0]


def _of_another_batch() -> str:
    ring, case = the_ring(5), Case()
    layout, rows = case.cut(2)
    plan = build_plan(layout, rows * 2, ring.rank).to_tensor()
    q = torch.zeros(1, 4, 32, 16)
    with pytest.raises(RuntimeError) as told:
        ring_attention(q, q, q, RingState(plan, ring.name, "ring"), 1.0)
    return str(told.value)


def test_a_plan_of_another_batch_is_refused() -> None:
    for told in run_ranks(2, _of_another_batch):
        assert "for 2 rows of 32 tokens" in told and "given 1 of 32" in told


def _deserted(transport: str, leave: Callable[[], None], folder: Path) -> None:
    ring = the_ring(1.5)
    attend(Case(transport=transport), ring)
    if ring.rank == 1:
        return leave()
    start = time.monotonic()
    with pytest.raises(RingError) as told:
        attend(Case(transport=transport), ring)
    assert time.monotonic() - start < 5
    (folder / str(ring.rank)).write_text(str(told.value))
    return None


def _late() -> None:
    time.sleep(6)


def _lost() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _deserted_in_backward(transport: str, leave: Callable[[], None], folder: Path) -> None:
    ring = the_ring(1.5)
    q = torch.randn(1, 4, 32, 16, requires_grad=True)
    layout, rows = Case(true_length=96).cut(3)
    plan = build_plan(layout, rows, ring.rank).to_tensor()
    out = ring_attention(q, q, q, RingState(plan, ring.name, transport), 0.25)
    dist.barrier()
    if ring.rank == 1:
        return leave()
    with pytest.raises(RingError) as told:
        out.sum().backward()
    (folder / str(ring.rank)).write_text(str(told.value))
    return None


def _assert_both_name_rank_1(
    leave: Callable[[], None],
    folder: Path,
    action: Callable[..., None],
    transport: str,
    **limits: float,
) -> None:
    with contextlib.suppress(RuntimeError) if leave is _lost else contextlib.nullcontext():
        run_ranks(3, action, transport, leave, folder, **limits)
    for rank in (0, 2):
        told = (folder / str(rank)).read_text()
        assert f"rank {rank} waited for keys and values" in told
        assert "ranks that do not answer: [1]" in told


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("leave", [_late, _lost])
def test_a_peer_lost_in_backward_hangs(
    transport: str, leave: Callable[[], None], tmp_path: Path
) -> None:
    _assert_both_name_rank_1(leave, tmp_path, _deserted_in_backward, transport, timeout_s=30)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("leave", [_late, _lost])
def test_a_peer_that_is_late_or_lost_is_named_in_bounded_time(
    transport: str, leave: Callable[[], None], tmp_path: Path
) -> None:
    """Rank 2 waits for the lost rank, and rank 0 for rank 2: both find where it began."""
    _assert_both_name_rank_1(leave, tmp_path, _deserted, transport)
