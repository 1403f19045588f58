#!/usr/bin/env bash
# down.sh [WORKDIR] [--purge]: stop what up.sh started for WORKDIR; --purge removes WORKDIR, runs and all, too.
set -euo pipefail
WORK=$(realpath -m "${1:-${TMPDIR:-/var/tmp}/mlflow-server}")

stop() { # stop SIGNAL NAME: end NAME and wait for it. Only if its pid is still that of a process of this WORKDIR.
  local pid end=$((SECONDS + 30))
  pid=$(cat "$WORK/run/$2.pid" 2>/dev/null) || return 0
  while grep -qsz "^RINGSHARD_MLFLOW=$WORK$" "/proc/$pid/environ"; do
    kill "-$1" "$pid" 2>/dev/null || break
    ((SECONDS < end)) || { echo "down.sh: $2 (pid $pid) does not stop" >&2; exit 1; }
    sleep 0.1
  done
  rm -f "$WORK/run/$2.pid"
}

stop TERM server
stop INT postgres # fast: connections are cut, nothing that was committed is lost
[ "${2:-}" != --purge ] || rm -rf -- "$WORK"
