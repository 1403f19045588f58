"""What Linux says of this process's memory."""

import re
from pathlib import Path


def forget_peak() -> None:
    """The peak (VmHWM) counts anew from here on."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def held(field: str) -> int:
    """VmRSS, what is resident now, or VmHWM, the most that was [bytes]."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found
    return int(found[1]) * 1024
