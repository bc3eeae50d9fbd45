#!/usr/bin/env bash
#SBATCH --job-name=judge
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
#SBATCH --output=judge-%j.log
#
# Serve the judge, and write its URL to a file.
#
#   sbatch judge.sh [MODEL] [PORT]
#
# Environment: JUDGE_FILE, the file for the URL (judge.url). Set VLLM_API_KEY to require a key.
set -euo pipefail

model=${1:-Qwen/Qwen2.5-72B-Instruct}
port=${2:-18901}
file=${JUDGE_FILE:-judge.url}
host=${JUDGE_HOST:-$(hostname --fqdn)}

printf 'http://%s:%s/v1\n' "$host" "$port" >"$file"
exec vllm serve "$model" \
    --served-model-name judge \
    --host 0.0.0.0 \
    --port "$port" \
    --tensor-parallel-size "${SLURM_GPUS_ON_NODE:-4}" \
    --max-model-len 32768
