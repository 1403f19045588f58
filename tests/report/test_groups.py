"""What differs between runs, as their frozen jobs tell it."""

from pathlib import Path

from report.folders import CREATED, made

from ringshard.report.groups import by_seed, differences
from ringshard.report.runs import find


def test_runs_on_other_texts_are_seeds_of_one_experiment(tmp_path: Path) -> None:
    """The texts behind one configuration were changed after the first two."""
    for n, digest in enumerate(("aa", "aa", "bb")):
        made(tmp_path, f"run-{n}", CREATED + n, train__seed=n, data__digest=digest)
    runs = find([tmp_path])
    assert differences(runs) == ["data.digest", "train.seed"]
    assert by_seed(runs) == [[0, 1], [2]]


def test_a_digest_is_told_beside_the_settings_that_it_follows_from(tmp_path: Path) -> None:
    for n, (length, digest) in enumerate(((64, "aa"), (128, "bb"))):
        made(tmp_path, f"run-{n}", CREATED + n, data__seq_len=length, data__digest=digest)
    assert differences(find([tmp_path])) == ["data.seq_len"]
