"""`ringshard checkpoint …` on the checkpoints of a run that was trained."""

import resource
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from ranks import run_ranks
from runs import curve, run_attempt, small_job
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel
from typer.testing import CliRunner

from ringshard.checkpoint import directory
from ringshard.checkpoint.commands import app
from ringshard.checkpoint.export import to_torch, to_transformers
from ringshard.checkpoint.manifest import Manifest
from ringshard.checkpoint.save import Place, save
from ringshard.checkpoint.state import TrainState
from ringshard.config.schema.job import Job
from ringshard.data.dataset import Dataset
from ringshard.errors import ConfigError
from ringshard.parallel.parallelize import reshard
from ringshard.registry import register

Trained = tuple[Path, dict[str, torch.Tensor]]
TOKENS = torch.arange(24).view(2, 12) % 20


@register("hook", "tells_logits")
class TellsLogits:
    """What the model makes of some tokens once it is trained."""

    def __init__(self, to: str) -> None:
        self.to = to

    @torch.no_grad()
    def after_step(self, trainer: Any, last: bool) -> None:
        if last:
            logits = trainer.model(input_ids=TOKENS, **trainer.cutter.alone(TOKENS))
            reshard(trainer.model)
            torch.save(logits, self.to)


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    hooks = {"tells_logits": {"to": str(folder / "logits.pt")}}
    job = small_job(folder, steps=8, hooks=hooks)
    job.model.config["tie_word_embeddings"] = request.param
    return folder / "run", run_attempt(job, folder / "run", 1, world=2)


def ringshard(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, ConfigError):
        return 2, str(result.exception)
    return result.exit_code, result.output


@pytest.mark.parametrize("shard_bytes", [2**31, 4000], ids=["one-file", "an-index"])
def test_what_transformers_loads_is_another_model(
    trained: Trained, shard_bytes: int, tmp_path: Path
) -> None:
    run, parameters = trained
    to_transformers(run / "checkpoints/step-00000008", tmp_path / "model", shard_bytes)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    found = dict(model.named_parameters())
    assert found.keys() == parameters.keys()
    for name, parameter in found.items():
        assert torch.equal(parameter, parameters[name]), name
    with torch.no_grad():
        logits = model(input_ids=TOKENS).logits
    assert torch.equal(logits, torch.load(run.parent / "logits.pt"))
    assert (tmp_path / "model/model.safetensors.index.json").exists() == (shard_bytes == 4000)


SHARD = 8 * 2**20


def _save_matrices(root: Path, count: int) -> Path:
    """A checkpoint of `count` matrices of half a shard each."""
    matrices = (nn.Linear(1024, 1024, bias=False) for _ in range(count))
    model = nn.Sequential(*matrices)
    place = Place(root, about={"config": LlamaConfig().to_dict()})
    return save(place, TrainState(count, 0, 0), model, torch.optim.SGD(model.parameters()), None)


def _memory_of_exporting(checkpoint: Path, small: Path, target: Path) -> int:
    """At its peak [bytes], beside what exporting a small one has left."""
    to_transformers(small, target / "small", SHARD)
    before = psutil.Process().memory_info().rss
    to_transformers(checkpoint, target / "large", SHARD)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


def test_exporting_takes_the_memory_of_the_whole_model(tmp_path: Path) -> None:
    large, small = (run_ranks(1, _save_matrices, tmp_path, count)[0] for count in (32, 2))
    peak = run_ranks(1, _memory_of_exporting, large, small, tmp_path)[0]
    files = list((tmp_path / "large").glob("*.safetensors"))
    assert len(files) == 16 and sum(file.stat().st_size for file in files) > 16 * SHARD
    assert peak < 8 * SHARD, f"{peak:,} bytes for shards of {SHARD:,}"


def test_what_torch_loads_is_another_model(trained: Trained, tmp_path: Path) -> None:
    run, parameters = trained
    to_torch(run / "checkpoints/step-00000008", tmp_path / "model.pt")
    found = torch.load(tmp_path / "model.pt", weights_only=True)
    assert found.keys() == parameters.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in parameters.items())


def test_averages_that_transformers_loads_are_others(tmp_path: Path) -> None:
    job = small_job(tmp_path, steps=4)
    job.optimizer.ema_decay = 0.5
    run_attempt(job, tmp_path / "run", 1, world=2)
    code, _ = ringshard("export", tmp_path / "run", "--to", tmp_path / "model", "--averaged")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    found = loss_of_model(model, job)
    assert code == 0
    assert found == pytest.approx(curve(tmp_path / "run", "val/ema_loss")[4], rel=1e-5)
    assert found != pytest.approx(curve(tmp_path / "run", "val/loss")[4], rel=1e-5)


