"""Short trainings of a very small model on ragged rows, on any number of forked ranks."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch._dynamo  # which an operator of ring attention imports: once here, not in each rank
from ranks import run_ranks

from ringshard import optim
from ringshard.checkpoint.state import TrainState
from ringshard.config.length import Length
from ringshard.config.schema.data import Data
from ringshard.config.schema.job import Job
from ringshard.config.schema.model import Model
from ringshard.config.schema.optimizer import AdamW
from ringshard.config.schema.parallelism import Parallelism
from ringshard.config.schema.schedule import Cosine
from ringshard.config.schema.train import Train
from ringshard.data.dataset import Rows, concatenated
from ringshard.model.names import canonical
from ringshard.parallel import mesh as meshes
from ringshard.train.batches import Batches
from ringshard.train.network import model_on
from ringshard.train.noise import NoiseScale
from ringshard.train.pieces import Cutter
from ringshard.train.recorder import Peak, Recorder
from ringshard.train.trainer import Trainer

VOCAB = 61  # divided by no number of ranks
MODELS = {
    "llama": Model(
        type="llama",
        config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
        },
        head_chunk=24,
    ),
    "gpt2": Model(
        type="gpt2",
        config={"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        | dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    ),
    "qwen3_tied": Model(
        type="qwen3",
        config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "tie_word_embeddings": True,
        },
    ),
}


@dataclass(frozen=True)
class RaggedRows:
    """Rows of a noisy counting language; each learns another number of its tokens, some none."""

    learned_at_most: int = 10**9
    """Tokens of all rows, from the first on, that are learned; none after them."""
    length: int = 32
    """Tokens of a row."""
    learned_before: int = 10**9
    """Where in each row learning ends."""

    def read(self, first: int, last: int) -> Rows:
        """Rows [first, last), each a function of its number."""
        rows = [self._row(k) for k in range(last)]
        tokens, learned, corpus = (np.stack(column) for column in zip(*rows, strict=True))
        learned &= learned.cumsum().reshape(learned.shape) <= self.learned_at_most
        tokens, learned = tokens[:, : self.length + 1], learned[:, : self.length]
        learned[:, self.learned_before :] = False
        bounds = [np.array([0, self.length])] * (last - first)
        padding = np.zeros(last - first, dtype=np.int64)
        return Rows(tokens[first:], learned[first:], corpus[first:], bounds, padding)

    def _row(self, k: int) -> tuple[Any, Any, Any]:
        random = np.random.default_rng(k)
        steps = random.choice([1, 2], 33, p=[0.9, 0.1])
        tokens = (random.integers(VOCAB) + np.cumsum(steps)) % VOCAB
        learned = np.arange(32) < random.choice([0, 3, 17, 32])
        return tokens.astype(np.int64), learned, np.int64(k % 2)


DOCUMENTS = 3
"""In each packed row."""


@dataclass(frozen=True)
class PackedRows(RaggedRows):
    """The same with two documents in each row, and padding."""

    length: int = 29
    """No multiple of anything that cuts it."""

    def read(self, first: int, last: int) -> Rows:
        """Rows [first, last)."""
        rows = super().read(first, last)
        bounds = [self.bounds(k) for k in range(first, last)]
        for learned, edges in zip(rows.loss_mask, bounds, strict=True):
            learned[edges[1:] - 1] = False  # the next document's first token
            learned[edges[-2] :] = False  # padding
        padding = np.array([edges[-1] - edges[-2] for edges in bounds])
        return rows._replace(bounds=bounds, padding=padding)

    def bounds(self, k: int) -> Any:
        """Of row k: three documents, the last of them padding."""
        cuts = np.random.default_rng(k).choice(np.arange(1, self.length), DOCUMENTS - 1, False)
        return np.array([0, *sorted(cuts), self.length])


@dataclass(frozen=True)
class RowsApart(RaggedRows):
    """Each document of the packed rows in a row of its own, with padding behind."""

    def read(self, first: int, last: int) -> Rows:
        """Rows [first, last); DOCUMENTS of them are a packed one."""
        packed = PackedRows()
        parts = [packed.read(k // DOCUMENTS, k // DOCUMENTS + 1) for k in range(first, last)]
        for k, part in zip(range(first, last), parts, strict=True):
            start, end = part.bounds[0][k % DOCUMENTS :][:2]
            inside = np.arange(packed.length) < end - start
            part.tokens[0] = np.roll(part.tokens[0], -start)
            part.loss_mask[0] = np.roll(part.loss_mask[0], -start) & inside
        read = concatenated(parts)
        return read._replace(bounds=[np.array([0, packed.length])] * (last - first))


@dataclass(frozen=True)
class Topology:
    """One way to do the same training."""

    world: int = 1
    parallelism: Parallelism = field(default_factory=Parallelism)
    micro_batch: int = 8


@dataclass(frozen=True)
class Curve:
    """What a training came to."""

    losses: list[float]
    norms: list[float]
    by_corpus: list[dict[str, float]]
    parameters: dict[str, torch.Tensor]
    tokens_seen: int
    padding: list[float] = field(default_factory=list)
    noise: list[dict[str, float]] = field(default_factory=list)


def train(topology: Topology, model: str = "llama", rows: RaggedRows | None = None) -> Curve:
    """The curve of 20 steps under `topology`, as rank 0 saw it."""
    return train_job(topology.world, job(topology, model), rows or RaggedRows())


def train_job(world: int, config: Job, rows: RaggedRows) -> Curve:
    """The curve of a job, as rank 0 saw it."""
    return run_ranks(world, _train, config, rows)[0]


def job(topology: Topology, model: str = "llama", **train: Any) -> Job:
    """The same job for every topology."""
    return Job(
        model=MODELS[model],
        parallelism=topology.parallelism,
        optimizer=AdamW(lr=1e-2),
        schedule=Cosine(warmup_steps=3),
        data=Data(seq_len=32),
        train=Train(
            **{"steps": 20, "global_batch": 16} | train,
            micro_batch=topology.micro_batch,
            grad_clip=1.0,
        ),
    )


def _train(config: Job, rows: RaggedRows) -> Curve:
    mesh = meshes.build(config.parallelism, torch.device("cpu"))
    network = model_on(mesh, config, VOCAB)
    length = Length.of(config.train, config.data)
    cutter = Cutter.of(config, mesh.ring)
    history = _History()
    optimizer = optim.build(config.optimizer, network, config.train.seed)
    trainer = Trainer(
        job=config,
        mesh=mesh,
        model=network,
        optimizer=optimizer,
        release=optim.release(config.optimizer, optimizer, config.train.grad_clip),
        batches=Batches(
            rows,
            length.rows,
            mesh.dp_rank,
            mesh.dp_size,
            cut=cutter.ahead(config.train.micro_batch),
        ),
        cutter=cutter,
        length=length,
        state=TrainState(step=0, tokens_seen=0, rows_read=0),
        recorder=Recorder(Peak(1.0, 1.0, mesh.world_size), mesh.device, ["even", "odd"]),
        hooks=[history],
        stop_requested=lambda: False,
        noise=NoiseScale(config.train.noise_scale_every),
    )
    assert trainer.run()
    trainer.close()
    return replace(
        history.curve, parameters=full_parameters(network), tokens_seen=trainer.state.tokens_seen
    )


class _History:
    """A hook that keeps every step's metrics."""

    def __init__(self) -> None:
        self.curve = Curve([], [], [], {}, 0)

    def after_step(self, trainer: Trainer, last: bool) -> None:
        """Flushes the recorder at every second step, so that an interval holds more than one."""
        if trainer.state.step % 2 and not last:
            return
        for metrics in trainer.recorder.flush():
            self.curve.losses.append(metrics["train/loss"])
            self.curve.norms.append(metrics["train/grad_norm"])
            self.curve.padding.append(metrics["data/padding"])
            noise = {k: v for k, v in metrics.items() if k.startswith("noise/")}
            if noise:
                self.curve.noise.append(noise)
        self.curve.by_corpus.append(
            {k: v for k, v in metrics.items() if k.startswith("train/loss/")}
        )


