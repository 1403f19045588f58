"""debug=on and debug=ranks: what a debugger needs of the launcher."""

import json
from pathlib import Path

from launch.commandline import begin, run, run_dirs


def test_debug_on_is_one_process_with_a_free_stdin(tmp_path: Path) -> None:
    process = begin(tmp_path, "debug=on", "+hardware.env.STANDIN='ask:0'", stdin=-1)
    out, err = process.communicate("hello\n", timeout=60)
    assert process.returncode == 0, err
    assert "you said hello" in out and "rank 0 of 1" in out
    (run_dir,) = run_dirs(tmp_path)
    assert run_dir.parent.parent.name == "debug" and (run_dir / "DONE").exists()
    started = json.loads((run_dir / "attempts/1/started.json").read_text())
    assert json.loads((run_dir / "attempts/1/seen-0.json").read_text())["pid"] == started["pid"]
    assert not (run_dir / "attempts/1/torchrun.log").exists()


def test_debug_on_lets_an_exception_through_to_the_debugger(tmp_path: Path) -> None:
    ended = run(tmp_path, "debug=on", "+hardware.env.STANDIN='raise:0'")
    assert ended.returncode == 1
    assert ended.stderr.rstrip().splitlines()[-1] == "RuntimeError: the lamp went out"
    assert (run_dirs(tmp_path)[0] / "FAILED").exists()


def test_debug_ranks_starts_two(tmp_path: Path) -> None:
    ended = run(tmp_path, "debug=ranks", "debug.rank=1", "train.detect_anomaly=false")
    assert ended.returncode == 0 and "rank 0 of 2" in ended.stdout
    assert "debug" in str(run_dirs(tmp_path)[0])
