# Runs the Python of rematch-compare in the root of the sources: compare_python.sh ARGUMENT...
# Exit status 4: its environment has not been made; a sentence says how.
set -eu
cd "$(dirname "$0")/../.."
if ! python=$(python3 -B bench/compare/rematch_compare/environment.py --print); then
  echo "skipped: ci/setup --compare makes what is needed"
  exit 4
fi
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$@"
