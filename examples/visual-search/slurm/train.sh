#!/usr/bin/env bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --gpus-per-node=1
#SBATCH --output=train-%j.log
#
# Train on one machine.
#
#   sbatch train.sh JUDGE_URL [KEY=VALUE]...
#
# Environment: RECIPE (qwen2.5-vl-7b).
set -euo pipefail

if (($# < 1)); then
    echo "usage: sbatch train.sh JUDGE_URL [KEY=VALUE]..." >&2
    exit 2
fi
judge=$1
shift

exec rlcore run --plugin visual-search --recipe "${RECIPE:-qwen2.5-vl-7b}" "reward.0.base_url=[\"$judge\"]" "$@"
