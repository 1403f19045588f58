"""What a run says before its first step."""

from parity.curves import PackedRows, RaggedRows

from ringshard.train.estimate import documents


def test_documents_are_not_those_that_something_is_learned_of() -> None:
    rows = PackedRows().read(0, 40)
    expected = [
        int(end - start)
        for mask, bounds in zip(rows.loss_mask, rows.bounds, strict=True)
        for start, end in zip(bounds[:2], bounds[1:3], strict=True)  # the third is padding
        if mask[start:end].sum()
    ]
    assert documents(PackedRows(), 40, 29) == expected
    assert documents(RaggedRows(learned_before=0), 40, 32) == [32]
