"""One optimizer step: forward and backward over the micro-batches, clip, update."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_

from ringshard.model.head import IGNORED
from ringshard.parallel.parallelize import accumulate
from ringshard.train.pieces import Piece


@dataclass(frozen=True)
class CorpusLosses:
    """Running sums over corpora on the device."""

    losses: Tensor
    """(corpora,) fp64: sum of token losses [nats]."""
    counts: Tensor
    """(corpora,) fp64: learned tokens, which fp32 could not count beyond 2^24."""

    @classmethod
    def zeros(cls, corpora: int, device: torch.device) -> "CorpusLosses":
        """Sums of nothing."""
        losses, counts = torch.zeros(2, corpora, dtype=torch.float64, device=device)
        return cls(losses, counts)

    def add(self, piece: Piece, token_losses: Tensor) -> None:
        """Adds a piece's token losses (B·S,) to the corpora of its rows."""
        learned = piece.targets != IGNORED
        losses = token_losses.view_as(learned).sum(1).to(self.losses.dtype)
        self.losses.index_add_(0, piece.corpus, losses)
        self.counts.index_add_(0, piece.corpus, learned.sum(1).to(self.counts.dtype))


def forward_backward(
    model: nn.Module,
    pieces: Sequence[Piece],
    targets: int,
    device: torch.device,
    corpora: CorpusLosses | None = None,
) -> Tensor:
    """Adds the gradients of this rank's part of the loss, and returns that part (fp32 scalar, no
    gradient).

    pieces: this rank's part of each micro-batch, equally many on all ranks; targets: learned tokens
    of the *whole* global batch. The parts of all ranks sum to the loss of
    the step.
    """
    loss = torch.zeros((), device=device)
    for index, piece in enumerate(pieces):
        piece = piece.to(device)
        accumulate(model, last=index == len(pieces) - 1)
        loss_sum, token_losses, _ = model(piece.input_ids, targets=piece.targets, **piece.context)
        (loss_sum / targets).backward()
        loss += loss_sum.detach() / targets
        if corpora is not None:
            corpora.add(piece, token_losses)
    return loss


def clip_gradients(model: nn.Module, max_norm: float) -> Tensor:
    """Scales all gradients so that their global norm is at most `max_norm` (0: leaves them).

    Returns the norm before clipping, in fp32, the same on every rank (Pascanu et al. 2013,
    arXiv:1211.5063).
    """
    parameters = [p for p in model.parameters() if p.grad is not None]
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float32)
    norm = torch.linalg.vector_norm(torch.stack(norms))
    norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
    if max_norm > 0:
        clip_grads_with_norm_(parameters, max_norm, norm, foreach=True)
    return norm


def update(optimizer: torch.optim.Optimizer, lr: float, grad_norm: Tensor) -> None:
    """Steps the optimizer at rate `lr`, unless the gradient is not finite: then nothing changes.

    Fused optimizers skip on the device and the host never waits. The norm is equal on all ranks,
    so they agree.
    """
    for group in optimizer.param_groups:
        rate = lr * group.get("lr_scale", 1.0)
        if isinstance(group["lr"], Tensor):  # of a compiled optimizer
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    finite = grad_norm.isfinite()
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        fused: Any = optimizer
        fused.found_inf = (~finite).to(torch.float32)
        optimizer.step()
    elif bool(finite):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
