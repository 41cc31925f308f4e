# Runs the Python of ci/setup --tools in the root of the sources: tools_python.sh ARGUMENT...
# Exit status 4: its environment has not been made; a sentence says how.
set -eu
cd "$(dirname "$0")/../.."
if ! python=$(python3 -B ci/maintain/environment.py --print); then
  echo "skipped: ci/setup --tools makes what is needed"
  exit 4
fi
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$@"
