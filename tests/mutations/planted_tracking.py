"""Known bugs of tracking: points that are lost or doubled, and a status that is not true."""

from mutations.planted import Bug

TRACKING = "platform/ringshard/tracking"
STANDING = "tests/tracking/test_standing.py"
REPEATS = "tests/tracking/test_repeats.py"
REAP = "tests/tracking/test_reap.py"

BUGS = [
    Bug(
        "steps trained again are recorded twice",
        f"{TRACKING}/spool.py",
        "{k: v for k, v in record.metrics.items() if record.step not in self.known.get(k, ())}",
        "dict(record.metrics)",
        "tests/tracking/test_spool.py::test_a_resumed_run_repeats_no_step[2-0]",
    ),
    Bug(
        "points are noted as shipped before MLflow has them",
        f"{TRACKING}/delivery.py",
        "remote.log(batch.points, arrived.warnings)\n            self._note(arrived)",
        "self._note(arrived)\n            remote.log(batch.points, arrived.warnings)",
        "tests/tracking/test_shipper.py::test_points_that_mlflow_refused_are_sent_again",
    ),
    Bug(
        "steps that a full disk took nothing of are missed by nobody",
        f"{TRACKING}/unrecorded.py",
        "missing += trained - reached",
        "missing += 0",
        "tests/tracking/test_shipper.py::test_lines_of_a_disk_that_stays_full_are_missed_by_nobody",
    ),
    Bug(
        "an interrupted run has ended when it was shipped",
        f"{TRACKING}/delivery.py",
        "float(told or last_sign or",
        "float(told or time.time() or",
        "tests/tracking/test_shipper.py"
        "::test_a_run_that_lies_elsewhere_is_another_run_or_doubles_points[KILLED-copied]",
    ),
    Bug(
        "a failed run is FINISHED",
        f"{TRACKING}/standing.py",
        'Outcome.failed: "FAILED"',
        'Outcome.failed: "FINISHED"',
        f"{STANDING}::test_an_attempt_that_was_ended_has_another_status_than_its_end"
        "[failed-crashed-told3]",
    ),
    Bug(
        "a run whose agent was killed goes on in MLflow for ever",
        f"{TRACKING}/standing.py",
        "return Standing(KILLED, f",
        "return Standing(RUNNING, f",
        f"{STANDING}::test_an_attempt_that_nobody_ended_is_at_work_while_held",
    ),
    Bug(
        "lines dropped at the end are not counted",
        f"{TRACKING}/spool.py",
        "self._write(_seal(self._step, {}, self.dropped))",
        "pass",
        "tests/tracking/test_spool.py::test_lines_dropped_at_the_end_are_counted_when_it_closes",
    ),
    Bug(
        "MLflow says that a run which waits is killed",
        f"{TRACKING}/standing.py",
        "Outcome.requeued: QUEUED",
        "Outcome.requeued: KILLED",
        f"{STANDING}::test_a_run_in_the_queue_is_killed_or_one_that_left_it_waits_for_ever",
    ),
    Bug(
        "a step that came out otherwise counts as the same",
        f"{TRACKING}/repeats.py",
        "return abs(new - old) / max(abs(new), abs(old))",
        "return 0.0",
        f"{REPEATS}::test_a_step_that_comes_out_otherwise_goes_unnoticed",
    ),
    Bug(
        "a point is shipped twice after a restart, at another time",
        f"{TRACKING}/batches.py",
        "return round(record.time * 1000)",
        "import time\n    return round(time.time() * 1000)",
        "tests/tracking/test_shipper.py"
        "::test_a_shipper_killed_in_mid_run_leaves_nothing_out_and_nothing_twice",
    ),
    Bug(
        "each member of a sweep makes a parent",
        f"{TRACKING}/sweep.py",
        "        if known := _found",
        "        if False and _found",
        "tests/tracking/test_sweep.py"
        "::test_members_that_start_at_once_have_several_parents_or_no_flat_tags",
    ),
    Bug(
        "of a sweep the last word is not the last that was true",
        f"{TRACKING}/sweep.py",
        "with _alone(sweep):\n        stands, run",
        "if True:\n        stands, run",
        "tests/tracking/test_sweep.py::test_what_was_true_of_a_sweep_first_is_told_last",
    ),
    Bug(
        "the shipper dies of the signal that all processes of a cancelled job get",
        f"{TRACKING}/shipper.py",
        "        signal.signal(number, signal.SIG_IGN)",
        "        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})",
        "tests/tracking/test_shipper.py"
        "::test_a_run_whose_processes_were_all_told_to_stop_goes_on_in_mlflow",
    ),
    Bug(
        "files are sent again and again",
        f"{TRACKING}/delivery.py",
        "if name not in self._ledger.attached:",
        "if True:",
        "tests/tracking/test_shipper.py::test_files_arrive_twice_or_with_secrets_or_hold_up_points",
    ),
    Bug(
        "a run that another machine may be at work on is closed",
        f"{TRACKING}/reap.py",
        "if host not in (None, socket.gethostname(), *lost_hosts):",
        "if False:",
        f"{REAP}::test_a_run_of_another_machine_is_closed_without_its_word",
    ),
    Bug(
        "a parameter with the name of a secret is told",
        f"{TRACKING}/names.py",
        "if names_secret(key",
        "if False and names_secret(key",
        "tests/tracking/test_shipper.py::test_points_parameters_files_and_status_arrive",
    ),
    Bug(
        "a sweep is over between two members of a command",
        f"{TRACKING}/sweep.py",
        "if is_attended(sweep):",
        "if False:",
        "tests/tracking/test_sweep.py::test_a_sweep_of_this_machine_is_finished_for_a_moment_between_its_members",
    ),
    Bug(
        "a checkpoint that may still be removed is a model",
        f"{TRACKING}/models.py",
        "if is_final or not policy.keep",
        "if True or not policy.keep",
        "tests/tracking/test_models.py::test_a_checkpoint_that_is_kept_is_no_model_or_two",
    ),
    Bug(
        "other jobs' devices are watched",
        f"{TRACKING}/gpus.py",
        "return names[:processes]",
        "return names",
        "tests/tracking/test_system.py::test_devices_of_other_jobs_are_watched[4,5,6,7-2-devices1]",
    ),
]
