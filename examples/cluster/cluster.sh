#!/usr/bin/env bash
#SBATCH --job-name=rlcore
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --output=rlcore-%j.log
#SBATCH --signal=B:TERM@300
#
# Train on the first machine, and sample on the others, in a Ray cluster that begins and ends with the run.
#
#   sbatch --account=ACCOUNT --partition=PARTITION --nodes=4 cluster.sh WORDS...
#   HOSTS="here other another" bash cluster.sh WORDS...
#
# WORDS are those of rlcore run. The first of HOSTS is this machine; the others are reached with ssh. All machines need
# the same folder and the same installation under the same paths.
#
# Environment: SERVE_ENVIRONMENT, SERVE_REWARD and SERVE_SANDBOX, the words of rlcore serve; all machines but the first
# then run it, and the run uses it. PROCESSES, the number of processes that train, on as few machines as possible from
# the first; the rest of the machines samples. GPUS, the number of GPUs of each machine, or of workers on each without
# GPUs; Slurm tells it. PORT, the first of four ports.
set -euo pipefail

if (($# < 1)) || [[ -z ${SLURM_JOB_ID-}${HOSTS-} ]]; then
    echo "usage: sbatch cluster.sh WORDS..., or HOSTS=\"here other\" bash cluster.sh WORDS...; words of rlcore run" >&2
    exit 2
fi
if [[ -n ${SLURM_JOB_ID-} ]]; then
    mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    port=${PORT:-$((20000 + SLURM_JOB_ID % 2500 * 4))} # jobs on the same machine have other ports
else
    read -r -a hosts <<<"$HOSTS"
    port=${PORT:-20000}
fi
head=${hosts[0]}
others=("${hosts[@]:1}")
workers=("${others[@]:-$head}")
gpus=${GPUS:-${SLURM_GPUS_ON_NODE:-1}}
count=$((${#workers[@]} * gpus))
joining=("${workers[@]}")
if [[ -n ${PROCESSES-} ]]; then
    count=$((${#hosts[@]} * gpus - PROCESSES))
    joining=("${hosts[@]}")
fi
if ((count < 1)); then
    echo "error: no GPU is left to sample: ${#hosts[@]} machines with $gpus each, and PROCESSES=${PROCESSES-0}" >&2
    exit 2
fi
mark=$(mktemp "$PWD/.rlcore-cluster-XXXXXX")
logs=$(mktemp -d)
pieces=()

export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_ENABLE_UV_RUN_RUNTIME_ENV=0
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(16))')
RLCORE_SERVER_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(16))')
export RAY_AUTH_TOKEN RLCORE_SERVER_TOKEN

# The other side of ssh. Its input has the tokens, which a command line would show to all users, and ends with this script.
# shellcheck disable=SC2016 # it is expanded there
remote='
cd "$1" || { echo "$(hostname): there is no folder $1; all machines need it" >&2; exit 2; }
export PATH="$2" RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_ENABLE_UV_RUN_RUNTIME_ENV=0
shift 2
read -r RAY_AUTH_TOKEN
read -r RLCORE_SERVER_TOKEN
export RAY_AUTH_TOKEN RLCORE_SERVER_TOKEN
"$@" </dev/null &
piece=$!
while kill -0 "$piece" 2>/dev/null; do
    ended=0
    read -r -t 1 _ || ended=$?
    if ((ended == 1)); then kill "$piece" 2>/dev/null; sleep 1; fi
done
wait "$piece"'

# on HOST COMMAND...: run a command there. It ends with this script.
on() {
    local host=$1
    shift
    if [[ -n ${SLURM_JOB_ID-} ]]; then
        exec srun --overlap --cpu-bind=none --nodes=1 --ntasks=1 --nodelist="$host" "$@"
    elif [[ $host == "$head" ]]; then
        exec "$@"
    fi
    exec ssh -o BatchMode=yes "$host" "bash -c $(printf '%q ' "$remote" bash "$PWD" "$PATH" "$@")" \
        < <(printf '%s\n' "$RAY_AUTH_TOKEN" "$RLCORE_SERVER_TOKEN" && exec tail --pid=$$ -f /dev/null 2>/dev/null)
}

# end: end what this script has started, and nothing else. Other clusters may run on the same machines.
# shellcheck disable=SC2329 # the trap calls it
end() {
    trap - EXIT
    rm -f "$mark"
    if ((${#pieces[@]})); then
        kill "${pieces[@]}" 2>/dev/null || true
        wait "${pieces[@]}" 2>/dev/null || true
    fi
    rm -rf "$logs"
}
trap end EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

# check HOST: whether it can take part.
check() {
    local host=$1 there here
    # shellcheck disable=SC2016
    there=$(on "$host" bash -c '
        [[ -e $1 ]] || { echo "$(hostname): its folder is another one than that of the first machine: share it" >&2; exit 2; }
        command -v ray rlcore >/dev/null || { echo "$(hostname): ray or rlcore is not installed" >&2; exit 2; }
        date +%s' check "$mark") || { echo "error: $host cannot take part in the cluster" >&2; return 2; }
    here=$(date +%s)
    if ((there - here > 5 || here - there > 5)); then
        echo "warning: the clock of $host differs by $((there - here)) s from that of $head" >&2
    fi
}

checks=()
for host in "${hosts[@]}"; do
    check "$host" &
    checks+=($!)
done
for each in "${checks[@]}"; do wait "$each"; done

# failed MESSAGE: report that a piece has ended. This ends the script, unless the run has begun.
failed() {
    echo "error: $1" >&2
    kill -USR1 $$
}
trap 'exit 2' USR1

# node HOST COMMAND...: start a node of Ray there, twice if need be: Ray gives a node 30 s, which a busy machine exceeds.
node() {
    local child log
    log=$(mktemp "$logs/XXXXXX")
    trap 'kill "$child" 2>/dev/null; wait "$child"; exit 143' TERM
    for _ in 1 2; do
        on "$@" >"$log" 2>&1 &
        child=$!
        if wait "$child"; then break; fi
    done
    failed "ray start failed on $1: $(grep -Ev '^(srun: .*)?$' "$log" | tail -n 1)"
}

# A head among others does not sample: its GPUs train. With PROCESSES, Ray assigns them.
idle=()
if ((${#others[@]})) && [[ -z ${PROCESSES-} ]]; then idle=(--num-cpus=0 --num-gpus=0); fi
# Where grpc can be imported, Ray opens a port for remote clients, which no option prevents.
start='import sys; sys.modules["grpc"] = None; from ray.scripts.scripts import main; main()'
node "$head" python -c "$start" start --block --head --port="$port" --include-dashboard=false "${idle[@]}" &
pieces+=($!)

# opened HOST PORT: wait until something listens there.
opened() {
    for _ in {1..180}; do
        if (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; then return; fi
        sleep 1
    done
    echo "error: nothing listens on $1:$2 after 180 s" >&2
    return 2
}
opened "$head" "$port"
for host in "${others[@]}"; do
    node "$host" ray start --block --address="$head:$port" &
    pieces+=($!)
done

words=(sampler.id=ray "sampler.address=$head:$port")
if [[ -n ${PROCESSES-} ]]; then words+=("strategy.address=$head:$port" "strategy.processes=$PROCESSES"); fi

# server HOST COMMAND...: run it there, and report its end.
server() {
    local child
    trap 'kill "$child" 2>/dev/null; wait "$child"; exit 143' TERM
    on "$@" &
    child=$!
    wait "$child" || true
    failed "rlcore serve failed on $1"
}

# serve KIND KEY PORT WORDS...: offer it on the machines that sample.
serve() {
    local kind=$1 key=$2 place=$3 addresses=()
    shift 3
    for host in "${workers[@]}"; do
        server "$host" rlcore serve "$kind" "$@" --host 0.0.0.0 --port "$place" &
        pieces+=($!)
        addresses+=("$host:$place")
    done
    for host in "${workers[@]}"; do opened "$host" "$place"; done
    words+=("$key=[$(IFS=,; echo "${addresses[*]}")]")
}
read -r -a environment <<<"${SERVE_ENVIRONMENT-}"
read -r -a reward <<<"${SERVE_REWARD-}"
read -r -a sandbox <<<"${SERVE_SANDBOX-}"
if [[ -n ${SERVE_ENVIRONMENT-} ]]; then serve environment environment.servers $((port + 1)) "${environment[@]}"; fi
if [[ -n ${SERVE_REWARD-} ]]; then
    words+=("reward.0.id=${reward[0]}")
    serve reward reward.0.servers $((port + 2)) "${reward[@]}"
fi
if [[ -n ${SERVE_SANDBOX+set} ]]; then
    words+=(sandbox.id=served)
    serve sandbox sandbox.servers $((port + 3)) "${sandbox[@]}"
fi

python - "$head:$port" "${joining[@]}" <<'PYTHON' &
import sys
import time

import ray

address, *hosts = sys.argv[1:]
ray.init(address=address, log_to_driver=False, configure_logging=False)
until = time.monotonic() + 180
while True:
    there = [node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if len(there) >= len(hosts):
        break
    if time.monotonic() > until:
        known = {name.partition(".")[0] for name in there}
        missing = [host for host in hosts if host.partition(".")[0] not in known]
        sys.exit(f"error: {len(there)} of {len(hosts)} machines have joined the cluster; missing: {', '.join(missing)}")
    time.sleep(1)
PYTHON
joined=$!
pieces+=("$joined")
wait "$joined"

trap : USR1 # the run survives the loss of a piece

on "$head" rlcore run "sampler.workers=$count" "$@" "${words[@]}" & # the number can be changed by the words
run=$!
pieces+=("$run")
trap 'kill -TERM "$run"' TERM # the run writes a checkpoint
trap 'kill -INT "$run"' INT
status=0
wait "$run" || status=$?
while kill -0 "$run" 2>/dev/null; do # a signal has interrupted the wait
    status=0
    wait "$run" || status=$?
done
exit "$status"
