"""Known bugs of submission, of the agent on a node, and of what comes after an attempt."""

from mutations.planted import Bug

SLURM = "platform/ringshard/launch/slurm"
TEST = "tests/launch/test_slurm.py::test_"
LIMIT = "tests/launch/test_limit.py::test_"
SEARCH = "tests/launch/test_search.py::test_"

BUGS = [
    Bug(
        "a cancelled job comes back",
        f"{SLURM}/verdict.py",
        "return Verdict(Outcome.killed, CANCELLED)",
        "return Verdict(Outcome.requeued, CANCELLED)",
        f"{TEST}a_verdict_queues_a_cancelled_run_again_or_gives_a_preempted_one_up",
    ),
    Bug(
        "an attempt without progress is queued again for ever",
        f"{SLURM}/verdict.py",
        "if not past.progressed:\n        return Verdict(Outcome.failed, CRASHED)",
        "if False:\n        return Verdict(Outcome.failed, CRASHED)",
        f"{TEST}a_verdict_queues_a_cancelled_run_again_or_gives_a_preempted_one_up",
    ),
    Bug(
        "TERM with USR2 at a time limit counts as a cancellation",
        f"{SLURM}/signals.py",
        "min(stops) - min(saves) < _SAME_MOMENT_S",
        "min(stops) > min(saves)",
        f"{TEST}two_nodes_disagree_on_why_they_stop",
    ),
    Bug(
        "a node knows of its own signals alone",
        f"{SLURM}/signals.py",
        "self._others[node] = [(name, when) for name, when in came]",
        "self._others[node] = []",
        f"{TEST}two_nodes_disagree_on_why_they_stop",
    ),
    Bug(
        "each node is a world of its own",
        f"{SLURM}/node.py",
        "self.hosts[0]",
        "self.hosts[self.index]",
        f"{TEST}nodes_meet_on_localhost_or_on_a_port_that_the_kernel_gives_away",
    ),
    Bug(
        "all members of a sweep get the resources of the first",
        f"{SLURM}/batches.py",
        "alike.setdefault(key, []).append(run)",
        "alike.setdefault('', []).append(run)",
        f"{TEST}members_that_ask_for_the_same_are_apart_or_others_together",
    ),
    Bug(
        "a sweep ends at MaxArraySize",
        f"{SLURM}/batches.py",
        "range(0, len(group), max_array)",
        "range(0, min(len(group), max_array), max_array)",
        f"{TEST}members_that_ask_for_the_same_are_apart_or_others_together",
    ),
    Bug(
        "a job that is cancelled while it waits is started again as a failed one",
        "platform/ringshard/launch/state.py",
        "return State.interrupted if _waited_in_vain(run, jobs) else State.killed",
        "return State.interrupted",
        "tests/launch/test_queue.py"
        "::test_a_job_cancelled_while_it_waits_is_interrupted_and_started_again[TIMEOUT]",
    ),
    Bug(
        "every lost node counts as one too many",
        f"{SLURM}/attempt.py",
        'int(began["step"]) >= newest',
        'int(began["step"]) >= 0',
        "tests/launch/test_lost_nodes.py"
        "::test_a_job_that_kills_its_node_at_the_same_step_is_queued_again_as_if_it_went_on",
    ),
    Bug(
        "a job that queues itself again is told as late as at first",
        f"{SLURM}/attempt.py",
        "max(asked_s, limit.lead_s(run.job(number), run))",
        "asked_s",
        f"{LIMIT}a_job_that_is_queued_again_forgets_how_long_its_checkpoints_took",
    ),
    Bug(
        "a job does not hear that it was given more time",
        f"{SLURM}/limit.py",
        "        if time.time() < self.at:\n            return False\n        self.at = math.inf",
        "        self.at = math.inf",
        f"{LIMIT}a_job_stops_though_its_limit_was_moved_or_asks_slurm_in_a_loop",
    ),
    Bug(
        "a dry run's members wait for no data",
        f"{SLURM}/start.py",
        "waits_for = _waits_for(runs, jobs)",
        "waits_for = _waits_for([], jobs)",
        "tests/launch/test_submission.py"
        "::test_a_dry_run_says_nothing_of_the_job_that_would_prepare_the_data",
    ),
    Bug(
        "uncommitted files are left out of a snapshot",
        "platform/ringshard/launch/snapshot.py",
        "others = _others(folder) if kind is Snapshot.copy else []",
        "others = list[Path]()",
        f"{TEST}a_snapshot_misses_changes_or_takes_what_is_ignored",
    ),
    Bug(
        "a run that goes on has none of the user's modules",
        "platform/ringshard/launch/snapshot.py",
        'is_frozen = own.is_relative_to(root / "snapshots")',
        "is_frozen = False",
        f"{TEST}a_run_that_goes_on_loses_the_users_modules[Snapshot.copy]",
    ),
    Bug(
        "each trial of a search draws what the first one drew",
        "platform/ringshard/launch/search/study.py",
        "search.seed * 1_000_003 + number",
        "search.seed * 1_000_003",
        f"{SEARCH}a_search_that_was_stopped_tries_other_values_or_some_twice",
    ),
    Bug(
        "what a run recorded between two looks is lost where it ended in between",
        "platform/ringshard/launch/search/loop.py",
        "self._follow(one, stands)  #",
        "stands.lives and self._follow(one, stands)  #",
        f"{SEARCH}a_point_that_was_tried_trains_again",
    ),
    Bug(
        "the worst trial is the best",
        "platform/ringshard/launch/search/show.py",
        "sign = 1 if minimize else -1",
        "sign = -1 if minimize else 1",
        f"{SEARCH}the_worst_trial_or_one_without_a_result_is_shown_first",
    ),
    Bug(
        "all members of a sweep have the groups of the first",
        "platform/hydra_plugins/ringshard_hydra/composer.py",
        'groups = tuple(one.input_line or "" for one in parsed if one not in values)',
        "groups = tuple(o.input_line or '' for o in parsed if o not in values)\n"
        "        groups = next(iter(self._known), groups)",
        "tests/config/test_composer.py::test_a_member_is_composed_otherwise_than_by_hydra",
    ),
]
