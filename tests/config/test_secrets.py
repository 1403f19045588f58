"""What is secret never reaches the files of a run: it is refused where it would."""

import sys
from pathlib import Path

import pytest

from ringshard import cli
from ringshard.config.schema.job import Job
from ringshard.entry import run_job_app
from ringshard.launch.start import start

SECRET = "s3cr3tvalue1234567890"
TOLD = [
    f"+hardware.env.WANDB_API_KEY={SECRET}",
    f"+hardware.env.HF_TOKEN={SECRET}",
    f"+hardware.env.DB_PASSWORD={SECRET}",
    f"+hardware.env.PGPASSWORD={SECRET}",
    f"+hardware.env.DB_PWD={SECRET}",
    f"+hardware.env.AWS_SECRET_ACCESS_KEY={SECRET}",
    f"+hardware.env.NOTE=hf_{SECRET}",
    f"+hardware.env.HTTPS_PROXY=http://me:{SECRET}@proxy:3128",
    "+hardware.env.HF_TOKEN=${oc.env:MY_SECRET}",
    f"hardware.slurm.setup=['module load x; export HF_TOKEN={SECRET}']",
    f"+hardware.slurm.extra.export='ALL,DB_PASSWORD={SECRET}'",
    f"tracking.uri=https://me:{SECRET}@mlflow.example.org",
    f"tracking.uri=postgresql://me:{SECRET}@db/mlflow",
    f"tracking.uri='http://h/?token={SECRET}'",
    "tracking.uri=https://me:${oc.env:MY_SECRET}@mlflow.example.org",
    f"+data.corpora.x={{kind: custom, name: own, args: {{login: [hf_{SECRET}]}}}}",
]


@pytest.mark.parametrize("typed", TOLD)
def test_a_secret_is_written_into_a_run(
    typed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MY_SECRET", SECRET)
    monkeypatch.chdir(tmp_path)
    assert run_job_app("train", [typed], Job, start) == 2
    said = capsys.readouterr().err
    assert "holds a secret" in said and said.count("\n") == 1 and SECRET not in said
    assert list(tmp_path.iterdir()) == []


def test_harmless_variables_are_taken_for_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    harmless = {
        "TOKENIZERS_PARALLELISM": "false",
        "NCCL_SOCKET_IFNAME": "eth0",
        "KEYBOARD": "de",
        "HTTP_PROXY": "http://proxy:3128",
    }
    words = [f"+hardware.env.{name}={value}" for name, value in harmless.items()]
    setup = r"hardware.slurm.setup=['export TMP=/x HF_TOKEN=$(cat ~/token)']"
    words += ["hardware=slurm_cpu", setup]
    assert run_job_app("train", ["--dry-run", "tracking=jsonl", *words], Job, start) == 0


def test_an_address_with_a_password_is_noted_by_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt = tmp_path / "attempts" / "1"
    attempt.mkdir(parents=True)
    (tmp_path / "run.json").write_text('{"created": 1.0, "signature": "x", "sweep": null}')
    (attempt / "job.yaml").write_text("tracking: {uri: 'sqlite:////x.db', experiment: e}\n")
    address = f"http://me:{SECRET}@127.0.0.1:1"
    monkeypatch.setattr(
        sys, "argv", ["ringshard", "track", "sync", str(tmp_path), "--uri", address]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2 and SECRET not in capsys.readouterr().err
    assert not (tmp_path / "track").exists()
