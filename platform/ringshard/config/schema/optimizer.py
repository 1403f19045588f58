"""The update rule and its hyperparameters."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ringshard.config.schema.precision import Dtype

EMA = "ema"
"""Key of the state that holds a weight's average."""


class Scaling(Enum):
    """How the learning rate follows the batch."""

    none = "none"
    linear = "linear"
    sqrt = "sqrt"


class Coefficients(Enum):
    """Polynomials of the Newton-Schulz iteration."""

    polar_express = "polar_express"
    quintic = "quintic"
    keller = "keller"


class Scale(Enum):
    """Factor of an orthogonal update of an (out, in) matrix."""

    original = "original"
    match_rms_adamw = "match_rms_adamw"
    spectral = "spectral"


class ReleaseClip(Enum):
    """By what a gradient is clipped that is used before the others are known."""

    previous_norm = "previous_norm"
    per_tensor = "per_tensor"


@dataclass
class Optimizer:
    """What every optimizer has; a registered one takes the rest from `args`."""

    name: str = "???"
    """Which optimizer: one of those on this page, or a name registered by a user module."""
    lr: float = 1e-3
    """Peak learning rate, of a batch of `lr_reference_batch` if that is set."""
    lr_scaling: Scaling = Scaling.none
    """Factor of all rates: none: 1; linear: global batch / reference batch (Goyal et al. 2017,
    arXiv:1706.02677, for SGD); sqrt: its square root (Malladi et al. 2022, arXiv:2205.10287, for
    Adam; for Muon and Lion too)."""
    lr_reference_batch: int | None = None
    """Batch for which `lr` is meant [`train.batch_unit`]; with lr_scaling=linear or sqrt."""
    weight_decay: float = 0.1
    """Decoupled weight decay of the roles in `decayed`; of a registered optimizer, of parameters
    with two or more dimensions."""
    args: dict[str, Any] = field(default_factory=dict)
    """Arguments of an optimizer registered by a user module."""


@dataclass
class ByRole(Optimizer):
    """An optimizer of ours: what is done with a parameter depends on its role."""

    roles: dict[str, str] = field(default_factory=dict)
    """Role (matrix, experts, embedding, head, vector, other) -> regular expression of the names of
    parameters that get it, whatever they look like; the first that matches counts, and one that
    matches none is an error."""
    decayed: list[str] = field(
        default_factory=lambda: ["matrix", "experts", "embedding", "head", "other"]
    )
    """Roles with weight decay; norms and biases (vector) have none, as in nanoGPT."""
    ema_decay: float = 0.0
    """Decay of an average of the weights over steps, kept in fp32 and saved with the optimizer; an
    evaluation tells its loss too (val/ema_loss); 0: none."""
    release_gradients: bool = False
    """Whether each parameter is updated within the backward pass, as soon as its gradient is known,
    which is then freed: gradients take the memory of the largest one, and no step is skipped as a
    whole."""
    release_clip: ReleaseClip = ReleaseClip.previous_norm
    """What `train.grad_clip` means with release_gradients: previous_norm clips by the global norm
    of the step before (the first step is not clipped), per_tensor by each gradient's own norm."""


@dataclass
class Adam:
    """Decays of Adam's moments."""

    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.95
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the square root of the second moment."""


@dataclass
class AdamW(Adam, ByRole):
    """Loshchilov & Hutter 2019, arXiv:1711.05101."""

    name: str = "adamw"
    """adamw"""


@dataclass
class AdamW8bit(Adam, Optimizer):
    """AdamW with moments in blocks of 256 8-bit numbers, by torchao (pip install
    'ringshard[lowbit]'): 2 instead of 8 bytes of state per parameter. One process only: torchao
    decides by the size of a shard what is quantized."""

    name: str = "adamw8bit"
    """adamw8bit"""


@dataclass
class AdamW4bit(Adam, Optimizer):
    """The same with blocks of 128 4-bit numbers: about 1 byte of state per parameter."""

    name: str = "adamw4bit"
    """adamw4bit"""


@dataclass
class Lion(ByRole):
    """Chen et al. 2023, arXiv:2302.06675: the sign of an interpolated momentum. Its rate is 3 to 10
    times smaller than AdamW's, its weight decay as many times larger."""

    name: str = "lion"
    """lion"""
    lr: float = 3e-4
    """Peak learning rate, of a batch of `lr_reference_batch` if that is set."""
    weight_decay: float = 1.0
    """Decoupled weight decay of the roles in `decayed`."""
    beta1: float = 0.9
    """Share of the momentum in the direction of a step."""
    beta2: float = 0.99
    """Decay of the momentum."""


