"""What a disk that stayed full to the end has kept from the record, which then can't say so."""

from ringshard.launch.rundir import RunDir
from ringshard.tracking.spool import is_node, last_step, listed


def unrecorded(run: RunDir) -> int:
    """Steps that attempts have trained after the last recorded one, as their results tell."""
    spools = [spool for spool in listed(run.path) if not is_node(spool.writer)]
    missing = reached = 0
    for attempt in range(1, run.last_attempt() + 1):
        reached = max([reached, *(last_step(s.path) for s in spools if s.attempt == attempt)])
        trained = int(run.result(attempt).get("step") or 0)
        if trained > reached:
            if run.job(attempt).tracking.backend.records:
                missing += trained - reached
            reached = trained
    return missing
