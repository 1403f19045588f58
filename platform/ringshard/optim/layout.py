"""Which matrices a parameter holds: one, several fused along their outputs, or a stack of experts.

Orthogonalizing a fused matrix as a whole would mix its parts, and shape rules want to know outputs
from inputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from ringshard.config.roles import split
from ringshard.optim.roles import Parameter


@dataclass(frozen=True)
class Layout:
    """The matrices of one parameter."""

    shape: tuple[int, ...]
    """(out, in) or (experts, out, in); with `transposed`, (in, out) or (experts, in, out)."""
    transposed: bool = False
    """Whether inputs come before outputs."""
    sizes: tuple[int, ...] = ()
    """Outputs of each of several fused matrices; empty: they are one."""

    @property
    def is_stack(self) -> bool:
        """Whether the first dim counts matrices, so that a shard of it holds whole ones."""
        return len(self.shape) == 3

    @property
    def outputs(self) -> int:
        """Outputs of all fused matrices together."""
        return self.shape[-1] if self.transposed else self.shape[-2]

    @property
    def inputs(self) -> int:
        """Inputs of each matrix."""
        return self.shape[-2] if self.transposed else self.shape[-1]

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """(out, in) of each matrix."""
        fused = [(size, self.inputs) for size in self.sizes or (self.outputs,)]
        return fused * (self.shape[0] if self.is_stack else 1)

    def blocks(self, part: Tensor, offset: int = 0) -> list[Tensor]:
        """Views of what lies of each matrix in `part`, the rows of the parameter from `offset` on,
        as (out, in); empty where nothing does."""
        if not self.is_stack:
            return self._fused(part, offset)
        found = []
        for expert in range(self.shape[0]):
            inside = offset <= expert < offset + len(part)
            one = part[expert - offset] if inside else part.new_empty(0, *self.shape[2:])
            found += self._fused(one, 0)
        return found

    def _fused(self, part: Tensor, offset: int) -> list[Tensor]:
        """part (rows, columns): of one matrix, or of several fused ones."""
        ends = list(accumulate(self.sizes or (self.outputs,)))
        starts = [0, *ends[:-1]]
        if self.transposed:
            return [part[:, a:b].T for a, b in zip(starts, ends, strict=True)]
        last = len(part)
        return [
            part[min(max(a - offset, 0), last) : min(max(b - offset, 0), last)]
            for a, b in zip(starts, ends, strict=True)
        ]


def layouts(
    found: Sequence[Parameter], splits: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Layout]:
    """The layout of each matrix and stack of experts in `found`, by name; splits, and what is
    raised: see ringshard.config.roles."""
    weights = split([parameter.weight for parameter in found], splits or {})
    return {w.name: Layout(tuple(w.shape), w.transposed, tuple(w.sizes)) for w in weights}
