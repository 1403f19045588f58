"""How long a run is, in steps or in tokens, and where in it a step stands."""

from dataclasses import dataclass

from ringshard.config.schema.data import Data
from ringshard.config.schema.schedule import Schedule
from ringshard.config.schema.train import BatchUnit, Train


@dataclass(frozen=True)
class Length:
    """The plan of a run."""

    global_batch: int
    """Rows of a step after the ramp [sequences]."""
    tokens_per_step: int
    """Target tokens of a step when every token is learned [tokens]."""
    steps: int | None
    """Planned steps; null: the run ends by tokens."""
    tokens: int | None
    """Planned target tokens; null: the run ends by steps."""

    ramp: tuple[int, ...] = ()
    """Rows of the first `ramp_steps` steps, each for an equal part of them [sequences]."""
    ramp_steps: int = 0

    @classmethod
    def of(cls, train: Train, data: Data) -> "Length":
        """The plan that a configuration describes."""
        per_sequence = data.seq_len if train.batch_unit is BatchUnit.tokens else 1
        global_batch = train.global_batch // per_sequence
        return cls(
            global_batch,
            global_batch * data.seq_len,
            train.steps,
            train.tokens,
            tuple(batch // per_sequence for batch in train.batch_ramp),
            train.batch_ramp_steps,
        )

    def rows(self, step: int) -> int:
        """Rows of step `step` (from 0): a function of it alone, so that any rank knows where the
        step's rows begin [sequences]."""
        if step >= self.ramp_steps:
            return self.global_batch
        return self.ramp[step * len(self.ramp) // self.ramp_steps]

    @property
    def nominal_steps(self) -> int:
        """Steps of the run when every token is learned."""
        return self.steps or -(-(self.tokens or 0) // self.tokens_per_step)

    def expected_steps(self, step: int, tokens_seen: int) -> int:
        """Steps of the run, judged by its first `step` steps (masked tokens make it longer)."""
        if self.tokens is None or tokens_seen == 0:
            return self.nominal_steps
        return -(-step * self.tokens // tokens_seen)

    def position(self, step: int, tokens_seen: int) -> float:
        """Where the schedule stands before step `step` [steps]; by tokens for a run that ends by
        tokens."""
        return step if self.steps else tokens_seen / self.tokens_per_step

    def warmup(self, schedule: Schedule) -> float:
        """Length of a schedule's warm-up [steps of the nominal size]."""
        if schedule.warmup_steps is not None:
            return schedule.warmup_steps
        if schedule.warmup_tokens is not None:
            return schedule.warmup_tokens / self.tokens_per_step
        return self.nominal_steps / 10

    def over(self, step: int, tokens_seen: int) -> bool:
        """Whether the run ends before step `step`."""
        return step >= self.steps if self.steps else tokens_seen >= (self.tokens or 0)

    def budget(self, tokens_seen: int) -> int | None:
        """Target tokens that the next step may still learn; null: no limit."""
        return None if self.tokens is None else self.tokens - tokens_seen
