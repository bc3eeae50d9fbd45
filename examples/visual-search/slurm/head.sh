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

if [[ ! $port =~ ^[0-9]+$ ]]; then
    echo "usage: sbatch head.sh [PORT]; found the port $port" >&2
    exit 2
fi

exec python - "$host" "$port" "$file" <<'PYTHON'
import pathlib
import sys
import threading

from torch.distributed import TCPStore

host, port, file = sys.argv[1:]
store = TCPStore("0.0.0.0", int(port), is_master=True, wait_for_workers=False)
pathlib.Path(file).write_text(f"{host}:{port}\n")
print(f"listening on port {store.port}", flush=True)
threading.Event().wait()  # until the job is cancelled
PYTHON
