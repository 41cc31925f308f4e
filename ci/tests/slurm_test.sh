#!/usr/bin/env bash
# Runs the recipe for Slurm in a cluster of this machine alone: a controller, a node, several tasks,
# one of which is killed and requeued on the way. The merged report must be that of one process.
#   ci/tests/slurm_test.sh PROGRAM        exit status 4: skipped, for there is no Slurm
set -euo pipefail
program=$(readlink -f "$1")
cd "$(dirname "$0")/../.."
for tool in slurmctld slurmd munged; do
  PATH=$PATH:/usr/sbin command -v $tool >/dev/null || { echo "skipped: no $tool; apt-get install slurmctld slurmd slurm-client munge"; exit 4; }
done
[[ $(id -u) == 0 ]] || { echo "skipped: slurmd needs root"; exit 4; }
export PATH=$PATH:/usr/sbin
folder=$(mktemp -d)
export SLURM_CONF=$folder/slurm.conf
daemons=()
finish() {
  status=$?
  kill "${daemons[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  [[ $status == 0 || $status == 4 ]] || tail -n 20 "$folder"/*.log >&2
  rm -rf "$folder"
}
trap finish EXIT

# Its own keys and sockets, so that a cluster of this machine is left alone.
chmod 755 "$folder"
dd if=/dev/urandom of="$folder/munge.key" bs=1024 count=1 2>/dev/null
chmod 400 "$folder/munge.key"
munged --foreground --force --num-threads=2 --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
  --pid-file="$folder/munge.pid" --log-file="$folder/munge.log" --seed-file="$folder/munge.seed" &
daemons+=($!)
port=$((20000 + RANDOM % 20000))
cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=requeue_setup_env_fail
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP
CONF
mkdir "$folder/state" "$folder/spool"
slurmctld -D -f "$SLURM_CONF" >"$folder/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D -f "$SLURM_CONF" >"$folder/slurmd.log" 2>&1 &
daemons+=($!)
within() { # SECONDS COMMAND...: until it succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || { echo "gave up waiting for: $*" >&2; exit 1; }
    read -rt 0.1 <> <(:) || true
  done
}
is_up() { sinfo -h -o %T 2>/dev/null | grep -qE "idle|mixed|alloc"; }
within 60 is_up

options=(--subject engine:R1 --keep-going --no-regressions --cases 24000 --seed 11)
export REMATCH=$program RESULTS=$folder/results
job=$(sbatch --parsable --array=1-4 --output="$folder/task-%a.out" --export=ALL ci/recipes/slurm.sbatch \
  "${options[@]}")
# One task is killed in the midst of its part, and started again.
within 60 test -s "$folder/results/part-2.jsonl"
pkill -9 -f -- "--shard 2/4 --results $folder/results" || { echo "part 2 was over before it could be killed" >&2; exit 1; }
is_over() { ! squeue -h -j "$1" 2>/dev/null | grep -q .; }
within 120 is_over "$job"
grep -q '"done"' "$folder/results/part-2.jsonl" ||
  { again=$(sbatch --parsable --array=1-4 --output="$folder/again-%a.out" --export=ALL ci/recipes/slurm.sbatch "${options[@]}"); within 120 is_over "$again"; }

bare() { grep -vE '"(seconds|start_seconds|cases_per_second)"' || true; }
status=0
"$program" merge --no-regressions --json --save "$folder" "$folder"/results/part-*.jsonl >"$folder/merged.json" || status=$?
whole=0
"$program" check "${options[@]}" --json --save "$folder" >"$folder/whole.json" 2>/dev/null || whole=$?
[[ $status == "$whole" ]] || { echo "expected exit status $whole, got $status" >&2; exit 1; }
diff <(bare <"$folder/whole.json") <(bare <"$folder/merged.json")
grep -q '"violating_cases": [1-9]' "$folder/merged.json"
echo "merged as one process: $(grep -o '"violating_cases": [0-9]*' "$folder/merged.json")"
