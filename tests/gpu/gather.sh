#!/usr/bin/env bash
# Gathers into dist/gpu what tests/gpu/run.sh installs on a machine without a network: wheels of the locked versions for
# Linux on x86-64 and the Python named by PYTHON_VERSION, and one of this checkout with its stubs.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${PYTHON_VERSION:-3.12}
out=dist/gpu
rm -rf "$out" && mkdir -p "$out"
uv=.venv/bin/uv
{
    "$uv" export --quiet --locked --no-dev --no-hashes --no-emit-project --no-annotate --no-header \
        --extra controller --extra agent
    "$uv" export --quiet --locked --only-group dev --no-hashes --no-annotate --no-header |
        grep -E '^(pytest|pytest-timeout|pytest-rerunfailures|pytest-xdist|execnet|iniconfig|pluggy|packaging|pygments)=='
} | sort -u >"$out/requirements.txt"
platforms=()
for tag in manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 \
    manylinux_2_12 manylinux2010 manylinux_2_5 manylinux1; do
    platforms+=(--platform "${tag}_x86_64")
done
.venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --implementation cp --python-version "$version" "${platforms[@]}" -d "$out" -r "$out/requirements.txt"
"$uv" build --quiet --wheel --out-dir "$out"
rm -f "$out/.gitignore"
echo "$out: $(ls "$out"/*.whl | wc -l) wheels for Python $version, $(du -sh "$out" | cut -f1)"
