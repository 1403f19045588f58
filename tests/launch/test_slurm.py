"""What is decided without a Slurm: requests and scripts, verdicts, signals, snapshots."""

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ringshard.config.schema.hardware import Device, Hardware, Scheduler, Slurm
from ringshard.config.schema.job import Job, Output, User
from ringshard.config.schema.launcher import Launcher, Retry, Snapshot
from ringshard.errors import ConfigError
from ringshard.launch import torchrun
from ringshard.launch.code import code_of
from ringshard.launch.rundir import Outcome, RunDir
from ringshard.launch.slurm import agent
from ringshard.launch.slurm.agent import Agent, _Watch, patience_s
from ringshard.launch.slurm.batches import Planned, batches
from ringshard.launch.slurm.node import Node
from ringshard.launch.slurm.signals import Noted, Signals
from ringshard.launch.slurm.verdict import CANCELLED, PREEMPTED, TIMEOUT, Past, judge, refuse
from ringshard.launch.snapshot import snapshot
from ringshard.launch.state import State, is_wanted


def job(folder: Path, **slurm: object) -> Job:
    hardware = Hardware(Scheduler.slurm, Device.cuda, nodes=2, processes_per_node=8)
    hardware.slurm = Slurm(**slurm)  # type: ignore[arg-type]
    return Job(hardware=hardware, output=Output(str(folder), "run"))


def script(asked: Job, folder: Path) -> str:
    run = Planned(asked, RunDir(folder / "run"), 1)
    (submission,) = batches([run], folder / "code", ["afterok:7"], 16)
    return submission.request.script(1)


def test_what_a_job_asks_for_is_not_in_its_script(tmp_path: Path) -> None:
    asked = {"partition": "gpu", "account": "lab", "qos": "long", "constraint": "h100"}
    more = {"extra": {"reservation": "night", "hold": True}, "setup": ["module load x"]}
    text = script(job(tmp_path, **asked, **more, memory_gb=0, time_minutes=90), tmp_path)
    flags = [f"{name}={value}" for name, value in asked.items()]
    flags += ["nodes=2", "ntasks-per-node=1", "gpus-per-node=8", "cpus-per-task=8", "mem=0M"]
    flags += ["time=90", "requeue", "hold", "reservation=night", "dependency=afterok:7"]
    flags += ["signal=USR2@120", "kill-on-invalid-dep=yes"]
    assert [flag for flag in flags if f"#SBATCH --{flag}\n" not in text] == []
    assert "exclusive" not in text and "error=" not in text and "wckey" not in text
    assert text.index("module load x") < text.index(f"PYTHONPATH={tmp_path}/code")
    assert "--kill-on-bad-exit=1 --wait=60" in text and "env --block-signal=USR2,TERM" in text


@pytest.mark.parametrize("key", ["gpus-per-node", "gpus_per_node"])
def test_a_flag_of_sbatch_is_in_the_script_twice(key: str, tmp_path: Path) -> None:
    """Of which the last would win."""
    asked = {key: "h100:8", "kill-on-invalid-dep": "no", "open-mode": "truncate"}
    text = script(job(tmp_path, extra=asked), tmp_path)
    for flag in ("gpus-per-node=h100:8", "kill-on-invalid-dep=no", "open-mode=truncate"):
        name = flag.partition("=")[0]
        lines = [line for line in text.splitlines() if line.startswith(f"#SBATCH --{name}")]
        assert lines == [f"#SBATCH --{flag}"]


def test_a_flag_can_not_be_left_out(tmp_path: Path) -> None:
    extra = {"gpus-per-node": None, "gres": "gpu:8", "requeue": None}
    text = script(job(tmp_path, extra=extra), tmp_path)
    assert "#SBATCH --gres=gpu:8" in text
    assert "gpus-per-node" not in text and "--requeue" not in text and "None" not in text


def test_a_job_without_a_time_gets_five_minutes(tmp_path: Path) -> None:
    """submitit's own default would."""
    assert "--time" not in script(job(tmp_path), tmp_path)


def test_a_notice_is_longer_than_half_of_the_time(tmp_path: Path) -> None:
    assert "signal=USR2@60\n" in script(job(tmp_path, time_minutes=2), tmp_path)


def test_nodes_that_have_ended_do_not_wait_until_the_first_one_has_shipped(tmp_path: Path) -> None:
    patient = job(tmp_path)
    patient.tracking.flush_timeout_s = 300.0
    assert "--wait=330 " in script(patient, tmp_path)


