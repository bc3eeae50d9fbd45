#!/usr/bin/env bash
#SBATCH --job-name=worker
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --output=worker-%j.log
#
# Train on this machine together with others: submit it once for each machine, with the same arguments.
#
#   sbatch worker.sh HEAD:PORT JUDGE_URL [KEY=VALUE]...
#
# Environment: NODES, the number of machines (2); GPUS, the processes on each (8); RECIPE (qwen2.5-vl-7b-2x8); RUN_NAME, which
# must be new (visual-search). All machines need the same folder of runs on a shared disk.
set -euo pipefail

if (($# < 2)); then
    echo "usage: sbatch worker.sh HEAD:PORT JUDGE_URL [KEY=VALUE]..." >&2
    exit 2
fi
head=$1
judge=$2
shift 2

name=${RUN_NAME:-visual-search}
exec torchrun \
    --nnodes="${NODES:-2}" \
    --nproc-per-node="${GPUS:-8}" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$head" \
    --rdzv-id="$name" \
    -m rlcore run --plugin visual-search --recipe "${RECIPE:-qwen2.5-vl-7b-2x8}" \
    "name=$name" "reward.0.base_url=[\"$judge\"]" "$@"
