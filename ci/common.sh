#!/usr/bin/env bash
# Sourced by the scripts of ci/ and ci/maintain/, with their arguments. Help is the comment at their top.
set -euo pipefail
script=ci/${0##*/}
[[ $0 != */maintain/* ]] || script=ci/maintain/${0##*/}
help_text=$(sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0")

print_help() {
  printf '%s\n' "$help_text"
  exit 0
}

# refuse ARGUMENT SENTENCE
refuse() {
  echo "$script: unknown argument '$1'; $2" >&2
  exit 2
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

# Installs what python3 -m venv needs.
need_venv() {
  python3 -c "import ensurepip" 2>/dev/null ||
    as_root apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
}

# The path of a tool of the CUDA toolkit; fails where there is none.
cuda_tool() {
  PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/bin command -v "$1"
}

case "${1:-}" in
  -h | --help) print_help ;;
esac