@dataclass
class Lion8bit(Lion):
    """Lion whose momentum is one signed byte per number and one fp32 scale per 256 of a row: 1.016
    bytes of state per parameter; blocks never cross a row, so that state is sharded as its
    parameter. Vectors keep fp32."""

    name: str = "lion8bit"
    """lion8bit"""


@dataclass
class Muon(Adam, ByRole):
    """Jordan et al. 2024 (kellerjordan.github.io/posts/muon): hidden matrices and experts get the
    orthogonal factor of their momentum, all other parameters AdamW. Sharded, each matrix is
    orthogonalized whole by one rank."""

    name: str = "muon"
    """muon"""
    lr: float = 6e-3
    """Peak learning rate of matrices, of a batch of `lr_reference_batch` if that is set."""
    adamw_lr: float | None = None
    """Peak learning rate of all other parameters; null: `lr`."""
    momentum: float = 0.95
    """Decay of the momentum, an average of gradients."""
    nesterov: bool = True
    """Whether the newest gradient counts once more."""
    coefficients: Coefficients = Coefficients.polar_express
    """Five steps of the iteration. polar_express: Amsel et al. 2025, arXiv:2505.16932; quintic: of
    modded-nanogpt; keller: Jordan's, as torch.optim.Muon."""
    scale: Scale = Scale.match_rms_adamw
    """Factor of an update: match_rms_adamw 0.2 √max(out, in), with which AdamW's rates hold (Liu et
    al. 2025, arXiv:2502.16982); original √max(1, out / in); spectral √(out / in)."""
    ns_dtype: Dtype | None = None
    """Format of the iteration and of what is sent for it; null: bf16 on a GPU, fp32 on a CPU."""
    splits: dict[str, list[int]] = field(default_factory=dict)
    """Regular expression of names of fused matrices -> outputs of each of them [rows]. Fused
    queries, keys and values, one after another, are split without being told."""
    bucket_mb: int = 64
    """Size of what a rank orthogonalizes at a time, one matrix at least, while the next are on
    their way [MB]."""


@dataclass
class Mona:
    """Experimental. An acceleration term on the gradient."""

    mona_beta: float = 0.975
    """Decay of the slow average of gradients."""
    mona_alpha: float | None = None
    """Weight of the acceleration, an average of differences of gradients; null: the paper's rule,
    -1 / (2 (1 - mona_beta)), negative: half of the gradient becomes the slow average."""


@dataclass
class Hyperball:
    """Experimental. A matrix keeps the norm it began with, and has no weight decay."""

    normalize_update: bool = True
    """Whether an update too is brought to that norm, as in the paper, so that `lr` is about the
    angle of a step [rad]; false: the weights are projected after the usual update."""


@dataclass
class MuonMona(Mona, Muon):
    """Experimental. Muon on gradients with MONA's acceleration term (arXiv:2605.26842)."""

    name: str = "muon_mona"
    """muon_mona"""


@dataclass
class MuonHyperball(Hyperball, Muon):
    """Experimental. Muon on spheres of constant norm (Wen et al. 2026, arXiv:2606.16899)."""

    name: str = "muon_hyperball"
    """muon_hyperball"""
    lr: float = 0.02
    """Peak learning rate of matrices, the angle of a step if normalize_update [rad], of a batch of
    `lr_reference_batch` if that is set."""
    adamw_lr: float | None = 3e-3
    """Peak learning rate of all other parameters; null: `lr`."""


@dataclass
class MuonMonaHyperball(Mona, MuonHyperball):
    """Experimental. Both."""

    name: str = "muon_mona_hyperball"
    """muon_mona_hyperball"""


@dataclass
class AdamWHyperball(Hyperball, AdamW):
    """Experimental. Adam's direction on spheres of constant norm for matrices and experts, AdamW
    for all other parameters (Wen et al. 2026, arXiv:2606.16899, AdamH)."""

    name: str = "adamw_hyperball"
    """adamw_hyperball"""
    lr: float = 0.01
    """Peak learning rate of matrices, the angle of a step if normalize_update [rad], of a batch of
    `lr_reference_batch` if that is set."""
    adamw_lr: float | None = 3e-3
    """Peak learning rate of all other parameters; null: `lr`."""
    splits: dict[str, list[int]] = field(default_factory=dict)
    """As of muon: each of several fused matrices keeps a norm of its own."""


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adamw": AdamW,
    "adamw8bit": AdamW8bit,
    "adamw4bit": AdamW4bit,
    "lion": Lion,
    "lion8bit": Lion8bit,
    "muon": Muon,
    "muon_mona": MuonMona,
    "muon_hyperball": MuonHyperball,
    "muon_mona_hyperball": MuonMonaHyperball,
    "adamw_hyperball": AdamWHyperball,
}
