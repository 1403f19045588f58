#!/usr/bin/env bash
# up.sh [WORKDIR]: start an MLflow server on PostgreSQL on this machine, or what is missing of it (no systemd needed).
#
# Runs, users and files lie in WORKDIR; nothing in /etc or /var is used. PostgreSQL listens on a unix socket in WORKDIR
# alone; MLflow on the loopback, with passwords: the administrator's is in WORKDIR/etc/password. Prints what a shell
# exports to reach it.
#   MLFLOW_PORT=5000  MLFLOW_HOST=127.0.0.1  MLFLOW_WORKERS=2  MLFLOW_HOSTS=login01:5000,…  PYTHON=.venv/bin/python
set -euo pipefail

WORK=$(realpath -m "${1:-${TMPDIR:-/var/tmp}/mlflow-server}")
PORT=${MLFLOW_PORT:-5000} HOST=${MLFLOW_HOST:-127.0.0.1} WORKERS=${MLFLOW_WORKERS:-2}
PYTHON=$(command -v "${PYTHON:-.venv/bin/python}" || command -v python3)
case $PYTHON in /*) ;; *) PYTHON=$PWD/$PYTHON ;; esac
MARK=RINGSHARD_MLFLOW=$WORK PATIENCE_S=120
. "$(dirname "$0")/../daemons.sh"

"$PYTHON" -c 'import flask_wtf, mlflow, psycopg2' || die "$PYTHON lacks packages: $PYTHON -m pip install 'ringshard[server]'"
postgres_bin() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1; }
if [ -z "$(postgres_bin)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  install_packages postgresql
fi
POSTGRES=$(postgres_bin)
[ -n "$POSTGRES" ] || die "PostgreSQL is not installed: apt-get install postgresql"
[ ${#WORK} -le 80 ] || die "WORKDIR is too long for the unix socket in it: $WORK"

# PostgreSQL refuses to run as root: then it runs as the user that its package made.
as() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
mkdir -p "$WORK"/{etc,run,log,artifacts}
chmod 711 "$WORK"
chmod 700 "$WORK"/{etc,log,artifacts}
install -d -m 700 "$WORK/db" "$WORK/socket"
[ "$(id -u)" != 0 ] || chown postgres "$WORK/db" "$WORK/socket"
cd "$WORK"

# Who may enter the folder of the socket is its owner alone (and root), so the socket asks for no password.
[ -e db/PG_VERSION ] || as "$POSTGRES/initdb" -D "$WORK/db" -U mlflow --auth=trust -E UTF8 --locale=C.UTF-8 >log/initdb.out
alive postgres || launch postgres $([ "$(id -u)" != 0 ] || echo setpriv --reuid postgres --regid postgres --init-groups) \
  "$POSTGRES/postgres" -D "$WORK/db" -k "$WORK/socket" -c listen_addresses= -c max_connections=200
wait_for postgres "$POSTGRES/pg_isready" -h "$WORK/socket" -U mlflow -d postgres
for name in mlflow users; do
  psql -h "$WORK/socket" -U mlflow -d postgres -tAc "SELECT 1 FROM pg_database WHERE datname = '$name'" | grep -q 1 ||
    psql -q -h "$WORK/socket" -U mlflow -d postgres -c "CREATE DATABASE $name"
done

for secret in password key; do
  [ -s etc/$secret ] || (umask 077 && "$PYTHON" -c 'import secrets; print(secrets.token_urlsafe(24))' >etc/$secret)
done
# A password is checked anew once a minute, not at each request: that takes a third of a second of CPU.
cat >etc/users.ini <<INI
[mlflow]
default_permission = EDIT
database_uri = postgresql+psycopg2://mlflow@/users?host=$WORK/socket
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
INI
DATABASE="postgresql+psycopg2://mlflow@/mlflow?host=$WORK/socket"
# Once, before there are workers: several that make the same tables at once break them.
alive server || "$PYTHON" -m mlflow db upgrade "$DATABASE" >log/upgrade.out 2>&1 || die "the database is not MLflow's; see $WORK/log/upgrade.out"
serve() (
  # Not as arguments, which everybody can read.
  MLFLOW_AUTH_ADMIN_PASSWORD=$(cat etc/password) MLFLOW_FLASK_SERVER_SECRET_KEY=$(cat etc/key)
  export MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY MLFLOW_AUTH_CONFIG_PATH=$WORK/etc/users.ini
  export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=true
  export MLFLOW_SQLALCHEMYSTORE_POOL_SIZE=20 MLFLOW_SQLALCHEMYSTORE_MAX_OVERFLOW=40
  launch server "$PYTHON" -m mlflow server --app-name basic-auth --host "$HOST" --port "$PORT" --workers "$WORKERS" \
    --backend-store-uri "$DATABASE" --serve-artifacts --artifacts-destination "$WORK/artifacts" \
    --allowed-hosts "localhost:$PORT,127.0.0.1:$PORT${MLFLOW_HOSTS:+,$MLFLOW_HOSTS}"
)
alive server || serve
wait_for server "$PYTHON" -c "import urllib.request; urllib.request.urlopen('http://${HOST/0.0.0.0/127.0.0.1}:$PORT/health', timeout=2)"

echo "export MLFLOW_TRACKING_USERNAME=admin MLFLOW_TRACKING_PASSWORD=\$(cat $WORK/etc/password)"
