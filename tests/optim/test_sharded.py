"""The same gradients on parameters that are whole or cut over ranks: the same step."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from optim.networks import Matrices, everything, full, steps, trained, trained_in_parts
from ranks import run_ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

from ringshard.config.schema.optimizer import (
    AdamW,
    AdamWHyperball,
    Lion,
    Lion8bit,
    Muon,
    MuonHyperball,
    MuonMona,
    MuonMonaHyperball,
    Optimizer,
    Scale,
)
from ringshard.config.schema.precision import Dtype
from ringshard.optim import build
from ringshard.optim.exchange import Exchange, cost, plan, rows_of
from ringshard.optim.layout import Layout

BUCKETS = {"bucket_mb": 0}
"""Each matrix by itself, so that exchanges overlap."""
EXACT: list[Optimizer] = [
    Lion(),
    Lion8bit(),
    Muon(),
    Muon(ns_dtype=Dtype.bf16, scale=Scale.original, **BUCKETS),
    MuonMona(splits={"fused": [8, 4, 12]}, **BUCKETS),
]
NEARLY: list[Optimizer] = [
    MuonHyperball(splits={"fused": [8, 4, 12]}, **BUCKETS),
    MuonMonaHyperball(),
    AdamWHyperball(),
    AdamW(),
]
TOPOLOGIES = {"1": (1, 1), "2": (2, 1), "3": (3, 1), "4": (4, 1), "2x2": (4, 2)}


@functools.cache
def whole(index: int) -> dict[str, Tensor]:
    return run_ranks(1, trained, [*EXACT, *NEARLY][index])[0]


@pytest.mark.rotated(3)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("index", range(len(EXACT)), ids=lambda i: f"{EXACT[i].name}-{i}")
def test_cut_over_ranks_a_step_is_not_the_same_bits(index: int, topology: str) -> None:
    world, replicas = TOPOLOGIES[topology]
    for found in run_ranks(world, trained_in_parts, EXACT[index], replicas):
        for name, tensor in whole(index).items():
            assert torch.equal(found[name], tensor), name


@pytest.mark.rotated(3)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("index", range(len(NEARLY)), ids=lambda i: NEARLY[i].name)
def test_cut_over_ranks_a_step_on_spheres_or_of_a_fused_kernel_is_another_one(
    index: int, topology: str
) -> None:
    world, replicas = TOPOLOGIES[topology]
    for found in run_ranks(world, trained_in_parts, NEARLY[index], replicas):
        for name, tensor in whole(len(EXACT) + index).items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=1e-6, msg=name)


def test_replicas_count_in_the_norm_of_a_sphere() -> None:
    def ratio() -> float:
        net = Matrices().cut(replicas=2)
        before = full(net.wide).norm()
        optimizer = steps(net, MuonHyperball(), count=3)
        assert float(full(net.wide).norm() / before) == pytest.approx(1.0, abs=1e-6)
        return float(everything(net, optimizer)["wide.radius"] / before)

    for found in run_ranks(4, ratio):
        assert found == pytest.approx(1.0, abs=1e-6)


def _counted(config: Optimizer) -> dict[str, list[int]]:
    """Bytes that each collective of one step brings to this rank from others."""
    net = Matrices().cut()
    optimizer = build(config, net)
    net.give_gradients(0)
    seen: dict[str, list[int]] = {}
    calls = {name: getattr(dist, name) for name in ("all_to_all_single", "all_reduce")}

    def counted(name: str, *args: Any, **kwargs: Any) -> Any:
        tensor, splits = args[0], kwargs.get("output_split_sizes") or [0]
        others = sum(splits) - splits[dist.get_rank() % len(splits)]
        seen.setdefault(name, []).append(others * tensor.element_size())
        return calls[name](*args, **kwargs)

    for name in calls:
        setattr(dist, name, functools.partial(counted, name))
    optimizer.step()
    for name, call in calls.items():
        setattr(dist, name, call)
    return seen


@pytest.mark.parametrize(("config", "reductions"), [(Muon(), 0), (MuonHyperball(), 1)])
def test_a_step_takes_more_messages_than_two_a_bucket_and_one(
    config: Optimizer, reductions: int
) -> None:
    ranks = run_ranks(4, _counted, config)
    for seen in ranks:
        assert len(seen["all_to_all_single"]) == 2  # all matrices are one bucket
        assert len(seen.get("all_reduce", [])) == reductions
    # To owners, each number of a matrix but the owner's own rows; and back.
    shapes = [(18, 64), (3, 18), (1, 64), (64, 18), (18, 64), (24, 10)]
    own = plan([Layout(shape) for shape in shapes], 4, 10**9, 4).owners
    moved = sum(
        columns * (rows - rows_of(owner, rows, 4))
        for (rows, columns), owner in zip(shapes, own, strict=True)
    )
    assert sum(sum(seen["all_to_all_single"]) for seen in ranks) == 2 * 4 * moved


def _collectives(config: Optimizer, replicas: int) -> dict[str, int]:
    """Of a step under FSDP, by kind; also those that a DTensor makes by itself."""
    net = nn.Sequential(nn.Linear(18, 64, bias=False), nn.Linear(64, 18, bias=False))
    shape = (replicas, dist.get_world_size() // replicas)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    for part in (*net, net):
        fully_shard(part, mesh=mesh)
    optimizer = build(config, net)
    net(torch.ones(2, 18)).sum().backward()
    with CommDebugMode() as seen:
        optimizer.step()
    return {str(kind): count for kind, count in seen.get_comm_counts().items()}


@pytest.mark.parametrize("topology", ["2", "2x2"])
@pytest.mark.parametrize(
    ("config", "others"), [(Muon(), {}), (MuonMonaHyperball(), {"c10d.allreduce_": 1})]
)
def test_a_step_under_fsdp_gathers_or_redistributes(
    config: Optimizer, others: dict[str, int], topology: str
) -> None:
    world, replicas = TOPOLOGIES[topology]
    for counts in run_ranks(world, _collectives, config, replicas):
        assert counts == {"c10d.alltoall_base_": 2} | others


def _order() -> list[str]:
    """What the exchange of three buckets does, one after another; bucket k is of numbers k, and
    comes back as 10 k."""
    events: list[str] = []
    send = dist.all_to_all_single

    class Watched:
        def __init__(self, work: Any, of: str) -> None:
            self.work, self.of = work, of

        def wait(self) -> None:
            events.append(f"waited for {self.of}")
            self.work.wait()

    def sent(received: Tensor, given: Tensor, **splits: Any) -> Watched:
        events.append(f"sent {given[0]:g}")
        return Watched(send(received, given, **splits), f"{given[0]:g}")

    def compute(_: list[int], wholes: list[Tensor]) -> list[Tensor]:
        events.append(f"computed {wholes[0][0, 0]:g}")
        return [10 * whole for whole in wholes]

    group = dist.group.WORLD
    assert group is not None
    planned = plan([Layout((4, 4))] * 6, 2, bucket_bytes=0, itemsize=4)
    exchange = Exchange(planned, group, torch.device("cpu"))
    dist.all_to_all_single = sent
    exchange([torch.full((2, 4), float(1 + k // 2)) for k in range(6)], compute, torch.float32)
    dist.all_to_all_single = send
    return events


def test_a_bucket_is_computed_while_no_other_is_on_its_way() -> None:
    for events in run_ranks(2, _order):
        at = {event: place for place, event in enumerate(events)}
        for k in (1, 2):
            assert at[f"sent {k + 1}"] < at[f"computed {k}"] < at[f"waited for {k + 1}"]
            assert at[f"sent {10 * k}"] < at[f"computed {k + 1}"] < at[f"waited for {10 * k}"]


@pytest.mark.parametrize("without", [["wide"], ["wide", "row", "experts", "vector"]])
def test_a_parameter_without_gradient_is_changed_or_waited_for(without: list[str]) -> None:
    """On all ranks, or on one alone, which ends neither in a wait nor in a change of its rows."""

    def after(lonely: bool) -> dict[str, Tensor]:
        net = Matrices().cut()
        optimizer = build(Muon(), net)
        before = everything(net, optimizer)
        for step in range(2):
            alone = lonely and dist.get_rank() != 1
            net.give_gradients(step, without=() if alone else without)
            optimizer.step()
        found = everything(net, optimizer)
        return {} if lonely else {n: found[n] - before[n] for n in without}

    assert all(
        not change.any() for found in run_ranks(2, after, False) for change in found.values()
    )
    run_ranks(2, after, True)


def test_owners_are_unequally_loaded_or_a_bucket_is_too_large() -> None:
    layouts = [Layout((64, 64))] * 7 + [Layout((64, 256))] * 4 + [Layout((8, 8))] * 5
    found = plan(layouts, 4, bucket_bytes=64 * 256, itemsize=4)
    loads = [
        sum(cost(layouts[i]) for i, owner in enumerate(found.owners) if owner == rank)
        for rank in range(4)
    ]
    assert max(loads) < 1.3 * sum(loads) / 4
    assert sorted(itertools.chain(*found.buckets)) == list(range(len(layouts)))
    sizes = [sum(np.prod(layouts[i].shape) for i in bucket) for bucket in found.buckets]
    assert max(sizes) <= 4 * 64 * 256


@pytest.mark.parametrize("bucket_mb", [0, 64, 1000])
def test_most_ranks_wait_while_a_bucket_is_orthogonalized(bucket_mb: int) -> None:
    block = [(4096, 4096)] * 2 + [(1024, 4096)] * 2 + [(14336, 4096)] * 2 + [(4096, 14336)]
    layouts = [Layout(shape) for shape in block * 32]  # llama3_8b
    found = plan(layouts, 16, bucket_bytes=bucket_mb * 10**6, itemsize=2)
    costs = [[0.0] * 16 for _ in found.buckets]
    for own, bucket in zip(costs, found.buckets, strict=True):
        for index in bucket:
            own[found.owners[index]] += cost(layouts[index])
    in_lockstep = sum(max(own) for own in costs)
    assert in_lockstep < 1.5 * sum(map(cost, layouts)) / 16


def test_ranks_with_other_plans_exchange() -> None:
    def disagree() -> str:
        rows = 8 + dist.get_rank()
        group = dist.group.WORLD
        assert group is not None
        try:
            Exchange(plan([Layout((rows, 4))], 2, 10**6, 4), group, torch.device("cpu"))
        except RuntimeError as error:
            return str(error)
        return "no error"

    assert all("different exchanges" in message for message in run_ranks(2, disagree))


@pytest.mark.parametrize("config", [Lion8bit(), Muon()], ids=lambda c: c.name)
def test_bf16_weights_are_rounded_by_where_they_lie(config: Optimizer) -> None:
    def short(cut: bool) -> dict[str, Tensor]:
        net = Matrices(torch.bfloat16)
        net = net.cut() if cut else net
        return everything(net, steps(net, config, count=4))

    expected = run_ranks(1, short, False)[0]
    for world in (2, 4):
        found = run_ranks(world, short, True)[0]
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
