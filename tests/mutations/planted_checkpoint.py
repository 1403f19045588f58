"""Known bugs of checkpoints: where each is planted, and the test that must notice it."""

from mutations.planted import Bug

CHECKPOINT = "platform/ringshard/checkpoint"
FAULTS = "tests/checkpoint/test_faults.py::test_a_kill_in_a_save_costs_more_than_that_save"
DAMAGED = "tests/checkpoint/test_integrity.py::test_a_damaged_checkpoint_is_used"

BUGS = [
    Bug(
        "rename before the manifest",
        f"{CHECKPOINT}/save.py",
        "    Manifest(files, about).write(unfinished)\n"
        "    saved = directory.commit(unfinished, state.step)\n",
        "    saved = directory.commit(unfinished, state.step)\n"
        "    Manifest(files, about).write(saved)\n",
        f"{FAULTS}[after the rename-0-at once]",
    ),
    Bug(
        "manifest before anything is synced",
        f"{CHECKPOINT}/directory.py",
        "    for path in (*unfinished.iterdir(), unfinished):\n        sync(path)\n",
        "",
        "tests/checkpoint/test_faults.py::test_what_is_renamed_is_not_on_the_disk_yet",
    ),
    Bug(
        "unfinished ones are counted",
        f"{CHECKPOINT}/directory.py",
        "if step and is_complete(folder)}",
        "if step}",
        "tests/checkpoint/test_checkpoint.py::test_an_incomplete_folder_of_that_name_is_replaced",
    ),
    Bug(
        "digest of the wrong range",
        f"{CHECKPOINT}/writer.py",
        "self.begun, self.item = self.size, xxhash.xxh3_128()",
        "self.begun, self.item = self.size, getattr(self, 'item', xxhash.xxh3_128())",
        "tests/checkpoint/test_saver.py::test_a_checkpoint_just_written_is_damaged",
    ),
    Bug(
        "nothing is verified",
        f"{CHECKPOINT}/load.py",
        "            manifest.check_items(path, name, items)\n",
        "            pass\n",
        f"{DAMAGED}[flip-__1_0.distcp]",
    ),
    Bug(
        "nothing is staged",
        f"{CHECKPOINT}/saver.py",
        "staged = self._stager.stage(held)",
        "staged = held",
        "tests/checkpoint/test_saver.py"
        "::test_training_on_changes_what_is_saved_or_the_other_way_round[1]",
    ),
    Bug(
        "retention counts damaged ones",
        f"{CHECKPOINT}/directory.py",
        "whole += _is_whole(checkpoint)",
        "whole += 1",
        "tests/checkpoint/test_integrity.py::test_a_damaged_checkpoint_is_kept_in_place_of_a_whole_one",
    ),
    Bug(
        "the newest alone is kept",
        f"{CHECKPOINT}/directory.py",
        "pinned, whole = set(pins(root).values()), 0",
        "pinned, whole = set[str](), 0",
        "tests/checkpoint/test_integrity.py::test_pinned_regular_and_read_checkpoints_are_removed",
    ),
]
