"""What the command line composes to: members, completed paths and degrees, no heavy import."""

import resource
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from ringshard.config.checks import check
from ringshard.config.command import parse
from ringshard.config.complete import complete
from ringshard.config.compose import compose, conf_dir
from ringshard.config.schema.data import CorpusKind, DocumentUnit
from ringshard.config.schema.job import Job
from ringshard.config.schema.optimizer import AdamW
from ringshard.config.schema.reader import build, plain
from ringshard.errors import ConfigError

CHECKOUT = Path(__file__).resolve().parents[2]


def jobs(*argv: str) -> list[Job]:
    """The checked jobs of a command line given in /somewhere."""
    command, _ = parse("train", list(argv))
    members = [member.config for member in compose(command, Job)]
    for job in members:
        complete(job, Path("/somewhere"))
        check(job)
    return members


OPTIONS: dict[str, list[str]] = {}
for path in sorted(conf_dir().glob("*/*.yaml")):
    OPTIONS.setdefault(path.parent.name, []).append(path.stem)
NEEDS = {
    "data=text_files": ["data.path=x"],
    "data=hf_dataset": ["data.path=x"],
    "data=mixture": ["data.path=x"],
    "experiment=shakespeare_char": ["data.path=x"],
    "model=gpt2_char": ["data.seq_len=64"],
    "optimizer=adamw8bit": ["parallelism=single"],
    "optimizer=adamw4bit": ["parallelism=single"],
    "parallelism=hsdp_ring": ["hardware.processes_per_node=4"],
}


@pytest.mark.rotated(3)
@pytest.mark.parametrize("group", OPTIONS)
def test_every_option_of_every_group_composes_and_survives_freezing(group: str) -> None:
    """Those that need nothing are members of one sweep, the others have commands of their own."""
    names = [f"{group}={name}" for name in OPTIONS[group] if name not in ("pretrained", "custom")]
    alone = [name for name in names if name in NEEDS]
    together = [name.partition("=")[2] for name in names if name not in NEEDS]
    commands = [["-m", f"{group}={','.join(together)}"], *([name, *NEEDS[name]] for name in alone)]
    for job in chain.from_iterable(jobs(*command) for command in commands):
        assert build(Job, plain(job)) == job


def test_a_sweep_is_the_product_of_lists_choices_ranges_and_globs() -> None:
    swept = jobs("-m", "optimizer.lr=1e-3,3e-4", "train.seed=range(1,4)", "parallelism=single,fsdp")
    assert len(swept) == 12
    assert {job.hardware.world_size for job in swept} == {1, 2}
    assert len(jobs("schedule=glob(*)")) == 6
    assert len(jobs("train.seed=choice(5,6)", "schedule=glob([c*,w*])")) == 6


def test_options_and_overrides_may_stand_in_any_order() -> None:
    assert len(jobs("train.seed=1,2", "-m", "optimizer.lr=1e-2")) == 2
    assert jobs("train.seed=1", "train.seed=2")[0].train.seed == 2


def test_each_member_sees_its_own_choices() -> None:
    assert [job.output.name for job in jobs("-m", "model=tiny,small")] == ["tiny", "small"]


def test_paths_start_where_the_command_was_given_and_the_degree_is_filled_in() -> None:
    (job,) = jobs(
        "data=text_files",
        "data.path=texts/*.txt",
        "hardware.processes_per_node=4",
    )
    assert job.output.root == "/somewhere/outputs" and job.user.path == "/somewhere"
    assert job.data.cache == "/somewhere/outputs/data"
    assert job.data.corpora["text"].path == "/somewhere/texts/*.txt"
    assert job.tracking.uri == "sqlite:////somewhere/outputs/mlflow.db"
    assert job.parallelism.dp_shard == 4 and job.train.micro_batch == 4


def test_what_a_document_is_can_be_said_in_short() -> None:
    short = ("data.path=x", "data.document=separator", "data.separator='--'")
    (job,) = jobs("data=text_files", *short)
    corpus = job.data.corpora["text"]
    assert corpus.document is DocumentUnit.separator and corpus.separator == "--"


def test_an_own_data_file_needs_no_cache(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_text("corpora:\n  a:\n    path: a.txt\n")
    (job,) = jobs(f"--config-dir={tmp_path}", "data=mine", "output.root=here")
    assert job.data.cache == "/somewhere/here/data"


@pytest.mark.parametrize(
    ("option", "degrees"),
    [("fsdp", (1, 4, 1)), ("ring", (1, 1, 4)), ("fsdp_ring", (1, 2, 2)), ("hsdp_ring", (2, 1, 2))],
)
def test_the_free_degree_takes_what_is_left_over(
    option: str, degrees: tuple[int, int, int]
) -> None:
    (job,) = jobs(f"parallelism={option}", "hardware.processes_per_node=4")
    found = job.parallelism
    assert (found.dp_replicate, found.dp_shard, found.cp) == degrees


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("parallelism=fsdp", 8),
        ("parallelism=ring train.global_batch=17", 1),
        ("train.global_batch=24", 6),
        ("train.batch_unit=tokens train.global_batch=1536", 3),
        ("hardware=slurm_h100", 2),
        ("train.micro_batch=2", 2),
    ],
)
def test_the_micro_batch_is_the_largest_that_divides(given: str, size: int) -> None:
    assert jobs(*given.split())[0].train.micro_batch == size


