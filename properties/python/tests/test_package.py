"""What `pip install .` installs, from the root of the sources."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

from rematch.program import DISTRIBUTION

tomllib = pytest.importorskip("tomllib")
PACKAGE = Path(__file__).parents[1]
SOURCES = PACKAGE.parents[1]


@pytest.fixture
def project():
    return tomllib.loads((SOURCES / "pyproject.toml").read_text())


def test_the_distribution_is_called_as_the_package_says_and_as_the_program_is_versioned(project):
    assert project["project"]["name"] == DISTRIBUTION != "rematch"
    assert f"project(rematch VERSION {project['project']['version']} " in (SOURCES / "CMakeLists.txt").read_text()


def test_every_file_that_the_package_reads_is_installed_with_it(project):
    settings = project["tool"]["scikit-build"]
    assert settings["wheel"]["packages"] == ["properties/python/rematch"]
    package = PACKAGE / "rematch"
    read = {file for file in package.rglob("*.*") if file.is_file() and file.suffix not in (".py", ".pyc", ".md")}
    assert read
    left_out = [file for file in read if any(fnmatch(str(file), rule) for rule in settings["wheel"]["exclude"])]
    assert not left_out


def test_there_is_one_project(project):
    assert [file for file in SOURCES.glob("*/**/pyproject.toml") if "build" not in file.parts] == []
    assert project["project"]["scripts"] == {"rematch": "rematch.__main__:main"}


def test_every_public_name_can_be_imported_from_the_package():
    import rematch

    assert rematch.__all__ == sorted(rematch._HOMES)
    assert all(callable(getattr(rematch, name)) for name in rematch.__all__)
