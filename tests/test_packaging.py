"""The distributions: built as `pip` builds them, from a copy of the sources, without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import sparkport

ROOT = Path(__file__).parent.parent
SECONDS = 50.0


@dataclass(frozen=True, slots=True)
class Built:
    sdist: Path
    wheel: Path


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment or None,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Built:
    """The source distribution, and the wheel that is made of it alone."""
    folder = tmp_path_factory.mktemp("built")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "docs", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, folder / "tree" / name, ignore=ignored)
    shutil.copytree(ROOT / "tests" / "docs", folder / "tree" / "tests" / "docs", ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, folder / "tree")
    build = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"
    run("-c", build.format("sdist"), str(folder), cwd=folder / "tree")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    run("-c", build.format("wheel"), str(folder), cwd=unpacked)
    (wheel,) = folder.glob("*.whl")
    return Built(sdist, wheel)


def in_the_package() -> set[str]:
    """What must be installed: all files of the package, whatever they are."""
    files = (path for path in (ROOT / "src" / "sparkport").rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in files
        if "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_whole_package_and_nothing_else(built):
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
    packaged = {name for name in names if name.startswith("sparkport/")}
    others = {name.split("/", 1)[1] for name in names - packaged}

    assert packaged == in_the_package()
    assert {"sparkport/py.typed", "sparkport/spark/jvm/session/log4j2.properties"} <= packaged
    assert {
        "licenses/LICENSE",
        "licenses/NOTICE",
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "top_level.txt",
    } == others
    assert all(name.split("/", 1)[0].endswith(".dist-info") for name in names - packaged)


def test_the_source_distribution_can_be_built_tested_and_read(built):
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    for name in (
        "pyproject.toml",
        "constraints.txt",
        "Makefile",
        "LICENSE",
        "NOTICE",
        "README.md",
        "CHANGELOG.md",
    ):
        assert name in names
    assert {
        "docs/index.md",
        "docs/architecture.svg",
        "examples/auth.py",
        "tests/docs/test_pages.py",
    } <= names
    assert not [name for name in names if "__pycache__" in name]


def test_what_is_installed_has_the_command_and_the_version(built, tmp_path):
    target = tmp_path / "installed"
    install = (
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        "--quiet",
    )
    run(*install, "--target", str(target), str(built.wheel), cwd=tmp_path)
    said = run("-m", "sparkport", "--version", cwd=tmp_path, PYTHONPATH=str(target))

    assert said.split() == ["sparkport", sparkport.__version__]
    assert built.wheel.name.split("-")[1] == sparkport.__version__
    assert (target / "bin" / "sparkport").exists()
    found = run(
        "-c", "import sparkport; print(sparkport.__file__)", cwd=tmp_path, PYTHONPATH=str(target)
    )
    assert Path(found.strip()).is_relative_to(target)


def test_the_version_is_written_in_one_place():
    assert f'"{sparkport.__version__}"' in (ROOT / "src" / "sparkport" / "__init__.py").read_text(
        "utf-8"
    )
    assert f'"{sparkport.__version__}"' not in (ROOT / "pyproject.toml").read_text("utf-8")
