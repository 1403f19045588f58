# Sourced by the scripts in the folders beside it: daemons of one WORKDIR, without systemd. They set
#   WORK        the folder; pids lie in run/, output in log/
#   MARK        NAME=VALUE in the environment of all that is started for it: pids get reused, so a pid file counts only
#               if that process has it
#   PATIENCE_S  how long a daemon may take to come up, or to go

die() { echo "$(basename "$0"): $*" >&2; exit 1; }
alive() { grep -qsz "^$MARK$" "/proc/$(cat "$WORK/run/$1.pid" 2>/dev/null || echo none)/environ"; }
launch() { # launch NAME COMMAND...: in the background, in a session of its own, its pid in run/NAME.pid
  local name=$1; shift
  setsid env "$MARK" "$@" >>"$WORK/log/$name.out" 2>&1 </dev/null &
  echo $! >"$WORK/run/$name.pid"
  until alive "$name" || ! kill -0 $! 2>/dev/null; do sleep 0.01; done # past its exec, or gone
}
wait_for() { # wait_for NAME COMMAND...: until COMMAND succeeds, or NAME has died, or PATIENCE_S is over
  local name=$1 end=$((SECONDS + PATIENCE_S)); shift
  until "$@" >/dev/null 2>&1; do
    if ! alive "$name" || ((SECONDS > end)); then die "$name did not come up; see $WORK/log/$name.out"; fi
    sleep 0.1
  done
}
stop() { # stop SIGNAL NAME: end NAME and wait for it
  local end=$((SECONDS + PATIENCE_S))
  while alive "$2"; do
    kill "-$1" "$(cat "$WORK/run/$2.pid")" 2>/dev/null || break
    ((SECONDS < end)) || die "$2 (pid $(cat "$WORK/run/$2.pid")) does not stop"
    sleep 0.1
  done
  rm -f "$WORK/run/$2.pid"
}
POLICY=/usr/sbin/policy-rc.d # saying 101, it keeps packages from starting services of their own
install_packages() { # install_packages PACKAGE...: of Debian
  [ -e $POLICY ] || { trap 'rm -f $POLICY' EXIT; printf '#!/bin/sh\nexit 101\n' >$POLICY; chmod 755 $POLICY; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}
