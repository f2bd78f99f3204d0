"""Jars that only the tests need, fetched once from Maven and kept beside those of the lake.

Spark's resolver takes no classifiers, and always takes all that a jar needs. So the objects that it
is made of are told what is wanted, in a JVM of their own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from sparkport.spark.jvm.session.folder_lock import locked_folder
from sparkport.spark.jvm.session.jars import kept_jars, spark_home
from sparkport.spark.jvm.session.java import find_java

__all__ = ["Wanted", "end_jvm", "fetched", "start_jvm"]

_OPTIONS = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """An artifact in a Maven repository."""

    group: str
    artifact: str
    version: str
    classifiers: tuple[str, ...] = ("",)
    """Of the jars; the usual one has none."""
    is_alone: bool = False
    """Whether it is fetched without what it needs."""


def fetched(name: str, wanted: Sequence[Wanted]) -> list[Path]:
    """The jars in the folder of that name, which is made if it is missing."""
    folder = kept_jars()[0].parent / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            locked_folder(folder.parent),
            tempfile.TemporaryDirectory(dir=folder.parent) as staging,
        ):
            if not folder.is_dir():
                (whole := Path(staging, "jars")).mkdir()
                for jar in _resolved(staging, wanted):
                    shutil.copy(jar, whole)
                whole.rename(folder)
    return sorted(folder.glob("*.jar"))


def start_jvm(
    before: Sequence[Path] = (),
    after: Sequence[Path] = (),
    options: Sequence[str] = (),
    folder: Path | None = None,
) -> JavaGateway:
    """Start a JVM in a folder, with jars before and after Spark's. The caller ends it."""
    classpath = [*map(str, before), str(spark_home() / "jars" / "*"), *map(str, after)]
    port, token, process = launch_gateway(
        classpath=os.pathsep.join(classpath),
        javaopts=[*_OPTIONS, *options],
        java_path=str(find_java()),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
        cwd=None if folder is None else str(folder),
    )
    settings = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    return JavaGateway(gateway_parameters=settings, java_process=process)


def end_jvm(gateway: JavaGateway) -> None:
    """End a JVM at once, with every connection. It may have ended already."""
    process = gateway.java_process
    if process.poll() is None:
        # From now on py4j does not ask for a connection when it forgets an object of Java's.
        gateway.shutdown()
        process.kill()
        process.wait(_SECONDS)
        process.stdin.close()  # py4j reads the rest, and closes it


def _resolved(folder: str, wanted: Sequence[Wanted]) -> list[str]:
    gateway = start_jvm()
    try:
        return _resolved_in(gateway, folder, wanted)
    finally:
        end_jvm(gateway)


def _resolved_in(gateway: JavaGateway, folder: str, wanted: Sequence[Wanted]) -> list[str]:
    jvm: Any = gateway.jvm
    nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    settings = jvm.org.apache.spark.util.MavenUtils.buildIvySettings(
        nothing, jvm.scala.Some(folder), True, jvm.java.lang.System.err
    )
    module = jvm.org.apache.ivy.core.module
    revision, descriptors = module.id.ModuleRevisionId.newInstance, module.descriptor
    asked = descriptors.DefaultModuleDescriptor.newDefaultInstance(revision("a", "test", "1"))
    for each in wanted:
        needed = descriptors.DefaultDependencyDescriptor(
            asked,
            revision(each.group, each.artifact, each.version),
            False,
            False,
            not each.is_alone,
        )
        needed.addDependencyConfiguration("default", "default")
        for classifier in each.classifiers:
            extra = {"classifier": classifier} if classifier else {}
            jar = descriptors.DefaultDependencyArtifactDescriptor(
                needed, each.artifact, "jar", "jar", None, extra
            )
            needed.addDependencyArtifact("default", jar)
        asked.addDependency(needed)
    options = jvm.org.apache.ivy.core.resolve.ResolveOptions()
    options.setTransitive(True)
    confs = gateway.new_array(jvm.java.lang.String, 1)
    confs[0] = "default"
    options.setConfs(confs)
    report = jvm.org.apache.ivy.Ivy.newInstance(settings).resolve(asked, options)
    assert not report.hasError(), f"{', '.join(each.artifact for each in wanted)}: not fetched"
    return [str(each.getLocalFile()) for each in report.getAllArtifactsReports()]
