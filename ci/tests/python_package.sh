# Runs the tests of the Python package with the Python that `ci/setup --frameworks pytorch` made.
# Exit status 4: there is none.
set -eu
python=${REMATCH_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/rematch/frameworks/pytorch/bin/python}
"$python" -c "import torch, pytest" 2>/dev/null || exit 4
cd "$(dirname "$0")/../.."
PYTHONPATH=properties/subjects/python/src PYTHONDONTWRITEBYTECODE=1 \
  exec "$python" -m pytest -q -p no:cacheprovider properties/subjects/python/tests
