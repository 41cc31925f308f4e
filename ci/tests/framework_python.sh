# Runs the Python that `ci/setup --frameworks pytorch` made, in the root of the sources:
#   framework_python.sh MODULES ARGUMENT...
# Exit status 4: there is none that can import MODULES ("torch, pytest").
set -eu
cd "$(dirname "$0")/../.."
python=$(ci/frameworks --print pytorch) || exit 4
"$python" -c "import $1" 2>/dev/null || exit 4
shift
PYTHONPATH=$PWD/properties/subjects/python/src PYTHONDONTWRITEBYTECODE=1 exec "$python" "$@"
