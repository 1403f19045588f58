"""The parent run of a sweep in MLflow: one for all members, whichever of them comes first.

`python -m ringshard.tracking.sweep SWEEP` tells MLflow where a sweep stands whose command has
ended: no member may have ended after it.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock

from ringshard import child
from ringshard.files import read_json, write_json
from ringshard.launch.attended import is_attended
from ringshard.launch.manifest import never_begun
from ringshard.launch.rundir import RunDir
from ringshard.launch.state import Queue, State, ask_queue, state
from ringshard.tracking import store
from ringshard.tracking.ledger import Ledger
from ringshard.tracking.standing import KILLED, RUNNING, Standing


def parent(client: Any, experiment_id: str, sweep: Path, user: str) -> str:
    """The id of a sweep's run in an experiment, which is made if need be.

    MLflow has no unique tags: the members, which share the sweep's folder, come one at a time.
    """
    with _alone(sweep):
        if known := _found(client, experiment_id, sweep):
            return known
        key = _key(sweep / "mlflow.json")
        tags = {"ringshard.sweep_key": key, "ringshard.sweep": sweep.name, "mlflow.user": user}
        made = client.create_run(experiment_id, tags=tags, run_name=sweep.name)
        return str(made.info.run_id)


def _found(client: Any, experiment_id: str, sweep: Path) -> str | None:
    key = _key(sweep / "mlflow.json")
    runs = client.search_runs([experiment_id], f"tags.`ringshard.sweep_key` = '{key}'")
    return str(runs[0].info.run_id) if runs else None


def tell_all(sweep: Path, ask: Callable[[], Queue] = ask_queue) -> Standing | None:
    """Tell MLflow where a sweep stands, wherever members were sent; None: it knew.

    A member that was cancelled while it waited had nobody to tell it. Raises ConfigError where it
    can't be done now.
    """
    ledgers = [Ledger.noted(file.parent) for file in sweep.glob("*/run.json")]
    told = None
    for uri, experiment in {(one.uri, one.experiment) for one in ledgers if one}:
        with store.told_in_a_sentence(f"{uri} could not be told of {sweep}", "try later"):
            store.ensure(uri, experiment)
            client = store.connect(uri)
            run_id = _found(client, store.experiment_id(client, uri, experiment), sweep)
            told = (tell(client, run_id, sweep, ask) if run_id else None) or told
    return told


def tell(client: Any, run_id: str, sweep: Path, ask: Callable[[], Queue]) -> Standing | None:
    """Set the status of a sweep's run; None: it was the true one.

    Looked at and told by one at a time: else what was true first might arrive last.
    """
    with _alone(sweep):
        stands, run = standing(sweep, ask), client.get_run(run_id)
        if (run.info.status, run.data.tags.get("ringshard.state")) == stands:
            return None
        client.set_tag(run_id, "ringshard.state", stands.state)
        if stands.is_final:
            _tell_goodput(client, run)
            client.set_terminated(run_id, stands.status)
        else:
            client.update_run(run_id, status=stands.status)
        return stands


def _tell_goodput(client: Any, run: Any) -> None:
    """Where the time of all members went, as they have told it."""
    from mlflow.entities import Metric

    from ringshard.report.goodput import total
    from ringshard.report.mlflow_runs import goodput_of, search  # Arrow takes half a second

    where = f"tags.`mlflow.parentRunId` = '{run.info.run_id}'"
    members = search(client, [run.info.experiment_id], where)
    together, now_ms = total(filter(None, map(goodput_of, members))), round(time.time() * 1000)
    metrics = [Metric(key, value, now_ms, 0) for key, value in together.metrics().items()]
    client.log_batch(run.info.run_id, metrics=metrics)


def _alone(sweep: Path) -> FileLock:
    return FileLock(sweep / "mlflow.lock")


def _key(noted: Path) -> str:
    """Stays with the folder wherever it is moved; noted first, should creation be cut off."""
    if (known := read_json(noted)) is None:
        known = {"key": uuid4().hex}
        write_json(noted, known)
    return str(known["key"])


def standing(sweep: Path, ask: Callable[[], Queue] = ask_queue) -> Standing:
    """Where the members stand together: at work as long as one is, or a command that may begin
    another one. One that never began keeps a sweep from being finished."""
    if is_attended(sweep):
        return Standing(RUNNING, State.running.name)
    members = [RunDir(file.parent) for file in sweep.glob("*/run.json")]
    random.shuffle(members)  # of thousands, one that lives is met soon
    queue, states = cache(ask), Counter[State]()
    for member in members:
        stands = state(member, queue())
        if stands.lives:
            return Standing(RUNNING, State.running.name)
        states[stands] += 1
    if missing := never_begun(sweep):
        states[State.new] = missing
    told = ", ".join(sorted(f"{count} {stands.name}" for stands, count in states.items()))
    if states[State.done] and set(states) <= {State.done, State.pruned}:
        return Standing("FINISHED", told)
    return Standing("FAILED" if states[State.failed] else KILLED, told)


def main() -> int:
    """2 with one sentence where MLflow can't be told now."""
    return child.answer(lambda: tell_all(Path(sys.argv[1])))


if __name__ == "__main__":
    sys.exit(main())