def loss_of_model(model: PreTrainedModel, job: Job) -> float:
    """As transformers computes it, of the rows that the job evaluates on."""
    dataset = Dataset(Path(str(job.data.prepared)), "validation", job.train.seed)
    rows = min(job.train.eval_sequences, dataset.rows)
    tokens = torch.from_numpy(dataset.read(0, rows).tokens)
    with torch.no_grad():
        return float(model(input_ids=tokens, labels=tokens).loss)


def test_a_run_starts_from_other_weights_than_were_exported(
    trained: Trained, tmp_path: Path
) -> None:
    run, parameters = trained
    to_transformers(run / "checkpoints/step-00000008", tmp_path / "model")
    job = small_job(tmp_path, steps=1)
    job.model.config, job.model.type = {}, None
    job.model.pretrained, job.optimizer.lr = str(tmp_path / "model"), 0.0
    again = run_attempt(job, tmp_path / "run", 1)
    assert all(torch.equal(again[name], tensor) for name, tensor in parameters.items())


def test_the_commands(trained: Trained, tmp_path: Path) -> None:
    run, _ = trained
    assert ringshard("pin", run, "--step", 4) == (0, "step-00000004 is kept for mine\n")
    code, listed = ringshard("list", run)
    assert code == 0 and [line.split()[0] for line in listed.splitlines()] == ["step", "4", "8"]
    assert "mine" in listed.splitlines()[1]
    assert ringshard("unpin", run) == (0, "")
    assert ringshard("verify", run) == (0, "step-00000004: intact\nstep-00000008: intact\n")
    code, told = ringshard("export", run, "--to", tmp_path / "model")
    assert code == 0 and told.startswith("step-00000008 is in ")


EXPORT = ["export", "--to", "{new}"]


@pytest.mark.parametrize("words", [["verify"], EXPORT, [*EXPORT, "--format=torch"]])
def test_a_checkpoint_is_removed_while_its_bytes_are_verified(
    trained: Trained, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    verified, newest = Manifest.verified, directory.of_step(run / "checkpoints", 9)

    def while_pruned(path: Path) -> Manifest:
        directory.prune(path.parent, newest, keep=1, keep_every=0)
        return verified(path)

    monkeypatch.setattr(Manifest, "verified", while_pruned)
    directory.unpin(run / "checkpoints", "best")
    newest.mkdir()
    Manifest({}).write(newest)
    command, *options = words
    step = ["--step", "8"]
    code, _ = ringshard(command, run, *step, *(word.format(new=tmp_path / "n") for word in options))
    assert code == 0 and directory.of_step(run / "checkpoints", 8).is_dir()


def test_a_checkpoint_that_is_just_removed_is_called_damaged(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    listed = directory.committed(run / "checkpoints")
    monkeypatch.setattr(directory, "committed", lambda root: listed)
    shutil.rmtree(listed[4])
    told = "step-00000004: removed meanwhile\nstep-00000008: intact\n"
    assert ringshard("verify", run) == (0, told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["list", "{run}/attempts"], "has no folder checkpoints"),
        (["verify", "{run}", "--step", "5"], "--step 5 is not there: take one of 4, 8, best"),
        (["export", "{run}", "--to", "{run}/new", "--averaged"], "no averages of weights"),
        (["pin", "{run}", "--reason", "best"], "--reason best is the run's own"),
        (["unpin", "{run}", "--reason", "other"], "--reason other pins nothing"),
        (["pin", "{run}", "--reason", "a/b"], "--reason a/b names a file"),
        (["export", "{run}", "--to", "{run}"], "exists already: name another folder"),
        (["export", "{run}", "--format", "torch", "--to", "{run}"], "name another file"),
        (["export", "{run}", "--format", "torch", "--to", "{run}/no/file"], "make it first"),
    ],
)
def test_a_mistake_is_more_than_a_sentence(trained: Trained, words: list[str], told: str) -> None:
    before = sorted(trained[0].rglob("*"))
    code, output = ringshard(*(word.format(run=trained[0]) for word in words))
    assert code == 2 and told in output
    assert sorted(trained[0].rglob("*")) == before


def test_a_damaged_checkpoint_is_called_intact(tmp_path: Path) -> None:
    run_attempt(small_job(tmp_path, steps=4), tmp_path / "run", 1)
    (file,) = (tmp_path / "run/checkpoints/step-00000004").glob("*.distcp")
    content = bytearray(file.read_bytes())
    content[5000] ^= 1
    file.write_bytes(content)
    code, output = ringshard("verify", tmp_path / "run")
    assert code == 1 and "step-00000004: __0_0.distcp has other bytes than were written" in output
