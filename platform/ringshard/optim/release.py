"""Gradients that are used within the backward pass, one by one, and freed.

So no more than the largest one exists (LOMO, Lv et al. 2023, arXiv:2306.09782). One hook for each
parameter calls the same update rule as a whole step would. What needs all gradients first can't be
had: the norm of a step's own gradient to clip by, a step that is skipped as a whole. A gradient
that is not finite is left out by itself, of a sharded one each rank's part: only then does what
follows depend on the topology.
"""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ringshard.config.schema.optimizer import ReleaseClip
from ringshard.model.init import local
from ringshard.optim.hyperball import squared_norm
from ringshard.optim.ruled import Ruled
from ringshard.optim.slot import Slot, shard_group

NORM = "squared_norm"
"""State: ‖g‖² of the last finite gradient, by which the next step clips; so it resumes exactly."""


class Release:
    """Steps `optimizer` within each backward pass between `begin` and `finish`."""

    def __init__(self, optimizer: Ruled, clip: ReleaseClip, max_norm: float) -> None:
        """max_norm: 0 for no clipping. Adds state: call it before a checkpoint is loaded."""
        self.optimizer, self.clip, self.max_norm = optimizer, clip, max_norm
        self._slots: list[Slot] = []
        self._squares: dict[str, Tensor] = {}
        for index, slots in enumerate(optimizer.slots):
            for slot in slots:
                slot.state[NORM] = torch.zeros((), device=local(slot.parameter).device)
                parameter: Any = slot.parameter  # torch's method has no types
                parameter.register_post_accumulate_grad_hook(partial(self._use, index, slot))
                self._slots.append(slot)
        self._group = shard_group([slot.parameter for slot in self._slots])
        self._factor = self._by_previous_norm()

    def begin(self, lr: float) -> None:
        """Before the forward pass of a step, whose learning rate is `lr`."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["lr_scale"]
        self._squares = {}
        self._factor = self._by_previous_norm()

    def finish(self) -> Tensor:
        """After the backward pass: the norm of all gradients of the step, the same on all ranks."""
        device = self._factor.device
        none = torch.zeros((), dtype=torch.float64, device=device)
        squares = torch.stack([self._squares.get(slot.name, none) for slot in self._slots])
        if self._group is not None:
            dist.all_reduce(squares, group=self._group)
        for slot, square in zip(self._slots, squares.float(), strict=True):
            slot.keep(NORM, square, square.isfinite())
        return squares.sum().sqrt().float()

    @torch.no_grad()
    def _use(self, index: int, slot: Slot, _: Tensor) -> None:
        """The hook: the gradient of one parameter is known."""
        gradient = slot.parameter.grad
        assert gradient is not None
        assert slot.name not in self._squares, f"{slot.name} has a second gradient in one step"
        square = squared_norm(local(gradient))
        self._squares[slot.name] = square
        local(gradient).mul_(self._clipping(square))
        self.optimizer.step_slots(index, [slot], square.isfinite())
        slot.parameter.grad = None

    def _clipping(self, square: Tensor) -> Tensor:
        if self.clip is ReleaseClip.previous_norm or self.max_norm == 0:
            return self._factor
        return self._to_at_most(square.sqrt())

    def _by_previous_norm(self) -> Tensor:
        return self._to_at_most(
            torch.stack([slot.state[NORM] for slot in self._slots]).sum().sqrt()
        )

    def _to_at_most(self, norm: Tensor) -> Tensor:
        """0-dim fp32: what brings a gradient of this norm to `max_norm`; 1 for one of 0."""
        if self.max_norm == 0:
            return torch.ones((), device=norm.device)
        return (self.max_norm / (norm + 1e-6)).clamp(max=1.0).float()
