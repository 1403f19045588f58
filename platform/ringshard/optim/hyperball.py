"""Hyperball: weights on a sphere of the norm R they began with. Experimental.

Wen et al. 2026, arXiv:2606.16899: W ← R · N(W - η R N(u)), N(X) = X / ‖X‖ (Frobenius), u any
direction of an update. With normalize=False the update is the usual one and W is projected after
it. Each matrix of a fused parameter, and each expert, is on a sphere of its own.

Measured on 1.1 M parameters and 200 steps (LOG.md, optimizers): a validation loss of 2.06, where
Muon alone came to 1.91, and of 2.24, where AdamW came to 2.21.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ringshard.errors import ConfigError
from ringshard.model.init import local
from ringshard.optim.layout import Layout
from ringshard.optim.roles import Parameter
from ringshard.optim.slot import Slot, first_row

Reduce = Callable[[Tensor], None]
"""Sums a tensor over the ranks that hold the shards of the matrices, in place."""


def squared_norm(x: Tensor) -> Tensor:
    """Σ x² in fp64: in fp32 the norm of a large matrix would drift by 1e-5."""
    norm: Tensor = torch.linalg.vector_norm(x, dtype=torch.float64)
    return norm.square()


def on_sphere(
    weights: Sequence[Tensor],
    updates: Sequence[Tensor],
    radius: Tensor,
    rates: Tensor,
    normalize: bool,
    reduce: Reduce,
) -> list[Tensor]:
    """The new weights R · N(W - c u): c = η R / ‖u‖ if `normalize`, else η.

    weights, updates: this rank's parts of K matrices, fp32; radius (K,); rates (K,) fp64: η of
    each. One message for all: the norm of W - c u follows from ‖W‖², W·u and ‖u‖². A matrix whose
    update is 0 stays as it is.
    """
    products = [(w * u).sum(dtype=torch.float64) for w, u in zip(weights, updates, strict=True)]
    squares = [squared_norm(w) for w in weights], [squared_norm(u) for u in updates]
    sums = torch.stack([torch.stack(rows) for rows in (squares[0], products, squares[1])])  # (3, K)
    reduce(sums)
    ww, wu, uu = sums
    moves, r = uu > 0, radius.double()
    c = torch.where(moves, rates * r / uu.sqrt() if normalize else rates, 0)
    trial = (ww - 2 * c * wu + c.square() * uu).sqrt()
    s = torch.where(moves, r / trial, 1)
    return [sk * (w - ck * u) for w, u, ck, sk in zip(weights, updates, c, s, strict=True)]


class Spheres:
    """The spheres of all matrices of a group of parameters."""

    def __init__(
        self, layouts: Mapping[str, Layout], normalize: bool, group: dist.ProcessGroup | None
    ) -> None:
        """layouts: by name; group: the ranks that the parameters are sharded over; None: they are
        whole."""
        self.layouts, self.normalize, self.group = layouts, normalize, group

    def radii(self, parameters: Sequence[Parameter], refuse_zero: bool) -> list[Tensor]:
        """Of each parameter, the norm of each of its matrices (K,) fp32, the same on all ranks.

        Raises ConfigError with the name of a matrix that is 0, whose direction nothing says.
        """
        parts = [
            self.layouts[p.name].blocks(local(p.tensor).detach(), first_row(p.tensor))
            for p in parameters
        ]
        squares = torch.stack([squared_norm(block) for blocks in parts for block in blocks])
        self._reduce(squares)
        found = torch.split(squares.sqrt().float(), [len(blocks) for blocks in parts])
        if refuse_zero:
            for radius, parameter in zip(found, parameters, strict=True):
                _refuse_zero(radius, parameter.name)
        return [radius.clone() for radius in found]

    def step(
        self, slots: Sequence[Slot], updates: Sequence[Tensor], rates: Tensor, ok: Tensor
    ) -> None:
        """Moves the weights of all slots; updates: this rank's part of each direction; rates (K,)
        fp64: η of each matrix of all of them."""
        weights = [slot.weight for slot in slots]
        new = on_sphere(
            self._blocks(slots, weights),
            self._blocks(slots, [update.float() for update in updates]),
            torch.cat([slot.state["radius"] for slot in slots]),
            rates,
            self.normalize,
            self._reduce,
        )
        targets = [torch.empty_like(weight) for weight in weights]
        for block, value in zip(self._blocks(slots, targets), new, strict=True):
            block.copy_(value)
        for slot, target in zip(slots, targets, strict=True):
            if slot.gradient is not None:
                slot.write(target, ok)

    def _blocks(self, slots: Sequence[Slot], parts: Sequence[Tensor]) -> list[Tensor]:
        return [
            block
            for slot, part in zip(slots, parts, strict=True)
            for block in self.layouts[slot.name].blocks(part, first_row(slot.parameter))
        ]

    def _reduce(self, sums: Tensor) -> None:
        """Over the shards only: replicas hold the same, and would count it again."""
        if self.group is not None:
            dist.all_reduce(sums, group=self.group)


def _refuse_zero(radius: Tensor, name: str) -> None:
    if not bool((radius > 0).all()):
        raise ConfigError(
            f"optimizer: {name} begins at zero, and a sphere of radius 0 has no direction: "
            f"initialise it, or give optimizer.roles.other={name}"
        )
