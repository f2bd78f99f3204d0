"""The recipes of docs/how-to/your-lake.md, each served as a user would, against real parts."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.docs.blocks import ROOT, Page
from tests.parts.azure import ACCOUNT, AzureServer, azure_server
from tests.parts.gcs import GcsServer, gcs_server
from tests.parts.glue import find_moto, glue_server
from tests.parts.hive import HiveServer, hive_server, settings_for_s3
from tests.parts.postgres import Database, PostgresServer
from tests.parts.s3 import REGION, S3Server, s3_server

from sparkport.errors import PreconditionFailed
from sparkport.spark.iceberg.object_storage import GcsStorage
from sparkport.spark.jvm.session.jars import AZURE, GCP, Coordinates, lake_jars
from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(280)]

PROGRAM = str(Path(sys.executable).with_name("sparkport"))
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "word": ["a", "b", None]})


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def gcs() -> Iterator[GcsServer]:
    _expect_jar(GCP)
    with gcs_server() as server:
        yield server


@pytest.fixture(scope="module")
def azure() -> Iterator[AzureServer]:
    _expect_jar(AZURE)
    with azure_server() as server:
        yield server


def _expect_jar(wanted: Coordinates) -> None:
    """Skip where a jar cannot be fetched: not every mirror has these."""
    try:
        lake_jars(wanted=[wanted])
    except PreconditionFailed as error:
        pytest.skip(str(error))


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.new_database()


def recipe(heading: str, number: int = 0) -> str:
    """The TOML below a heading of the page."""
    page = Page(ROOT / "docs/how-to/your-lake.md")
    section = page.text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```toml\n(.*?)```", section, re.DOTALL)[number]


def written(folder: Path, text: str, places: Mapping[str, str], kept: Mapping[str, str]) -> Path:
    """The recipe as a file, with the places of this machine, and with secrets beside it."""
    hidden = folder / "lake-secrets.toml"
    hidden.write_text("".join(f'"{key}" = "{value}"\n' for key, value in kept.items()))
    hidden.chmod(0o600)
    for example, own in {**places, "/etc/sparkport/lake-secrets.toml": str(hidden)}.items():
        assert example in text or example.startswith("/etc/"), f"{example} is not in the recipe"
        text = text.replace(example, own)
    assert "example.com" not in text
    file = folder / "sparkport.toml"
    file.write_text(text)
    return file


@contextmanager
def serving(file: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Serve with a file, and yield the location. Nothing secret may be in the log."""
    log = file.with_suffix(".log")
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [PROGRAM, "serve", "--config", str(file), "--listen", "127.0.0.1:0"],
            env={**os.environ, **environment},
            cwd=file.parent,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout is not None
        found = re.search(r"LOCATION '(grpc://[\d.:]+)'", process.stdout.readline())
        assert found is not None, log.read_text()
        yield found[1]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert process.returncode == 0, log.read_text()


