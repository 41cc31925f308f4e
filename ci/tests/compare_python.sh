# Runs the Python of rematch-compare in the root of the sources: compare_python.sh ARGUMENT...
# Exit status 4: its environment has not been made; a sentence says how.
set -eu
cd "$(dirname "$0")/../.."
python=$(python3 -B bench/compare/rematch_compare/environment.py --print) || exit 4
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$@"
