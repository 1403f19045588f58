"""Whether the batch comes out even: rows over processes and micro-batches, tokens over rows."""

from ringshard.config.schema.job import Job
from ringshard.config.schema.train import BatchUnit
from ringshard.errors import ConfigError


def check_batch(job: Job) -> None:
    """Raises ConfigError for a batch that does not come out even over the processes."""
    train = job.train
    sequences = train.global_batch
    if train.batch_unit is BatchUnit.tokens:
        sequences, rest = divmod(train.global_batch, job.data.seq_len)
        if rest or not sequences:
            near = max(1, round(train.global_batch / job.data.seq_len)) * job.data.seq_len
            raise ConfigError(
                f"train.global_batch={train.global_batch} tokens must be a multiple of"
                f" data.seq_len={job.data.seq_len}: use {near}"
            )
    _ramp(job)
    dp_size = job.hardware.world_size // job.parallelism.cp
    if sequences % (dp_size * (train.micro_batch or 1)) or not train.micro_batch:
        size = f" × train.micro_batch={train.micro_batch}" if train.micro_batch else ""
        raise ConfigError(
            f"train.global_batch={train.global_batch} {train.batch_unit.name} must be a multiple of"
            f" {_readers(job)}{size}:"
            f" use {_even_batch(job, sequences)}"
        )


def _ramp(job: Job) -> None:
    """The batches of a ramp come out even, and it has both a length and batches."""
    train = job.train
    if bool(train.batch_ramp) != bool(train.batch_ramp_steps):
        raise ConfigError(
            f"train.batch_ramp={train.batch_ramp} with train.batch_ramp_steps="
            f"{train.batch_ramp_steps} would have no effect: give both or none"
        )
    per_row = job.data.seq_len if train.batch_unit is BatchUnit.tokens else 1
    dp_size = job.hardware.world_size // job.parallelism.cp
    step = per_row * dp_size * (train.micro_batch or 1)
    for batch in train.batch_ramp:
        if batch < 1 or batch % step:
            raise ConfigError(
                f"train.batch_ramp: {batch} {train.batch_unit.name} must be a multiple of"
                f" {_readers(job)} × train.micro_batch={train.micro_batch}: use"
                f" {max(1, round(batch / step)) * step}, or a smaller train.micro_batch"
            )
    if train.steps is not None and train.batch_ramp_steps > train.steps:
        raise ConfigError(
            f"train.batch_ramp_steps={train.batch_ramp_steps} is longer than the run of"
            f" {train.steps} steps: shorten it"
        )


def _readers(job: Job) -> str:
    """Who reads rows of their own, in words."""
    hardware, cp = job.hardware, job.parallelism.cp
    product = f"hardware.nodes={hardware.nodes} × processes_per_node={hardware.processes_per_node}"
    processes = f"{hardware.world_size} processes ({product})"
    return processes if cp == 1 else f"{processes} / parallelism.cp={cp}"


def _even_batch(job: Job, sequences: int) -> str:
    """The nearest batch that divides evenly, and the largest micro-batch for this one."""
    train, dp_size = job.train, job.hardware.world_size // job.parallelism.cp
    step = dp_size * (train.micro_batch or 1)
    unit = job.data.seq_len if train.batch_unit is BatchUnit.tokens else 1
    near = f"train.global_batch={max(1, round(sequences / step)) * step * unit}"
    share, rest = divmod(sequences, dp_size)
    if rest or not train.micro_batch:
        return near
    micro = max(size for size in range(1, train.micro_batch + 1) if share % size == 0)
    return f"{near} or train.micro_batch={micro}"
