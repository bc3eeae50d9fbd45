#!/usr/bin/env bash
#SBATCH --job-name=head
#SBATCH --nodes=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --output=head-%j.log
#
# Let the workers find each other, on a machine without GPUs, and write the address to a file.
#
#   sbatch head.sh [PORT]
#
# Environment: HEAD_FILE, the file for the address (head.address).
set -euo pipefail

port=${1:-29400}
file=${HEAD_FILE:-head.address}
host=${HEAD_HOST:-$(hostname --fqdn)}

printf '%s:%s\n' "$host" "$port" >"$file"
exec python - "$port" <<'PYTHON'
import sys
import threading

from torch.distributed import TCPStore

store = TCPStore("0.0.0.0", int(sys.argv[1]), is_master=True, wait_for_workers=False)
print(f"listening on port {store.port}", flush=True)
threading.Event().wait()  # until the job is cancelled
PYTHON