def test_a_node_of_a_failed_job_leaves_while_the_first_one_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """srun would kill that one then."""
    (tmp_path / "exit.json").write_text('{"outcome": "failed"}')
    (tmp_path / "nodes").mkdir()
    waited: list[float] = []
    monkeypatch.setattr(agent, "_await_term", lambda *given: waited.append(given[2]))
    here = Agent(RunDir(tmp_path), 1, "standin", 120, 30, Node("12", 0, 1, ["a", "b"]))
    with pytest.raises(RuntimeError):
        here._follow(tmp_path, 1, 330)
    assert waited == [330]


def test_another_python_or_a_container_is_not_used(tmp_path: Path) -> None:
    contained = job(tmp_path, python="/opt/python", container=["apptainer", "exec", "x.sif"])
    assert "INT /opt/python -u -m submitit" in script(contained, tmp_path)
    command = torchrun.command(contained, tmp_path, 1)
    assert command[:4] == ["apptainer", "exec", "x.sif", "python"]


def test_members_that_ask_for_the_same_are_apart_or_others_together(tmp_path: Path) -> None:
    shapes = [1, 2, 1, 2, 1]
    runs = []
    for index, nodes in enumerate(shapes):
        asked = job(tmp_path)
        asked.hardware.nodes = nodes
        runs.append(Planned(asked, RunDir(tmp_path / str(index)), 1))
    made = list(batches(runs, None, [], 2))
    assert [len(one.tasks) for one in made] == [2, 1, 2]
    assert [one.request.resources["nodes"] for one in made] == [1, 1, 2]
    assert len({one.request.name for one in made}) == 3


def test_a_checkpoint_of_minutes_is_cut_off_before_the_time_limit_is() -> None:
    assert patience_s(300, 30) == {"SIGUSR2": 290.0, "SIGTERM": 22.5}


NODE = {"SLURM_JOB_ID": "12345", "SLURM_JOB_NODELIST": "n[07-09],m1", "SLURM_NODEID": "3"}


def test_nodes_meet_on_localhost_or_on_a_port_that_the_kernel_gives_away() -> None:
    """The list is read here: no scontrol is needed, and none of the nodes falls back to itself."""
    node = Node.here(NODE | {"SLURM_RESTART_COUNT": "2"})
    assert node.hosts == ["n07", "n08", "n09", "m1"] and not node.is_first
    meeting = node.meeting(1)
    assert meeting.endpoint == "n07:22345" and meeting.name == "12345-2" and meeting.node == 3
    with pytest.raises(KeyError):
        Node.here({"SLURM_JOB_ID": "1"})
    alone = Node.here(NODE | {"SLURM_JOB_NODELIST": "n07", "SLURM_NODEID": "0"})
    assert alone.meeting(0).endpoint == "localhost:0"


def noted(folder: Path, node: int, *came: tuple[str, float]) -> Noted:
    return Noted(folder, node, 2, Signals(list(came)))


def test_two_nodes_disagree_on_why_they_stop(tmp_path: Path) -> None:
    """USR2 and TERM within a moment, in any order, are a time limit; a later TERM is a scancel."""
    now = time.time()
    cases = {
        (("SIGTERM", now), ("SIGUSR2", now + 0.003)): "SIGUSR2",
        (("SIGUSR2", now), ("SIGTERM", now + 20)): "SIGTERM",
        (("SIGUSR2", now),): "SIGUSR2",
    }
    for number, (came, expected) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        first, second = noted(folder, 0, *came), noted(folder, 1)
        for one in (first, second):
            told = one.first()
            assert told is not None and told[0] == expected
    assert noted(tmp_path, 0).first() is None


def test_each_of_a_thousand_nodes_looks_for_files_twenty_times_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nodes").mkdir()
    node = Node("12", 0, 1, [f"node{index}" for index in range(1000)])
    noted = Noted(tmp_path / "nodes", node.index, len(node.hosts), Signals())
    looked: list[str] = []
    for name in ("exists", "iterdir", "glob"):
        act = getattr(Path, name)
        monkeypatch.setattr(Path, name, lambda *a, act=act, n=name: looked.append(n) or act(*a))
    with subprocess.Popen(["sleep", "9"]) as ranks:
        watch = _Watch(ranks, tmp_path, noted, {}, node)
        for _ in range(100):
            watch.look()
        ranks.kill()
    assert sorted(looked) == ["glob", "iterdir"]


def test_a_verdict_queues_a_cancelled_run_again_or_gives_a_preempted_one_up() -> None:
    launcher = Launcher(max_crashes=2, max_timeouts=3)
    fresh = Past(crashes=1, timeouts=1, progressed=True)
    stuck = replace(fresh, progressed=False)

    def outcome(reason: str | None, past: Past, finished: bool = False) -> Outcome:
        return judge(reason, finished, past, launcher).outcome

    assert outcome(PREEMPTED, fresh, finished=True) is Outcome.done
    assert outcome(CANCELLED, fresh) is Outcome.killed
    assert outcome(PREEMPTED, stuck) is Outcome.requeued
    assert outcome(TIMEOUT, fresh) is Outcome.requeued
    assert outcome(TIMEOUT, stuck) is Outcome.killed
    assert outcome(TIMEOUT, replace(fresh, timeouts=4)) is Outcome.killed
    assert outcome(None, fresh) is Outcome.requeued
    assert outcome(None, stuck) is Outcome.failed
    assert outcome(None, replace(fresh, crashes=3)) is Outcome.failed
    assert refuse(2, 1, launcher) is None and refuse(3, 0, launcher)
    assert refuse(2, 2, launcher)


