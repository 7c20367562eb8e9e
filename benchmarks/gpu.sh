#!/usr/bin/env bash
# Check that trainings give the same results on a GPU as on the CPU, and time them, in one call of less than 5 minutes:
#
#   benchmarks/gpu.sh                       on the GPU of this machine; writes benchmarks/gpu.json
#   benchmarks/gpu.sh --device cuda:1       on another one
#   benchmarks/gpu.sh --device cpu --tiny   what it does, tried on a machine without a GPU, in seconds
#
# Needs what the package needs, with a PyTorch built for CUDA. PYTHON names the interpreter; by default that of `make`,
# or else python3. Exit status: 0 all results agree, 1 some do not, 2 there is no GPU.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$root/.venv/bin/python}"
[ -x "$python" ] || python="$(command -v "${PYTHON:-python3}")" || { echo "no Python: set PYTHON" >&2; exit 2; }
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec timeout 295 "$python" -u "$root/benchmarks/gpu_check.py" "$@"
