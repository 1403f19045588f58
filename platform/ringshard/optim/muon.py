"""Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): momentum, orthogonalized.

m ← μ m + (1 - μ) g;  u = μ m + (1 - μ) g (Nesterov) or m;  W ← W (1 - η λ) - η s O(u), O the
Newton-Schulz iteration and s a factor of the shape. Stages that may come before and after: MONA on
the gradient, Hyperball in place of the last equation.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ringshard.config.schema import optimizer as schema
from ringshard.config.schema.optimizer import Scale
from ringshard.config.schema.precision import Dtype
from ringshard.optim import mona
from ringshard.optim.exchange import Exchange, plan
from ringshard.optim.hyperball import Spheres
from ringshard.optim.layout import Layout
from ringshard.optim.newton_schulz import POLYNOMIALS, orthogonalize_all
from ringshard.optim.roles import Parameter
from ringshard.optim.ruled import Rates
from ringshard.optim.slot import Slot, counter, first_row, shard_group, zeros
from ringshard.parallel.parallelize import TORCH_DTYPES


def scale(rule: Scale, outputs: int, inputs: int) -> float:
    """Factor of an orthogonal update, by its shape; its numbers have a root mean square of
    1 / √max(out, in)."""
    match rule:
        case Scale.original:  # github.com/KellerJordan/Muon
            return math.sqrt(max(1, outputs / inputs))
        case Scale.match_rms_adamw:  # 0.2, as AdamW's: Liu et al. 2025, arXiv:2502.16982
            return 0.2 * math.sqrt(max(outputs, inputs))
        case Scale.spectral:  # the same rate for any width: Yang et al. 2023, arXiv:2310.17813
            return math.sqrt(outputs / inputs)


class Muon:
    """Muon, with MONA and Hyperball where the configuration has their fields."""

    def __init__(
        self, config: schema.Muon, layouts: Mapping[str, Layout], initialized: bool = True
    ) -> None:
        """layouts: by name; initialized: whether the weights are there, or garbage that a
        checkpoint overwrites."""
        self.name = config.name
        self.config, self.initialized = config, initialized
        self.layouts = layouts
        self.mona = config if isinstance(config, schema.Mona) else None
        self.hyperball = config if isinstance(config, schema.Hyperball) else None
        self.spheres: Spheres | None = None
        self.exchange: Exchange | None = None

    def states(self, parameters: Sequence[Parameter]) -> list[dict[str, Tensor]]:
        """See Rule. Raises ConfigError for a matrix that is 0, on a sphere."""
        tensors = [parameter.tensor for parameter in parameters]
        device = tensors[0].device
        self.dtype = TORCH_DTYPES[
            self.config.ns_dtype or (Dtype.bf16 if device.type == "cuda" else Dtype.fp32)
        ]
        states = [{"step": counter(tensor), "momentum": zeros(tensor)} for tensor in tensors]
        for state, tensor in zip(states, tensors, strict=True):
            if self.mona:
                state["slow_gradient"] = zeros(tensor)
        self._share(parameters)
        if self.hyperball:
            group = shard_group(tensors)
            self.spheres = Spheres(self.layouts, self.hyperball.normalize_update, group)
            radii = self.spheres.radii(parameters, refuse_zero=self.initialized)
            for state, radius in zip(states, radii, strict=True):
                state["radius"] = radius
        return states

    def _share(self, parameters: Sequence[Parameter]) -> None:
        """Decides who orthogonalizes what, where matrices are cut."""
        group = shard_group([parameter.tensor for parameter in parameters])
        self.is_cut = group is not None
        found = [self.layouts[parameter.name] for parameter in parameters]
        flat = [layout for layout in found if not layout.is_stack]
        if group is not None and flat:
            room = self.config.bucket_mb * 10**6
            planned = plan(flat, group.size(), room, self.dtype.itemsize)
            self.exchange = Exchange(planned, group, parameters[0].tensor.device)

    def step(self, slots: Sequence[Slot], rates: Rates, ok: Tensor) -> None:
        """See Rule."""
        for portion in self._portions(slots):
            self._step(portion, rates, ok)

    def _portions(self, slots: Sequence[Slot]) -> list[list[Slot]]:
        """Whole matrices a bucket at a time, so that no more of them have copies; sharded ones
        together, which the exchange takes in buckets."""
        portions: list[list[Slot]] = [[]]
        room = float(self.config.bucket_mb * 10**6)
        for slot in slots:
            size = slot.parameter.numel() * self.dtype.itemsize
            if portions[-1] and not self.is_cut and size > room:
                portions.append([])
                room = float(self.config.bucket_mb * 10**6)
            portions[-1].append(slot)
            room -= size
        return portions

    def _step(self, slots: Sequence[Slot], rates: Rates, ok: Tensor) -> None:
        directions = [self._direction(slot, ok) for slot in slots]
        updates = self._orthogonal(slots, directions)
        if self.spheres:
            self.spheres.step(slots, updates, self._rates(slots, rates.lr, ok.device), ok)
        else:
            for slot, update in zip(slots, updates, strict=True):
                self._descend(slot, update, rates, ok)

    def _direction(self, slot: Slot, ok: Tensor) -> Tensor:
        """This rank's rows of what is to be orthogonalized; of a parameter without gradient, the
        momentum, unchanged: other ranks may wait for it."""
        gradient, mu = slot.gradient, self.config.momentum
        if gradient is None:
            return slot.held("momentum")
        if self.mona:
            beta = self.mona.mona_beta
            share = mona.weight(self.mona.mona_alpha, beta)
            slow, step = slot.held("slow_gradient"), slot.state["step"]
            gradient, slow = mona.accelerated(gradient, slow, step, beta, share)
            slot.keep("slow_gradient", slow, ok)
        momentum = torch.lerp(slot.held("momentum"), gradient, 1 - mu)
        slot.keep("momentum", momentum, ok)
        slot.count(ok)
        return torch.lerp(gradient, momentum, mu) if self.config.nesterov else momentum

    def _orthogonal(self, slots: Sequence[Slot], directions: Sequence[Tensor]) -> list[Tensor]:
        """This rank's rows of each orthogonal factor, in the format of the iteration."""
        layouts = [self.layouts[slot.name] for slot in slots]
        if self.exchange is None:
            offsets = [first_row(slot.parameter) for slot in slots]
            return self._iterated(layouts, directions, offsets)
        flat = [i for i, layout in enumerate(layouts) if not layout.is_stack]
        found: dict[int, Tensor] = {}
        for i, layout in enumerate(layouts):
            if layout.is_stack:  # one at a time: they are large, and whole matrices already
                offset = first_row(slots[i].parameter)
                (found[i],) = self._iterated([layout], [directions[i]], [offset])
        exchanged = self.exchange(
            [directions[i] for i in flat],
            lambda owned, wholes: self._iterated(
                [layouts[flat[i]] for i in owned], wholes, [0] * len(owned)
            ),
            self.dtype,
        )
        found |= dict(zip(flat, exchanged, strict=True))
        return [found[i] for i in range(len(slots))]

    def _iterated(
        self, layouts: Sequence[Layout], parts: Sequence[Tensor], offsets: Sequence[int]
    ) -> list[Tensor]:
        """The orthogonal factors of whole matrices, put back where they were."""
        cut = [
            layout.blocks(part, offset)
            for layout, part, offset in zip(layouts, parts, offsets, strict=True)
        ]
        polynomials = POLYNOMIALS[self.config.coefficients]
        blocks = [block for blocks in cut for block in blocks]
        results = iter(orthogonalize_all(blocks, polynomials, self.dtype))
        found = []
        for layout, part, offset in zip(layouts, parts, offsets, strict=True):
            target = torch.empty_like(part, dtype=self.dtype, memory_format=torch.contiguous_format)
            for block in layout.blocks(target, offset):
                block.copy_(next(results))
            found.append(target)
        return found

    def _descend(self, slot: Slot, update: Tensor, rates: Rates, ok: Tensor) -> None:
        if slot.gradient is None:
            return
        layout, offset = self.layouts[slot.name], first_row(slot.parameter)
        weight = slot.weight * (1 - rates.lr * rates.decay)
        pairs = zip(layout.blocks(weight, offset), layout.blocks(update, offset), strict=True)
        for (block, change), shape in zip(pairs, layout.matrices, strict=True):
            block.add_(change, alpha=-rates.lr * scale(self.config.scale, *shape))
        slot.write(weight, ok)

    def _rates(self, slots: Sequence[Slot], lr: float, device: torch.device) -> Tensor:
        """(K,) η of each matrix on a sphere: its shape counts only where its update has the usual
        length."""
        assert self.hyperball is not None
        shapes = [shape for slot in slots for shape in self.layouts[slot.name].matrices]
        normalized = self.hyperball.normalize_update
        factors = [1.0 if normalized else scale(self.config.scale, *shape) for shape in shapes]
        return torch.tensor(factors, dtype=torch.float64).to(device, non_blocking=True) * lr
