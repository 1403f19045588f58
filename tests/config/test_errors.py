"""Every mistake on the command line: one sentence with key, value and fix, exit code 2."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ringshard.config.schema.job import Job
from ringshard.entry import prepare, run_job_app, train
from ringshard.launch.resume import resume
from ringshard.launch.start import start

CHECKOUT = Path(__file__).resolve().parents[2]

# what is typed -> what the sentence must say
MISTAKES = {
    # keys
    "train.stps=3": "train.stps=3: there is no such key; did you mean train.steps",
    "+train.stps=3": "train.stps=3: there is no such key; did you mean train.steps",
    "trian.steps=3": "trian.steps=3: there is no such key; did you mean train.steps?",
    "lr=3": "lr=3: there is no such key; did you mean optimizer.lr?",
    "optimizer.beta3=1": "did you mean optimizer.beta2 or optimizer.beta1?",
    "train={steps: 3, x: 4}": "train.x: there is no such key",
    "+newgroup=tiny": "newgroup=tiny: there is no such key",
    "hardware.env.A=1": "a new entry is added with a plus, +hardware.env.A=1",
    "+model.config.hidden_size=1": "the key is there already; leave the plus out",
    "data.corpora.x.kind=text_files": "a new corpus is given whole, as in '+data.corpora.x={",
    "+data.corpora.x.kind=text_files": "a new corpus is given whole, as in '+data.corpora.x={",
    "~train.steps": "cannot be taken out; set it to null",
    "hydra.run.dir=x": "hydra.run.dir=x would have no effect",
    "hydra/launcher=basic": "hydra/launcher=basic would have no effect",
    "+hydra.job.env_set.A=v${optimizer.lr}": "hydra.job.env_set.A=v${optimizer.lr} would have no",
    "--local_rank=0": "unrecognized arguments: --local_rank=0; arguments are key=value",
    # options of groups
    "-m optimizer=adamw,muon optimizer.momentum=0.9": "chosen for optimizer has no such key; give",
    "schedule.decay_share=0.1": "an option that is chosen for schedule has no such key; give it",
    "model=tny": "model=tny: there is no such option; did you mean model=tiny?",
    "-m optimizer=adamw,sgd": "optimizer=sgd: there is no such option; it is one of adamw",
    "-m experiment=null,smoke": "null is no option of the group experiment; use experiment=none",
    "model=null": "model=null: null is no option of the group model",
    "+model=tiny": "an option of this group is chosen already; leave the plus out",
    "model@x=tiny": "model@x=tiny: there is no such group",
    # values
    "train.steps=abc": "train.steps=abc must be an integer",
    "train.steps=1.5": "train.steps=1.5 must be an integer",
    "optimizer.lr=1e-3,3e-4": "give -m to run each, or quote the value, 'optimizer.lr=",
    "-m train.steps=100,x": "train.steps=x must be an integer",
    "train=null": "train=null: null is not allowed",
    "optimizer.lr=": "optimizer.lr= must be a number",
    "optimizer.lr=-1": "optimizer.lr=-1.0 must be at least 0",
    "optimizer.lr=nan": "optimizer.lr=nan must be at least 0",
    "optimizer.lr=inf": "optimizer.lr=inf must be at most",
    "optimizer.beta1=1": "optimizer.beta1=1.0 must be at least 0 and less than 1",
    "optimizer.beta2=1": "optimizer.beta2=1.0 must be at least 0 and less than 1",
    "+hardware.peak_tflops.bf16=0": "hardware.peak_tflops.bf16=0.0 must be above 0",
    "+hardware.peak_tflops.fp8=1": "hardware.peak_tflops.fp8 is unknown: name one of fp32, bf16",
    "+hardware.link_gbytes_per_s.nvlink=1": "is unknown: name one of node, network",
    "train.seed=-1": "train.seed=-1 must be at least 0",
    "train.seed=9223372036854775808": "must be at most 9223372036854775807",
    f"train.global_batch={10**30}": "must be at most 2147483647",
    f"hardware.threads_per_process={10**30}": "must be at most 4096",
    f"data.seq_len={10**30}": "must be at most 2147483647",
    f"train.tokens={10**30} train.steps=null": "must be at most 9223372036854775807",
    "output.name=''": "output.name= names a folder: use letters and digits",
    "output.name='/'": "output.name=- names a folder",
    "data.seq_len=0": "data.seq_len=0 must be 1 or more",
    "schedule.floor=2": "schedule.floor=2.0 must lie between 0 and 1",
    "precision.compute=fp8": "precision.compute=fp8 must be one of fp32, bf16",
    "user.modules=pkg": "must be a list, as in user.modules=[pkg]",
    "data.corpora=3": "data.corpora=3 must be a mapping",
    "sweep.name=a/b": "sweep.name=a/b names a folder",
    "sweep.name=..": "sweep.name=.. names a folder",
    # missing and unresolved
    "data=text_files": "data.corpora.text.path is missing: kind=text_files needs it",
    "~optimizer": "optimizer.name is missing",
    "train.steps=null": "train.steps is missing: give train.steps=… or train.tokens=…",
    "optimizer.lr=${oc.env:NOT_SET}": "the environment variable NOT_SET is not set",
    "optimizer.lr=${nope.x}": "Interpolation key 'nope.x' not found",
    "optimizer.lr=${nores:1}": "Unsupported interpolation type nores",
    # syntax
    "data.path=a=b": "quote the value, 'data.path=\"a=b\"'",
    "data.path=/data/新": "quote the value",
    "output.name=#1": "quote the value",
    "train.steps=[1": "train.steps=[1 cannot be parsed",
    "train": "an argument is key=value",
    "=3": "the key before = is missing",
    "optimizer.lr=interval(0,1)": "use choice() or range()",
    "optimizer.lr=glob(*)": "the sweep has no member",
    "--cfg=job train.seed=1,2": "train.seed=1,2: only one configuration is shown",
    "--nope": "unrecognized arguments: --nope",
    "--config-dir=/nope": "--config-dir=/nope is not a folder",
    "--config-name=nope": "there is no such primary config",
    # between keys
    "parallelism.dp_replicate=3": "must be the 2 processes",
    "parallelism.dp_shard=3": "parallelism.dp_replicate=1 × dp_shard=3 × cp=1 must be the 2 proc",
    "parallelism.cp=3": "dp_shard=-1 × cp=3 must be the 2 processes",
    "parallelism.cp=0": "cp=0 must be the 2 processes",
    "parallelism.cp=-1": "dp_shard=-1 or cp=-1, not both, takes what is left over",
    "parallelism=hsdp_ring": "dp_replicate=2 × dp_shard=-1 × cp=2 must be the 2 processes",
    "parallelism=ring train.global_batch=17 train.micro_batch=8": "=2) / parallelism.cp=2",
    "parallelism=ring data.seq_len=1": "less than a token for each of parallelism.cp=2 processes",
    "parallelism=ring parallelism.attention=sdpa data.packing=concat": "sees the tokens of one pro",
    "parallelism.attention=sdpa": "would let the documents of data.packing=documents attend",
    "parallelism.attention=flash": "parallelism.attention=flash must be one of ring, sdpa",
    "hardware.nodes=2": "needs hardware.scheduler=slurm",
    "-m hardware=gpu_local launcher.max_parallel=2 train.seed=1,2": "share the same GPUs: use",
    "hardware=slurm_cpu +hardware.slurm.extra.nodes=null": "extra.nodes=null can't be left out",
    "hardware=slurm_cpu hardware.slurm.time_minutes=2 launcher.lead_s=90": "give 60 or less, or",
    "train.global_batch=17": "processes_per_node=2): use train.global_batch=16",
    "hardware=slurm_cpu hardware.nodes=9": "a multiple of 18 processes (hardware.nodes=9 × proc",
    "train.global_batch=24 train.micro_batch=8": "use train.global_batch=32 or train.micro_batch=6",
    "train.batch_unit=tokens train.global_batch=1000": "data.seq_len=256: use 1024",
    "train.tokens=1000": "both say how long the run is",
    "schedule.warmup_steps=1000": "is longer than the run of 300 steps",
    "model.pretrained=/nope": "use model=pretrained model.pretrained=/nope",
    "model.type=gpt2": "model.type=gpt2 does not go with model=tiny's fields: use model=custom",
    "model=custom": "model.type is missing: give it, as in model=custom model.type=gpt2",
    "model=pretrained model.pretrained=/nope": "is not a folder with a config.json",
    "optimizer.name=lino": "optimizer.name=lino is not known: use lion",
    "schedule.name=wsd": "does not go with the fields of another schedule: use schedule=wsd",
    "optimizer=custom optimizer.name=adamw": "of another optimizer: use optimizer=adamw",
    "optimizer.name=own user.modules=[json]": "use optimizer=custom optimizer.name=own",
    "optimizer=custom": "optimizer.name is missing",
    "user.modules=[nopkg]": "user.modules=[nopkg] is not found in user.path=",
    "data.tokenizer.kind=bpe": "data.tokenizer.vocab_size is missing",
    "data.tokenizer.kind=directory": "data.tokenizer.path is missing",
    "debug=ranks debug.rank=5": "the ranks are 0 to 1",
    "debug=on hardware.processes_per_node=2": "it runs one process, use debug=ranks",
    "hardware=slurm_h100": "no Slurm answers here",
    # options without effect
    "launcher.metric=val/loss hardware=slurm_cpu": "no effect: a command that ends before",
    "hardware.slurm.partition=x": "would have no effect: hardware.scheduler=slurm reads it",
    "data.tokenizer.vocab_size=300": "has no effect with kind=bytes",
    "data.tokenizer.path=x": "has no effect with kind=bytes",
    "data.path=x": "data.path=x has no effect",
    "data.corpora.python_stdlib.subset=x": "has no effect with kind=python_stdlib",
    "parallelism.cp_layout=balanced": "balanced would have no effect: with parallelism.cp=1 each",
    "parallelism.cp_transport=ring": "cp_transport=ring would have no effect",
    "debug.compare_rows=true": "debug.compare_rows=true would have no effect: with",
    "debug.rank=1": "debug.rank=1 would have no effect: debug=ranks reads it",
    "optimizer.lr_scaling=sqrt": "lr_scaling=sqrt needs optimizer.lr_reference_batch=…",
    "optimizer.lr_reference_batch=16": "lr_reference_batch=16 would have no effect: set",
    "optimizer.release_clip=per_tensor": "release_clip=per_tensor would have no effect: optim",
    "optimizer.release_gradients=true train.micro_batch=4": "a step has 2: use train.micro_batch=8",
    "optimizer=muon optimizer.release_gradients=true": "on 2 processes would send messages for",
    "optimizer.release_gradients=true optimizer.release_clip=per_tensor": "knows no norm of a",
    "optimizer.release_gradients=true train.noise_scale_every=5": "leaves no gradient for",
    "train.noise_scale_every=5 train.global_batch=1 parallelism=single": "and a step has one: use",
    "train.batch_ramp=[4,8]": "train.batch_ramp=[4, 8] with train.batch_ramp_steps=0 would",
    "train.batch_ramp=[3] train.batch_ramp_steps=9": "3 sequences must be a multiple of 2",
    "train.batch_ramp=[4] train.batch_ramp_steps=999": "batch_ramp_steps=999 is longer than the",
    "optimizer.roles.matricks=q_proj": "optimizer.roles: matricks is no role: use one of matrix",
    "optimizer.decayed=[norms]": "optimizer.decayed: norms is no role: use one of matrix",
    "optimizer.roles.other='q_(proj'": "q_(proj is no regular expression: missing )",
    "optimizer=muon optimizer.momentum=1": "momentum=1.0 must be at least 0 and less than 1",
    "optimizer=muon_mona optimizer.mona_beta=1": "mona_beta=1.0 must be at least 0 and less than 1",
    "optimizer=muon_hyperball optimizer.lr=0": "optimizer.lr=0 with optimizer.adamw_lr=0.003",
    "optimizer=adamw8bit": "optimizer=adamw8bit runs on one process, for torchao decides by",
    "precision.weights=bf16": "precision.weights=bf16 with precision.compute=fp32: set",
    "optimizer=adamw8bit parallelism=single precision=bf16 precision.weights=bf16": "rounds at",
    "schedule.warmup_steps=1 schedule.warmup_tokens=9": "both say how long the warm-up is",
    "schedule.warmup_tokens=99999999": "warmup_tokens=99999999 is longer than the run of 300",
    "+optimizer.args.x=1": "would have no effect: adamw has fields",
    "data.prepared=x": "data.prepared=x is set when a job is frozen: leave it out",
    "data.digest=x": "data.digest=x is set when a job is frozen: leave it out",
    "data.document=line": "data.document=line has no effect",
    "debug=ranks debug.port=5679": "debug.port=5679 would have no effect: debug.rank=N says",
    "tracking=none tracking.experiment=x": "tracking.experiment=x would have no effect",
    "tracking=none tracking.uri=http://h": "tracking.uri=http://h would have no effect",
    "tracking=none tracking.flush_timeout_s=1": "tracking.flush_timeout_s=1.0 would have no effect",
    "tracking=jsonl tracking.flush_timeout_s=1": "tracking=mlflow reads it",
    "model.trust_remote_code=true": "model.trust_remote_code=True would have no effect",
    "parallelism=single parallelism.reshard_after_forward=false": "nothing is sharded at dp_shard",
    "parallelism=single precision.reduce=bf16": "precision.reduce=bf16 would have no effect: one",
    "user.path=x": "user.path=x would have no effect: user.modules=[NAME] is looked for in it",
    "launcher.on_failure=stop": "launcher.on_failure=stop would have no effect: there is one run",
    "experiment=overfit_batch checkpoint.keep=2": "checkpoint.keep=2 would have no effect",
    "experiment=overfit_batch checkpoint.keep_every=2": "keep_every=2 would have no effect",
    "experiment=overfit_batch checkpoint.keep_best=false": "keep_best=False would have no effect",
    "experiment=overfit_batch checkpoint.asynchronous=false": "would have no effect: checkpoint.ev",
    "experiment=overfit_batch checkpoint.max_failed_saves=9": "max_failed_saves=9 would have no",
    "checkpoint.keep=0 checkpoint.keep_every=9": "no effect: checkpoint.keep=0 keeps all",
    "optimizer=muon_hyperball optimizer.scale=spectral": "optimizer.scale=spectral would have no",
    "optimizer=muon_mona_hyperball optimizer.scale=original": "normalize_update=false reads it",
    # resume
    "resume=/nope": "resume=/nope does not exist",
    "resume=/nope resume=/nope": "resume=/nope resume=/nope: one command goes on with one run",
    "resume=.": "is not the folder of a run",
}


@pytest.mark.rotated(3)
@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    typed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [typed] if "{" in typed else typed.split(" ")
    code = run_job_app("train", words, Job, start, resume)
    out, err = capsys.readouterr()
    assert code == 2 and MISTAKES[typed] in err
    assert err.count("\n") == 1 and out == ""
    assert list(tmp_path.iterdir()) == []
    assert "HYDRA_FULL_ERROR" not in os.environ


def test_the_same_through_the_script(tmp_path: Path) -> None:
    typed = "data.path=a=b"
    command = [sys.executable, CHECKOUT / "jobs" / "train.py", typed]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2 and MISTAKES[typed] in ended.stderr
    assert ended.stderr.count("\n") == 1 and ended.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_bad_member_is_refused_before_the_first_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run_job_app("train", ["-m", "train.micro_batch=8,4,3"], Job, start)
    assert code == 2 and "train.micro_batch=3" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_hydras_full_error_still_shows_the_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(Exception, match=r"Could not override"):
        run_job_app("train", ["train.stps=3"], Job, start)


def test_a_rank_waits_for_no_debugger_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "debugpy", None)
    assert run_job_app("train", ["debug=ranks", "debug.rank=1"], Job, start) == 2
    assert capsys.readouterr().err.rstrip().endswith("pip install debugpy")


def test_a_folder_that_cannot_be_written_is_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And the cache of descriptions, which only saves time, is not missed."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run_job_app("train", ["output.root=file/outputs"], Job, start) == 2
    said = capfd.readouterr().err.splitlines()
    assert (
        said[-1].startswith(f"{tmp_path}/file/outputs") and "cannot be used (Not a dir" in said[-1]
    )
    assert len(said) == 2 and "few seconds" in said[0]


def test_a_dry_run_takes_a_model_that_the_real_run_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = "model.config.num_key_value_heads=3"
    assert run_job_app("train", ["--dry-run", typed], Job, start) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines()[-1].startswith(f"{typed} must divide")


@pytest.mark.parametrize("app", [train, prepare])
def test_a_dry_run_writes_nothing(
    app: Callable[[], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["job", "--dry-run", "data.seq_len=64"])
    assert app() == 0
    out, err = capsys.readouterr()
    assert out.endswith("dry run: nothing was written\n")
    assert err.count("\n") == err.count("few seconds")
    assert list(tmp_path.iterdir()) == []