def test_a_custom_model_has_the_fields_that_are_given_and_no_others() -> None:
    custom = ("model=custom", "model.type=gpt2", "model.config={n_layer: 2, n_head: 2}")
    (job,) = jobs(*custom, "model.config.n_embd=64", "data.seq_len=64")
    assert job.model.config == {"n_layer": 2, "n_head": 2, "n_embd": 64}
    assert job.model.type == job.output.name == "gpt2"
    assert [job.model.type for job in jobs("-m", *custom[::2], "model.type=gpt2,llama")] == [
        "gpt2",
        "llama",
    ]


def test_a_new_corpus_is_given_as_advised() -> None:
    with pytest.raises(ConfigError, match="a new corpus is given whole") as refused:
        jobs("data.corpora.b.path=b.txt")
    advised = str(refused.value).split("as in ")[1].strip("'")
    (job,) = jobs(advised, advised.replace(".b=", ".c=").replace("FILE", "c.txt"))
    assert list(job.data.corpora) == ["python_stdlib", "b", "c"]
    assert job.data.corpora["b"].path == "/somewhere/FILE"
    assert job.data.corpora["c"].kind is CorpusKind.text_files


def test_an_optimizer_keeps_its_own_fields() -> None:
    (job,) = jobs("optimizer.beta2=0.9")
    assert isinstance(job.optimizer, AdamW) and job.optimizer.beta2 == 0.9


def test_cfg_job_is_quick_and_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from ringshard.entry import train; sys.argv[1:] = ['--cfg', 'job']; train();"
        "print(sorted({'torch', 'transformers', 'mlflow', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    before = _cpu_of_children()
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.splitlines()[-1] == "[]"
    assert "seq_len: 256" in ended.stdout and list(tmp_path.iterdir()) == []
    assert _cpu_of_children() - before < 2


def _cpu_of_children() -> float:
    """Of the processes that have ended [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_folder_outside_adds_options(tmp_path: Path) -> None:
    (tmp_path / "conf" / "optimizer").mkdir(parents=True)
    own = "name: my_lion\nlr: 1e-4\nargs:\n  beta: 0.95\n"
    (tmp_path / "conf" / "optimizer" / "mine.yaml").write_text(own)
    (tmp_path / "lions.py").write_text("")
    conf = f"--config-dir={tmp_path / 'conf'}"
    modules = ["user.modules=[lions]", f"user.path={tmp_path}"]
    (job,) = jobs(conf, "optimizer=mine", *modules, "optimizer.args.beta=0.9")
    assert job.optimizer.name == "my_lion" and job.optimizer.args == {"beta": 0.9}
    assert job.optimizer.lr == 1e-4


def own_conf(folder: Path, **files: str) -> str:
    """A folder of the user's: texts by name, in which two underlines stand for a slash."""
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return f"--config-dir={folder}"


LION = "# @package _global_\ndefaults: [{override %s: lion}]\n"
OWN = "defaults: [train, {override optimizer: muon}, _self_]\ntrain: {steps: 7}\n"


def test_a_primary_config_of_the_users_can_not_begin_with_ours(tmp_path: Path) -> None:
    conf = own_conf(tmp_path, mine=OWN)
    (job,) = jobs(conf, "--config-name=mine", "schedule.warmup_steps=2")
    assert job.optimizer.name == "muon" and job.train.steps == 7


def test_an_experiments_optimizer_is_lost_where_the_primary_config_names_one_too(
    tmp_path: Path,
) -> None:
    """It comes through where it is the only one, and what is typed goes before both."""
    conf = own_conf(tmp_path, mine=OWN, experiment__roar=LION % "/optimizer")
    (alone,) = jobs(conf, "experiment=roar")
    assert alone.optimizer.name == "lion"
    both = (conf, "--config-name=mine", "schedule.warmup_steps=2", "experiment=roar")
    with pytest.raises(ConfigError, match="optimizer=lion of experiment=roar is lost, for the"):
        jobs(*both)
    (typed,) = jobs(*both, "optimizer=adamw")
    assert typed.optimizer.name == "adamw"


@pytest.mark.parametrize(
    ("group", "told"),
    [("optimizer", "write `override /optimizer:`"), ("/nope", "overrides nope, and there is no")],
)
def test_an_experiment_that_overrides_a_group_in_vain_is_told_what_it_has_written(
    group: str, told: str, tmp_path: Path
) -> None:
    conf = own_conf(tmp_path, experiment__roar=LION % group)
    with pytest.raises(ConfigError, match=told):
        jobs(conf, "experiment=roar")


def test_a_glob_misses_the_options_of_a_folder_outside(tmp_path: Path) -> None:
    conf = own_conf(tmp_path, optimizer__lion_slow="defaults: [lion]\nlr: 1e-5\n")
    rates = [job.optimizer.lr for job in jobs(conf, "-m", "optimizer=glob(lion*)")]
    assert {1e-5, 3e-4} <= set(rates)


def test_an_environment_that_names_a_key_is_not_resolved_before_it_is_frozen() -> None:
    swept = jobs("-m", "optimizer.lr=0.1,0.2", "+hardware.env.A='v${optimizer.lr}'")
    assert [job.hardware.env["A"] for job in swept] == ["v0.1", "v0.2"]
