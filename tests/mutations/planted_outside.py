"""Known bugs outside the training step: data, checkpoints, learning rate, launching."""

from mutations.planted import Bug

DATA = "platform/ringshard/data"
CHECKPOINT = "platform/ringshard/checkpoint"
OPTIM = "platform/ringshard/optim"
LAUNCH = "platform/ringshard/launch"

OUTSIDE = [
    Bug(
        "every epoch has the same order",
        f"{DATA}/dataset.py",
        "keyed(self._seed, corpus, epoch)",
        "keyed(self._seed, corpus)",
        "tests/data/test_dataset.py"
        "::test_every_row_of_a_corpus_is_read_once_an_epoch_over_three_epochs[concat]",
    ),
    Bug(
        "rows share no token, so that some are never a target",
        f"{DATA}/packing.py",
        "position, missing, result = row * self._seq_len,",
        "total = int(self._through[-1])\n"
        "        position, missing, result = row * (self._seq_len + 1) % (total - self._seq_len),",
        "tests/data/test_dataset.py"
        "::test_rows_are_the_documents_of_their_split_end_to_end_and_nothing_of_the_other",
    ),
    Bug(
        "validation tokens are trained on",
        f"{DATA}/split.py",
        "share) == validation",
        "share) >= validation",
        "tests/data/test_packing.py::test_splits_share_no_token_and_lose_none",
    ),
    Bug(
        "rows of a block of documents are counted from 0 again",
        f"{DATA}/packing.py",
        "block[2] += done",
        "block[2] += 0",
        "tests/data/test_packing.py::test_documents_looked_at_a_few_at_a_time_lose_tokens[none]",
    ),
    Bug(
        "questions count as answers in the store",
        f"{DATA}/store.py",
        "loss_mask.append(mask)",
        "loss_mask.append(np.ones_like(mask))",
        "tests/data/test_dataset.py::test_prompts_and_questions_are_read_but_not_learned",
    ),
    Bug(
        "a store is reused although its source has changed",
        f"{DATA}/prepare.py",
        "hashed(key, each.state, _reading(each))",
        "hashed(key, each.name, _reading(each))",
        "tests/data/test_prepare.py::test_changed_file_makes_a_new_store",
    ),
    Bug(
        "the newest checkpoint is removed",
        f"{CHECKPOINT}/directory.py",
        "        if checkpoint != newest and not stays",
        "        if not stays",
        "tests/checkpoint/test_checkpoint.py"
        "::test_only_the_newest_are_kept_and_never_the_one_just_saved_removed",
    ),
    Bug(
        "what is asked in a process of its own outlives its command",
        "platform/ringshard/child.py",
        "        preexec_fn=partial(die_with, os.getpid()),\n",
        "",
        "tests/launch/test_orphans.py::test_a_preparation_outlives_its_command[15]",
    ),
    Bug(
        "an address with a password is no secret",
        "platform/ringshard/config/secrets.py",
        "return isinstance(value, str) and bool(_VALUE.search(value))",
        "return False",
        "tests/config/test_secrets.py::test_an_address_with_a_password_is_noted_by_sync",
    ),
    Bug(
        "skipped updates are not counted",
        "platform/ringshard/train/recorder.py",
        "self._count(norm)",
        "pass",
        "tests/train/test_diverged.py::test_a_diverged_run_looks_healthy[1]",
    ),
    Bug(
        "vectors decay",
        f"{OPTIM}/build.py",
        "(others, 0.0))",
        "(others, config.weight_decay))",
        "tests/optim/test_build.py::test_matrices_decay_and_vectors_do_not",
    ),
    Bug(
        "warm-up one step late",
        f"{OPTIM}/schedule.py",
        "(position + 1) / (warmup + 1)",
        "position / warmup",
        "tests/optim/test_schedule.py::test_warmup_rises_in_equal_steps_to_the_peak[cosine]",
    ),
    Bug(
        "done members of a sweep run again",
        f"{LAUNCH}/start.py",
        "return run.dir.outcome() is Outcome.done and run.after is None",
        "return False",
        "tests/launch/test_sweep.py::test_a_named_run_is_the_same_run_again",
    ),
    Bug(
        "a run is not held by its agent",
        f"{LAUNCH}/rundir.py",
        'with FileLock(self.path / "lock", timeout=_PATIENCE_S, poll_interval=0.02):',
        "if True:",
        "tests/launch/test_rundir.py::test_a_run_at_work_is_held_and_let_go_however_it_ends",
    ),
    Bug(
        "each rank knows of its own stop request alone",
        "platform/ringshard/train/agreement.py",
        "dist.all_reduce(self._numbers, group",
        "dist.all_reduce(self._numbers[1:], group",
        "tests/train/test_agreement.py::test_a_rank_that_is_asked_to_stop_stops_alone[0]",
    ),
]
