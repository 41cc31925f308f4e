# Runs the Python that `ci/setup --frameworks` made for a framework, in the root of the sources:
#   framework_python.sh FRAMEWORK MODULES ARGUMENT...
# Exit status 4: there is none that can import MODULES ("torch, pytest").
set -eu
cd "$(dirname "$0")/../.."
python=$(ci/maintain/frameworks --print "$1") || exit 4
"$python" -c "import $2" 2>/dev/null || exit 4
shift 2
PYTHONPATH=$PWD/properties/python PYTHONDONTWRITEBYTECODE=1 exec "$python" "$@"
