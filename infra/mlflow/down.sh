#!/usr/bin/env bash
# down.sh [WORKDIR] [--purge]: stop what up.sh started for WORKDIR; --purge removes WORKDIR, runs and all, too.
set -euo pipefail
WORK=$(realpath -m "${1:-${TMPDIR:-/var/tmp}/mlflow-server}")
MARK=RINGSHARD_MLFLOW=$WORK PATIENCE_S=30
. "$(dirname "$0")/../daemons.sh"

stop TERM server
stop INT postgres # fast: connections are cut, nothing that was committed is lost
[ "${2:-}" != --purge ] || rm -rf -- "$WORK"
