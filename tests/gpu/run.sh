#!/usr/bin/env bash
# The GPU pack on a machine with nothing but Python and an NVIDIA driver, from what tests/gpu/gather.sh has gathered:
# tests/gpu/run.sh [PYTEST ARGUMENTS]. PYTHON names another Python than python3, such as the one that has torch.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { echo "Holdfast needs Python 3.11 or later, and $python is older; name another by PYTHON" >&2; exit 2; }
compgen -G 'dist/gpu/*.whl' >/dev/null ||
    { echo "no wheels in dist/gpu: run make gpu-wheels where there is a network" >&2; exit 2; }
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --target "$site" \
    dist/gpu/*.whl
PYTHONPATH=$site "$python" -m pytest -m gpu -n 0 -ra tests/gpu "$@"
