"""What `pip install properties/python` installs."""

from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")
ROOT = Path(__file__).parents[1]


def test_every_file_that_the_package_reads_is_installed_with_it():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["rematch"]
    package = ROOT / "rematch"
    installed = {file for pattern in patterns for file in package.glob(pattern)}
    read = {file for file in package.rglob("*.*") if file.is_file() and file.suffix not in (".py", ".pyc", ".md")}
    assert read and read <= installed