def full_parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter whole, by canonical name."""
    return {
        canonical(name): (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone()
        for name, p in model.named_parameters()
    }


def assert_equal_curves(
    one: Curve, other: Curve, relative: float = 1e-5, weights: float = 2e-5
) -> None:
    """C1: loss and gradient norm of every step, per-corpus losses, and the parameters at the
    end.

    weights: how far parameters may be apart; AdamW makes full steps of small gradients, hence of
    sums in another order.
    """
    np.testing.assert_allclose(other.losses, one.losses, rtol=relative)
    np.testing.assert_allclose(other.norms, one.norms, rtol=relative)
    assert other.tokens_seen == one.tokens_seen
    assert other.padding == one.padding
    for mine, theirs in zip(one.by_corpus, other.by_corpus, strict=True):
        assert mine.keys() == theirs.keys()
        np.testing.assert_allclose(list(theirs.values()), list(mine.values()), rtol=relative)
    for name, parameter in one.parameters.items():
        # A key bias has gradient 0 in theory (softmax does not see it), and AdamW makes full
        # steps of what rounding leaves of that.
        tolerance = 2e-3 if name.endswith("c_attn.bias") else weights
        torch.testing.assert_close(
            other.parameters[name],
            parameter,
            rtol=1e-4,
            atol=tolerance,
            msg=lambda m, n=name: f"{n}: {m}",
        )