def check(file: Path, environment: Mapping[str, str], *more: str) -> str:
    ran = subprocess.run(
        [PROGRAM, "check", "--config", str(file), *more],
        env={**os.environ, **environment},
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def use(location: str, name: str = "lake") -> None:
    """What a user does first."""
    with DuckDBClient(location, name, timeout=120) as client:
        client.attach()
        client.create_schema("s")
        client.create_table_as("s", "t", ROWS)
        client.insert("s", "t", pa.table({"id": pa.array([4], pa.int64()), "word": ["d"]}))
        client.update("s", "t", {"word": "'c'"}, where="id = 3")
        client.delete("s", "t", where="id = 1")
        found = client.scan("s", "t").select(["id", "word"]).sort_by("id").to_pylist()
        assert [tuple(each.values()) for each in found] == [(2, "b"), (3, "c"), (4, "d")]


def test_postgresql_and_s3_with_credentials_of_the_environment(tmp_path, s3, database):
    bucket = s3.make_bucket(f"b{secrets.token_hex(4)}")
    file = written(
        tmp_path,
        recipe("PostgreSQL and S3"),
        {
            "jdbc:postgresql://db.example.com/lake": database.uri,
            "s3://company-lake": f"s3://{bucket}",
            "eu-central-1": REGION,
        },
        {},
    )
    environment = {
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_ENDPOINT_URL": s3.endpoint,
        "PGUSER": database.user,
        "PGPASSWORD": database.password,
    }
    with serving(file, environment) as location:
        use(location)
    said = check(file, environment)
    assert "the jdbc catalog lists 1 schemas and 1 tables and views" in said
    assert "the files of table s.t can be read" in said
    assert f"s3://{bucket}/warehouse can be read and written" in said
    for shown in (said, file.with_suffix(".log").read_text()):
        assert s3.secret_key not in shown
        assert database.password not in shown


def test_another_store_with_a_file_of_secrets(tmp_path, s3, database):
    bucket = s3.make_bucket(f"b{secrets.token_hex(4)}")
    file = written(
        tmp_path,
        'secrets_file = "/etc/sparkport/lake-secrets.toml"\n'
        + recipe("MinIO and other stores that speak S3"),
        {
            "jdbc:postgresql://db.example.com/lake": database.uri,
            "s3://company-lake": f"s3://{bucket}",
            "https://minio.example.com:9000": s3.endpoint,
        },
        {
            **database.options,
            "s3.access-key-id": s3.access_key,
            "s3.secret-access-key": s3.secret_key,
        },
    )
    with serving(file, {}) as location:
        use(location)
    assert "can be read and written" in check(file, {})


def test_google_cloud_storage(tmp_path, gcs, database):
    bucket = gcs.make_bucket(f"b{secrets.token_hex(4)}")
    file = written(
        tmp_path,
        'secrets_file = "/etc/sparkport/lake-secrets.toml"\n' + recipe("Google Cloud Storage"),
        {
            "jdbc:postgresql://db.example.com/lake": database.uri,
            "gs://company-lake": f"gs://{bucket}",
        },
        {**database.options, **gcs.options()},
    )
    with serving(file, {}) as location:
        use(location)
    said = check(file, {})
    assert "the files of table s.t can be read" in said
    assert f"gs://{bucket}/warehouse can be read and written" in said
    with serving(file, {}) as location, DuckDBClient(location, "lake", timeout=120) as client:
        client.attach()
        client.drop_table("s", "t")
    assert GcsStorage(gcs.options()).files_below(f"gs://{bucket}/warehouse") == []


def test_azure(tmp_path, azure, database):
    """Without DROP: Java removes a folder by a protocol that Azurite lacks.

    It answers that there is no such folder, and the files remain.
    """
    container = azure.make_container(f"c{secrets.token_hex(4)}")
    file = written(
        tmp_path,
        'secrets_file = "/etc/sparkport/lake-secrets.toml"\n' + recipe("Azure"),
        {
            "jdbc:postgresql://db.example.com/lake": database.uri,
            "lake@company.": f"{container}@{ACCOUNT}.",
        },
        {**database.options, **azure.options()},
    )
    with serving(file, {}) as location:
        use(location)
    assert "can be read and written" in check(file, {})


def test_hive_and_s3(tmp_path, s3):
    with hive_server(settings_for_s3(s3)) as hive:
        file, environment = on_hive(tmp_path, s3, hive)
        with serving(file, environment) as location:
            use(location)
            hive.close()
            with DuckDBClient(location, "lake", timeout=120) as client:
                client.attach()
                with pytest.raises(ServerError, match=AWAY):
                    client.scan("s", "t")
    for line in file.with_suffix(".log").read_text().splitlines():
        assert s3.secret_key not in line


def test_hive_is_checked_through_spark(tmp_path, s3):
    with hive_server(settings_for_s3(s3)) as hive:
        file, environment = on_hive(tmp_path, s3, hive)
        said = check(file, environment, "--start-spark")
    assert "starts, and finds 1 schemas" in said
    assert "say --start-spark" not in said
    assert "say --start-spark" in check(file, environment)


def test_a_metastore_that_cannot_reach_the_store_is_named(tmp_path, s3):
    with hive_server({}) as hive:
        file, environment = on_hive(tmp_path, s3, hive)
        with (
            serving(file, environment) as location,
            DuckDBClient(location, "lake", timeout=120) as client,
        ):
            client.attach()
            with pytest.raises(ServerError, match="schema s: the Hive metastore makes folders"):
                client.create_schema("s")


AWAY = r"message: [^:]+: its catalog or its storage cannot be reached: try again later$"


def on_hive(folder: Path, s3: S3Server, hive: HiveServer) -> tuple[Path, dict[str, str]]:
    """The recipe for a metastore on this machine, and the environment to serve it in."""
    bucket = s3.make_bucket(f"b{secrets.token_hex(4)}")
    places = {
        "thrift://metastore.example.com:9083": hive.uri,
        "s3://company-lake": f"s3://{bucket}",
        "eu-central-1": REGION,
    }
    return written(folder, recipe("Hive"), places, {}), keys_of(s3)


def keys_of(s3: S3Server) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_ENDPOINT_URL": s3.endpoint,
    }


@pytest.mark.skipif(find_moto() is None, reason="SPARKPORT_MOTO names no moto_server")
def test_glue_as_moto_simulates_it(tmp_path):
    with glue_server(find_moto() or "") as aws:
        bucket = aws.make_bucket(f"b{secrets.token_hex(4)}")
        places = {"s3://company-lake": f"s3://{bucket}", "eu-central-1": REGION}
        file = written(tmp_path, recipe("AWS Glue"), places, {})
        with serving(file, keys_of(aws)) as location:
            use(location)
        said = check(file, keys_of(aws))
    assert f"s3://{bucket}/warehouse can be read and written" in said
    for shown in (said, file.with_suffix(".log").read_text()):
        assert aws.secret_key not in shown


def test_a_catalog_of_spark(tmp_path):
    file = written(tmp_path, recipe("Any catalog of Spark"), {"/data/": f"{tmp_path}/data/"}, {})
    with serving(file, {}) as location:
        use(location)


def test_several_lakes(tmp_path, s3, database):
    """One in a folder and one in a store, in one server."""
    bucket = s3.make_bucket(f"b{secrets.token_hex(4)}")
    scratch = recipe("Several lakes").split("[lakes.scratch]")[1]
    sales = recipe("MinIO and other stores that speak S3").replace("[cat", "[lakes.sales.cat")
    file = written(
        tmp_path,
        f"[lakes.scratch]{scratch}[lakes.sales]\n"
        f'secrets_file = "/etc/sparkport/lake-secrets.toml"\n{sales}',
        {
            "/data/": f"{tmp_path}/data/",
            "jdbc:postgresql://db.example.com/lake": database.uri,
            "s3://company-lake": f"s3://{bucket}",
            "https://minio.example.com:9000": s3.endpoint,
        },
        {
            **database.options,
            "s3.access-key-id": s3.access_key,
            "s3.secret-access-key": s3.secret_key,
        },
    )
    with serving(file, {}) as location:
        use(location, "scratch")
        use(location, "sales")
