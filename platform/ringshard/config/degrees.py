"""The degrees of the mesh and the attention that fits them."""

from ringshard.config.schema.data import Packing
from ringshard.config.schema.job import Job
from ringshard.config.schema.parallelism import Attention, Parallelism
from ringshard.errors import ConfigError


def fill_degree(parallelism: Parallelism, world_size: int) -> None:
    """Gives the degree that is -1 its number, in place.

    Left as it is where there are two or it does not come out even; `check_degrees` says so.
    """
    free = [name for name in ("dp_shard", "cp") if getattr(parallelism, name) == -1]
    given = parallelism.dp_replicate * abs(parallelism.dp_shard * parallelism.cp)
    if len(free) == 1 and given and world_size % given == 0:
        setattr(parallelism, free[0], world_size // given)


def check_degrees(job: Job) -> None:
    """Raises ConfigError where the degrees are not those of the processes."""
    hardware, parallelism = job.hardware, job.parallelism
    world = hardware.world_size
    degrees = {name: getattr(parallelism, name) for name in ("dp_replicate", "dp_shard", "cp")}
    replicate, shard, cp = degrees.values()
    if replicate * shard * cp != world or shard < 1 or cp < 1:
        product = " × ".join(f"{name}={degree}" for name, degree in degrees.items())
        raise ConfigError(
            f"parallelism.{product} must be the {world} processes of hardware.nodes="
            f"{hardware.nodes} × processes_per_node={hardware.processes_per_node}: change one of"
            " them (dp_shard=-1 or cp=-1, not both, takes what is left over)"
        )


def check_attention(job: Job) -> None:
    """Raises ConfigError where attention can't do what the mesh and the rows ask for."""
    parallelism, data = job.parallelism, job.data
    if data.seq_len < parallelism.cp:
        raise ConfigError(
            f"data.seq_len={data.seq_len} has less than a token for each of parallelism.cp="
            f"{parallelism.cp} processes: lengthen the rows or lower cp"
        )
    if parallelism.attention is Attention.ring:
        return
    if parallelism.cp > 1:
        raise ConfigError(
            f"parallelism.attention=sdpa sees the tokens of one process alone, not those of"
            f" parallelism.cp={parallelism.cp}: use parallelism.attention=ring or parallelism.cp=1"
        )
    if data.packing is Packing.documents:
        raise ConfigError(
            "parallelism.attention=sdpa would let the documents of data.packing=documents attend to"
            " each other: use parallelism.attention=ring, or data.packing=concat or none"
        )
