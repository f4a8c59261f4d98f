"""The version is that of the project in CMakeLists.txt; everything else is in pyproject.toml."""

import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[1] / "CMakeLists.txt"


def version() -> str:
    # A source distribution is on its own: there, the version is in its metadata.
    metadata = HERE / "PKG-INFO"
    if metadata.exists():
        return re.search(r"^Version: (\S+)$", metadata.read_text(), re.MULTILINE).group(1)
    return re.search(r"^project\(rlk VERSION (\S+)", PROJECT.read_text(), re.MULTILINE).group(1)


setuptools.setup(version=version())
