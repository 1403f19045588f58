"""Stands in for the trainer in tests of the agent: a rank of the real protocol, without torch.

STANDIN says what it does: finish, wait (until told to stop), deaf (never stops), linger (takes 7 s
to save once it is told to), raise:RANK, raise_at_stop:RANK, user_error:RANK, sigkill:RANK, ask:RANK
(reads a line from stdin), fail_seed:N (fails where train.seed is N), curve:NAME (records a val/loss
that falls in ten steps and is the lower at its end the nearer optimizer.lr is to 0.01; above 1 it
fails; half-way it waits for the file NAME-RATE, where NAME is not empty).
"""

import json
import math
import os
import signal
import sys
import time
from pathlib import Path

import yaml

from ringshard.checkpoint.manifest import Manifest
from ringshard.errors import ConfigError
from ringshard.tracking.spool import Spool
from ringshard.train.attempt import Attempt
from ringshard.train.process import run_rank
from ringshard.train.stop import StopRequest

SHOWN = ("SLURM_", "MY_", "OMP_", "RANK", "MASTER_")


def main(run_dir: Path, number: int) -> None:
    attempt = Attempt.of_rank(run_dir, number)
    what, _, who = os.environ.get("STANDIN", "finish").partition(":")
    stop = StopRequest()
    if attempt.rank == 0:
        world = os.environ.get("WORLD_SIZE", 1)
        print(f"rank 0 of {world} tty={sys.stdout.isatty()}", flush=True)
    environment = {k: v for k, v in os.environ.items() if k.startswith(SHOWN)}
    seen = json.dumps({"pid": os.getpid(), **environment})
    (attempt.folder / f"seen-{attempt.rank}.json").write_text(seen)
    if what == "fail_seed":
        seed = yaml.safe_load((attempt.folder / "job.yaml").read_text())["train"]["seed"]
        if seed == int(who):
            raise RuntimeError(f"seed {seed} went out")
        what = "finish"
    if what == "curve":
        curve(run_dir, attempt, who, stop)
        what = "finish"
    if who == str(attempt.rank):
        act(what, stop)
    while what == "deaf" or (what not in ("finish", "ask") and not stop()):
        time.sleep(0.02)
    if what == "linger":
        time.sleep(7)
    if attempt.rank == 0:
        save(run_dir / "checkpoints" / "step-00000100")
        outcome = "stopped" if stop() else "finished"
        numbers = {"step": 100, "train_loss": 2.5, "val_loss": 2.6, "bigram_entropy": 2.7}
        attempt.record_result({"outcome": outcome, "tokens_per_s": 10.0, **numbers})


def curve(run_dir: Path, attempt: Attempt, gate: str, stop: StopRequest) -> None:
    rate = yaml.safe_load((attempt.folder / "job.yaml").read_text())["optimizer"]["lr"]
    if rate > 1:
        raise RuntimeError(f"a rate of {rate} blew up")
    spool = Spool(run_dir, attempt.number)
    for step in range(10, 101, 10):
        if not stop():
            spool.log(step, {"val/loss": abs(math.log10(rate) + 2) + 1 / step})
        while step == 50 and gate and not stop() and not Path(f"{gate}-{rate}").exists():
            time.sleep(0.02)
    spool.close()


def save(checkpoint: Path) -> None:
    checkpoint.mkdir(parents=True, exist_ok=True)
    Manifest({}).write(checkpoint)


def act(what: str, stop: StopRequest) -> None:
    while what == "raise_at_stop" and not stop():
        time.sleep(0.02)
    if what == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "ask":
        print(f"you said {input()}", flush=True)
    if what in ("raise", "raise_at_stop"):
        raise RuntimeError("the lamp went out")
    if what == "user_error":
        raise ConfigError("model.type=lama is not a model of transformers: use llama")


if __name__ == "__main__":
    run_rank(main)