def test_a_rerun_starts_what_it_was_not_asked_to() -> None:
    ended = {State.failed: Retry.failed, State.interrupted: Retry.failed}
    ended |= {State.timeout: Retry.timeout, State.killed: Retry.all}
    for stands, retry in ended.items():
        assert is_wanted(stands, retry) and is_wanted(stands, Retry.all)
        assert not is_wanted(stands, Retry.none)
    for stands in (State.done, State.running, State.pending, State.unknown):
        assert not is_wanted(stands, Retry.all)
    assert is_wanted(State.new, Retry.none) and not is_wanted(State.failed, Retry.timeout)


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True)


def test_a_snapshot_misses_changes_or_takes_what_is_ignored(tmp_path: Path) -> None:
    own, root = tmp_path / "own", tmp_path / "out"
    own.mkdir()
    (own / "tracked.py").write_text("a = 1")
    (own / ".gitignore").write_text("secret.py\n")
    git(own, "init", "-q")
    git(own, "add", "-A")
    git(own, "commit", "-qm", "x")
    (own / "tracked.py").write_text("a = 2")
    (own / "new.py").write_text("b = 1")
    (own / "secret.py").write_text("c = 1")
    user = User(["tracked"], str(own))
    copied, tracked = (snapshot(kind, user, root).user for kind in (Snapshot.copy, Snapshot.git))
    assert copied and tracked
    assert {file.name for file in copied.iterdir()} == {"tracked.py", "new.py"}
    assert {file.name for file in tracked.iterdir()} == {"tracked.py"}
    assert (tracked / "tracked.py").read_text() == "a = 2"
    again = snapshot(Snapshot.copy, user, root)
    assert again.user == copied and again.source and (again.source / "ringshard/cli.py").exists()
    (own / "new.py").write_text("b = 2")
    assert snapshot(Snapshot.copy, user, root).user != copied


def test_a_new_file_of_a_submodule_is_missing_in_a_snapshot(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    for folder, name in ((shared, "old.py"), (own, "mine.py"), (own / "inner", "theirs.py")):
        folder.mkdir()
        git(folder, "init", "-q")
        (folder / name).write_text("a = 1")
        git(folder, "add", name)
        git(folder, "commit", "-qm", "x")
    git(own, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(shared), "sub")
    for folder in (own / "sub", own / "inner"):
        (folder / "new.py").write_text("b = 1")
    (own / "sub/old.py").write_text("a = 2")
    user = User(["mine"], str(own))
    copied = snapshot(Snapshot.copy, user, tmp_path / "out").user
    assert copied
    files = {str(file.relative_to(copied)) for file in copied.rglob("*.py")}
    inner = {"inner/theirs.py", "inner/new.py"}
    assert files == {"mine.py", "sub/old.py", "sub/new.py"} | inner
    assert "+a = 2" in code_of(user).differences["code-user.diff"]


@pytest.mark.parametrize("kind", [Snapshot.copy, Snapshot.git])
def test_a_run_that_goes_on_loses_the_users_modules(kind: Snapshot, tmp_path: Path) -> None:
    """What was frozen of them lies in the output root, of which no snapshot takes anything."""
    own, root = tmp_path / "own", tmp_path / "own/outputs"
    own.mkdir()
    (own / "mine.py").write_text("a = 1")
    git(own, "init", "-q")
    git(own, "add", "mine.py")
    git(own, "commit", "-qm", "x")
    first = snapshot(kind, User(["mine"], str(own)), root).user
    assert first and (first / "mine.py").exists()
    (own / "mine.py").write_text("a = 2")
    again = snapshot(kind, User(["mine"], str(first)), root)
    assert again.user == first and again.source and (again.source / "ringshard/cli.py").exists()
    assert (first / "mine.py").read_text() == "a = 1"


def test_a_snapshot_of_git_is_empty_where_there_is_no_git(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.py").write_text("a = 1")
    user = User(["mine"], str(own))
    with pytest.raises(ConfigError, match=r"launcher\.snapshot=git"):
        snapshot(Snapshot.git, user, tmp_path / "out")
    frozen = snapshot(Snapshot.copy, user, tmp_path / "out")
    assert frozen.user and (frozen.user / "mine.py").exists()
