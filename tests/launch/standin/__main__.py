"""Stands in for the trainer in tests of the agent: the rank protocol without torch.

STANDIN says what it does: finish, wait (until told to stop), deaf (never stops), raise:RANK,
sigkill:RANK, user_error:RANK, ask:RANK (reads a line from stdin).
"""

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

STOP = (signal.SIGUSR2, signal.SIGTERM)


def main(run_dir: Path, number: int) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with its torchrun
    rank = int(os.environ["RANK"])
    what, _, who = os.environ.get("STANDIN", "finish").partition(":")
    told: list[int] = []
    for stop in STOP:
        signal.signal(stop, lambda n, _: told.append(n))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
    attempt = Path(run_dir) / "attempts" / str(number)
    if rank == 0:
        print(f"rank 0 of {os.environ['WORLD_SIZE']} tty={sys.stdout.isatty()}", flush=True)
    environment = {k: v for k, v in os.environ.items() if k.startswith(("SLURM_", "MY_", "OMP_"))}
    (attempt / f"seen-{rank}.json").write_text(json.dumps({"pid": os.getpid(), **environment}))
    if who == str(rank):
        act(what)
    while what == "deaf" or (what not in ("finish", "ask") and not told):
        time.sleep(0.02)
    if rank == 0:
        outcome = "stopped" if told else "finished"
        numbers = {"step": 100, "train_loss": 2.5, "val_loss": 2.6, "bigram_entropy": 2.7}
        result = {"outcome": outcome, "tokens": 300, "tokens_per_s": 10.0, **numbers}
        (attempt / "result.json").write_text(json.dumps(result))


def act(what: str) -> None:
    if what == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "ask":
        print(f"you said {input()}", flush=True)
    if what == "raise":
        raise RuntimeError("the lamp went out")
    if what == "user_error":
        error = type("ConfigError", (Exception,), {})
        raise error("model.type=lama is not a model of transformers: use llama")


def as_process() -> None:
    run_dir, number, rank = Path(sys.argv[1]), int(sys.argv[2]), int(os.environ["RANK"])
    try:
        main(run_dir, number)
    except Exception as error:
        record = {"time": time.time(), "rank": rank, "type": type(error).__name__}
        record |= {"message": str(error), "traceback": traceback.format_exc()}
        path = run_dir / "attempts" / str(number) / f"error-rank-{rank}.json"
        path.write_text(json.dumps(record))
        sys.exit(1)


if __name__ == "__main__":
    as_process()
