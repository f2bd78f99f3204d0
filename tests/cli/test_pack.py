"""`sparkport pack`: the archive runs anywhere, with nothing but itself and the C library."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import sparkport
from sparkport.cli import packing

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="executors run on Linux"
)

_NEEDED = "sparkport, pyarrow.dataset, duckdb, pyiceberg, pyspark, ssl, sqlite3, ctypes, lzma"


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """The archive of this environment, as the command makes it."""
    made = tmp_path_factory.mktemp("packed") / "environment.tar.gz"
    done = subprocess.run(
        [sys.executable, "-m", "sparkport", "pack", str(made)],
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{made}: {made.stat().st_size // 1024**2} MB\n")
    assert f"Sparkport {sparkport.__version__} and " in done.stdout
    assert f"--worker-environment {made}" in done.stdout
    return made


@pytest.mark.long
@pytest.mark.timeout(580)
def test_the_environment_runs_in_any_folder_and_loads_nothing_from_elsewhere(archive, tmp_path):
    first = tmp_path / "first place"
    first.mkdir()
    (first / "environment").mkdir()
    subprocess.run(
        ["tar", "xzf", archive, "-C", first / "environment"], timeout=120, check=True
    )  # as Spark does
    second = tmp_path / "second"
    second.mkdir()
    (first / "environment").rename(second / "environment")

    said = _run(
        second,
        f"import {_NEEDED}, json, sys; "
        "files = [line.split()[-1] for line in open('/proc/self/maps') if '/' in line]; "
        "print(json.dumps([sorted(set(files)), sys.path, sparkport.__version__]))",
    )
    files, path, version = json.loads(said)

    inside = str(second / "environment")
    assert [each for each in path if each and not each.startswith(inside)] == []
    others = [each for each in files if not each.startswith(inside)]
    assert [each for each in others if ".so" in each and not _OF_C.search(each)] == []
    assert version == sparkport.__version__
    found = _run(second, "import importlib.metadata as m; print(m.version('pyarrow'))")
    assert found.strip() == importlib.metadata.version("pyarrow")


_OF_C = re.compile(r"/(ld-linux|lib(c|m|dl|rt|pthread|resolv|util))[-.\w]*\.so")


def _run(folder: Path, program: str) -> str:
    """What the packed Python prints, with an empty environment."""
    done = subprocess.run(
        ["env", "-i", "./environment/bin/python", "-c", program],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def names() -> set[str]:
    return set(packing.contents())


def test_sparkport_is_packed_although_it_is_installed_for_development(names):
    package = f"{packing._PACKAGES}/sparkport"

    wanted = ("__init__.py", "spark/jvm/relay/daemon.py", "server/http/page.html")
    assert {f"{package}/{each}" for each in wanted} <= names
    assert [each for each in names if "__editable__" in each or "direct_url.json" in each] == []


def test_what_no_executor_needs_is_left_out(names):
    for useless in ("/pyspark/jars/", "/pip/", "/tests/", "/test/", "__pycache__", "/idlelib/"):
        assert [each for each in names if useless in each] == []


def test_the_standard_library_and_the_interpreter_are_packed(names):
    assert f"{packing._LIBRARY}/os.py" in names
    assert f"bin/{packing._VERSION}" in names


def test_files_belong_to_nobody_and_links_stay_inside(tmp_path):
    script = tmp_path / "tool"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    archive = tmp_path / "small.tar.gz"

    packing.write_archive({"bin/tool": script}, archive, lambda done: None)

    with tarfile.open(archive) as tar:
        entries = {each.name: each for each in tar}
    assert {(each.uid, each.gid, each.uname) for each in entries.values()} == {(0, 0, "")}
    assert entries["bin/tool"].mode == entries["bin/python"].mode == 0o755
    links = [each.linkname for each in entries.values() if each.issym()]
    assert sorted(links) == ["python", "site-packages"]
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_a_failure_leaves_no_archive(tmp_path):
    archive = tmp_path / "small.tar.gz"

    with pytest.raises(FileNotFoundError):
        packing.write_archive({"x": tmp_path / "missing"}, archive, lambda done: None)

    assert list(tmp_path.iterdir()) == []


def test_an_archive_of_another_form_is_refused_before_it_is_made(refusal, tmp_path):
    said = refusal("pack", str(tmp_path / "environment.zip"))

    assert said == "environment.zip must end in .tar.gz: Spark unpacks no other form whole"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_named(refusal, tmp_path):
    said = refusal("pack", str(tmp_path / "missing" / "environment.tar.gz"))

    assert said == f"there is no folder {tmp_path / 'missing'}"
