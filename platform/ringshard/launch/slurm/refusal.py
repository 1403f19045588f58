"""What sbatch says where it refuses a job, and what can be done about it."""

import re

_LATER = r"\w*Submit\w*Limit|[Tt]imed out|temporarily|Unable to contact|Zero Bytes|standby mode"
"""Where sbatch would take the same job at another time: the limits of jobs, a busy controller."""
_TIME = "hardware.slurm.time_minutes"
_SIZE = "hardware.nodes, hardware.processes_per_node or hardware.slurm.memory_gb"
_ADVICE = {
    r"MaxWall": f"give {_TIME}, no more than the account and the qos allow",
    r"time limit is invalid": f"give {_TIME}, no more than the partition's limit (`sinfo` tells)",
    r"[Ii]nvalid partition|use this partition": "change hardware.slurm.partition (or"
    " prepare_partition) to one that `sinfo` lists",
    r"[Ii]nvalid account": "change hardware.slurm.account",
    r"[Ii]nvalid qos": "change hardware.slurm.qos",
    r"[Ii]nvalid feature": "change hardware.slurm.constraint",
    r"(Assoc|QOS)Max(Cpu|GRES|Mem|Node)": f"change {_SIZE} to what the account and the qos allow",
    r"(node|partition) configuration|[Nn]ode count|processors requested|Memory required"
    r"|\(gres\)": f"change {_SIZE} to what the partition's nodes have",
}
"""By what sbatch says; the first that fits."""


def refusal(said: str, tasks: int) -> str:
    """A sentence with sbatch's own words, of which the last line says most.

    tasks: of the array that was refused, each of which counts as a job; 1: it was no array.
    """
    lines = [line for line in said.splitlines() if "error" in line or "sbatch" in line]
    words = (lines or [said])[-1].removeprefix("sbatch: ").removeprefix("error: ").strip()
    if found := re.search(_LATER, said):
        many = tasks > 1 and "Submit" in found[0]
        fewer = f", and fewer runs at once if the limit is below these {tasks}" if many else ""
        return f"sbatch refuses the job ({found[0]}: {words}): give the command again later{fewer}"
    fitting = (advice for pattern, advice in _ADVICE.items() if re.search(pattern, said))
    advice = next(fitting, "change hardware.slurm or hardware.nodes")
    return f"sbatch refuses the job ({words}): {advice}"
