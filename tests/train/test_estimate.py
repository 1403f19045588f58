"""What a run says before its first step."""

from itertools import pairwise

from parity.curves import PackedRows, RaggedRows

from ringshard.train.estimate import documents


def test_documents_are_not_those_that_something_is_learned_of() -> None:
    rows = PackedRows().read(0, 40)
    expected = [
        int(end - start)
        for mask, bounds in zip(rows.loss_mask, rows.bounds, strict=True)
        for start, end in pairwise(bounds[:3])  # the third is padding
        if mask[start:end].sum()
    ]
    assert documents(PackedRows(), 40, 29) == expected
    assert documents(RaggedRows(learned_before=0), 40, 32) == [32]
