#!/usr/bin/env bash
# An environment for every peer under build/peers/: make_environments.sh [loop pfl flower jax]
# All take PyTorch and NumPy in tacit's own versions (so no CUDA build is pulled), and whatever else
# they ask for. A peer that cannot be installed is left out, and `run.py` says so.
set -u
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- loop pfl flower jax
declare -A needs=(
  [loop]="torch numpy dp-accounting"
  [pfl]="pfl[pytorch]==0.6.0 torch numpy"
  [flower]="flwr[simulation]==1.41.0 torch numpy dp-accounting"
  [jax]="jax==0.10.2 numpy dp-accounting"
)
mkdir -p build/peers
grep -E '^(torch|numpy)==' constraints.txt >build/peers/constraints.txt
for peer in "$@"; do
  place=build/peers/$peer
  echo "$peer: ${needs[$peer]}"
  "${PYTHON:-python3}" -m venv --clear "$place"
  # shellcheck disable=SC2086 (several words are meant)
  if "$place/bin/python" -m pip install --quiet --disable-pip-version-check \
    -c build/peers/constraints.txt ${needs[$peer]} >"$place.log" 2>&1; then
    "$place/bin/python" -m pip freeze >"$place.txt"
  else
    echo "  not installed: $(grep -v WARNING "$place.log" | tail -1)"
    rm -rf "$place"
  fi
done
