"""Lakes by configuration: where they are, what is refused, and who sees their secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkport.cli.lake_sources import lake_source
from sparkport.config import Config, load_config
from sparkport.errors import BadRequest
from sparkport.spark.jvm.session.source import LakeSource, coordinates_of

JDBC = {
    "catalog": "jdbc",
    "catalog_uri": "jdbc:postgresql://db/lake",
    "warehouse": "s3://bucket/lake",
}


def of_file(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "sparkport.toml"
    file.write_text(text, "utf-8")
    return load_config({}, {}, file)


def secrets(tmp_path: Path, text: str, mode: int = 0o600) -> str:
    file = tmp_path / "secrets.toml"
    file.write_text(text, "utf-8")
    os.chmod(file, mode)
    return str(file)


def test_a_lake_by_flags(tmp_path):
    flags = {
        **JDBC,
        "catalog_options": ["s3.endpoint=http://127.0.0.1:9000", "client.region=eu-west-1"],
        "secrets_file": secrets(tmp_path, 's3.secret-access-key = "hidden"\n"jdbc.user" = "ada"'),
    }
    source = lake_source(load_config(flags, {}))

    assert (source.catalog, source.uri) == ("jdbc", "jdbc:postgresql://db/lake")
    assert source.warehouse == "s3://bucket/lake"
    assert source.options == {
        "s3.endpoint": "http://127.0.0.1:9000",
        "client.region": "eu-west-1",
        "s3.secret-access-key": "hidden",
        "jdbc.user": "ada",
    }
    assert "hidden" not in repr(source)


def test_a_lake_by_variables():
    environment = {f"SPARKPORT_{name.upper()}": value for name, value in JDBC.items()}
    environment["SPARKPORT_CATALOG_OPTIONS"] = "s3.secret-access-key=hidden client.region=x"

    source = lake_source(load_config({}, environment))

    assert source.options == {"s3.secret-access-key": "hidden", "client.region": "x"}


def test_several_lakes_in_a_file(tmp_path):
    config = of_file(
        tmp_path,
        """
        warehouse = "/data/own"
        lake_endpoints = 4
        [lakes.sales]
        catalog = "rest"
        catalog_uri = "https://catalog.example.com"
        warehouse = "sales"
        lake_batch_rows = 1000
        [lakes.sales.catalog_options]
        s3.path-style-access = true
        [lakes.more]
        warehouse = "/data/more"
        """,
    )
    own, sales, more = config.every_lake

    assert [each.name for each in config.every_lake] == ["lake", "sales", "more"]
    assert [each.lake.endpoints for each in config.every_lake] == [4, 4, 4]
    assert (sales.lake.batch_rows, more.lake.batch_rows) == (1000, own.lake.batch_rows)
    assert lake_source(sales).options == {"s3.path-style-access": "true"}
    assert lake_source(more) == LakeSource(warehouse="/data/more")


def test_a_file_may_have_only_lakes_of_their_own(tmp_path):
    config = of_file(tmp_path, '[lakes.a]\nwarehouse = "/a"\n')

    assert [each.name for each in config.every_lake] == ["a"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lakes = 1", "lakes are tables"),
        ("[lakes]\na = 1", "lakes are tables"),
        ('[lakes.a]\nwarehous = "/a"', "a lake has no setting 'warehous'; did you mean"),
        ('[lakes.a]\nmaster = "local"', "a lake has no setting 'master'"),
        ("[lakes.a]\nwarehouse = 1", "warehouse must be text"),
        ('[lakes."a b"]\nwarehouse = "/a"', "a lake's name has no blanks"),
        ('[lakes.a.catalog_options]\n"jdbc.password" = "x"', "jdbc.password is a secret"),
        ('[catalog_options]\n"s3.secret-access-key" = "x"', "s3.secret-access-key is a secret"),
        ('secrets_file = "s"\n[lakes.a]\nwarehouse = "/a"', r"no lake .* put it into \[lakes\.a\]"),
        ('[catalog_options]\n"s3.endpoint" = "x"', "no lake that it is for: set warehouse"),
    ],
)
def test_mistakes_in_a_file(tmp_path, text, said):
    with pytest.raises(BadRequest, match=said):
        of_file(tmp_path, text)


@pytest.mark.parametrize(
    "name",
    [
        *("s3.secret-access-key", "s3.session-token", "jdbc.password", "token", "credential"),
        *("gcs.oauth2.token", "adls.sas-token.account", "adls.auth.shared-key.account.key"),
        "adls.connection-string.account",
    ],
)
def test_secrets_are_refused_on_the_command_line(name):
    with pytest.raises(BadRequest, match=f"--catalog-options: {name} is a secret") as refused:
        load_config({**JDBC, "catalog_options": [f"{name}=hidden"]}, {})
    assert "hidden" not in refused.value.message


@pytest.mark.parametrize(
    "name", ["oauth2-server-uri", "gcs.oauth2.token-expires-at", "client.credentials-provider"]
)
def test_what_only_sounds_like_a_secret_is_not(name):
    assert load_config({**JDBC, "catalog_options": [f"{name}=x"]}, {}).catalog_options == {
        name: "x"
    }


def test_secrets_that_others_can_read_are_refused(tmp_path):
    file = secrets(tmp_path, 'token = "x"', 0o644)
    with pytest.raises(BadRequest, match=r"others than its owner can read .*: chmod 600"):
        lake_source(load_config({**JDBC, "secrets_file": file}, {}))


def test_broken_secrets_are_not_quoted(tmp_path):
    file = secrets(tmp_path, "token = hidden")
    with pytest.raises(BadRequest, match="is not valid TOML") as refused:
        lake_source(load_config({**JDBC, "secrets_file": file}, {}))
    assert "hidden" not in refused.value.message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"catalog": "sqlite"}, "a lake needs a warehouse"),
        ({"warehouse": "s3://b/x"}, "a catalog in SQLite is a file, which cannot be in s3"),
        ({"catalog": "jdbc", "warehouse": "s3://b/x"}, "set catalog_uri, for instance jdbc:"),
        ({"catalog": "rest"}, "set catalog_uri, for instance https:"),
        ({**JDBC, "catalog_uri": "postgresql://h/d"}, "begins with jdbc:"),
        ({**JDBC, "catalog_uri": "jdbc:postgresql://u:p@h/d"}, "has a password in it"),
        ({**JDBC, "catalog_uri": "jdbc:postgresql://h/d?password=p"}, "has a password in it"),
        ({**JDBC, "warehouse": ""}, "does not say where new tables are put"),
        ({**JDBC, "warehouse": "ftp://b/x"}, "a warehouse cannot be on ftp"),
    ],
)
def test_a_source_that_cannot_be(given, said):
    with pytest.raises(BadRequest, match=said):
        lake_source(load_config(given, {}))


@pytest.mark.parametrize(
    ("source", "native", "jars", "classes"),
    [
        (LakeSource(warehouse="/a"), "sqlite", ["sqlite-jdbc"], None),
        (
            LakeSource("jdbc", "s3://b/x", "jdbc:postgresql://h/d"),
            "jdbc",
            ["iceberg-aws-bundle", "postgresql"],
            "org.apache.iceberg.aws.s3.S3FileIO",
        ),
        (LakeSource("jdbc", "/a", "jdbc:postgresql://h/d"), "jdbc", ["postgresql"], None),
        (LakeSource("jdbc", "/a", "jdbc:mysql://h/d"), "spark", [], None),
        (LakeSource("rest", "sales", "https://h"), "rest", ["iceberg-aws-bundle"], None),
        (
            LakeSource("rest", "x", "https://h", {"gcs.project-id": "p"}),
            "rest",
            ["iceberg-gcp-bundle"],
            None,
        ),
        (
            LakeSource("hive", "abfss://c@a.example/x", "thrift://h:9083"),
            "spark",
            ["iceberg-azure-bundle"],
            "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
        ),
        (
            LakeSource("glue", "s3://b/x"),
            "spark",
            ["iceberg-aws-bundle"],
            "org.apache.iceberg.aws.s3.S3FileIO",
        ),
        (LakeSource("hive", "hdfs://n/x", "thrift://h:9083"), "spark", [], None),
    ],
)
def test_what_spark_needs(source, native, jars, classes):
    assert source.native_kind == native
    assert [each.artifact for each in source.coordinates] == jars
    assert source.settings("c").get("spark.sql.catalog.c.io-impl") == classes


def test_spark_is_told_of_a_catalog():
    options = {"s3.endpoint": "http://127.0.0.1:1", "jdbc.user": "ada"}
    source = LakeSource("jdbc", "s3://b/x", "jdbc:postgresql://h/d", options)

    assert source.settings("prod") == {
        "spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.prod.type": "jdbc",
        "spark.sql.catalog.prod.uri": "jdbc:postgresql://h/d",
        "spark.sql.catalog.prod.warehouse": "s3://b/x",
        "spark.sql.catalog.prod.cache-enabled": "false",
        "spark.sql.catalog.prod.jdbc.schema-version": "V1",
        "spark.sql.catalog.prod.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "spark.sql.catalog.prod.s3.endpoint": "http://127.0.0.1:1",
        "spark.sql.catalog.prod.jdbc.user": "ada",
    }
    assert LakeSource("spark").settings("any") == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            LakeSource("hive", "hdfs://n/x", "thrift://h:9083", {"clients": "4"}),
            {
                "type": "hive",
                "uri": "thrift://h:9083",
                "warehouse": "hdfs://n/x",
                "cache-enabled": "false",
                "clients": "4",
            },
        ),
        (
            LakeSource("glue", "s3://b/x", options={"client.region": "eu-central-1"}),
            {
                "type": "glue",
                "warehouse": "s3://b/x",
                "cache-enabled": "false",
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "client.region": "eu-central-1",
            },
        ),
    ],
    ids=["hive", "glue"],
)
def test_spark_is_told_of_catalogs_that_cannot_be_started_here(source, expected):
    settings = source.settings("c")

    assert settings.pop("spark.sql.catalog.c") == "org.apache.iceberg.spark.SparkCatalog"
    assert settings == {f"spark.sql.catalog.c.{key}": value for key, value in expected.items()}


@pytest.mark.parametrize(
    ("value", "jars"),
    [
        ("org.apache.spark.sql.delta.catalog.DeltaCatalog", "delta-spark_4.1_2.13"),
        ("io.delta.sql.DeltaSparkSessionExtension", "delta-spark_4.1_2.13"),
        ("org.apache.iceberg.aws.s3.S3FileIO", "iceberg-aws-bundle"),
        ("org.apache.iceberg.aws.glue.GlueCatalog", "iceberg-aws-bundle"),
        ("jdbc:postgresql://h/d", "postgresql"),
        ("jdbc:sqlite:/a/b.db", "sqlite-jdbc"),
        ("org.apache.iceberg.spark.SparkSessionCatalog", None),
    ],
)
def test_settings_of_spark_tell_which_jars_they_need(value, jars):
    found = [each.artifact for each in coordinates_of({"spark.sql.catalog.c": value})]

    assert found[:1] == ([jars] if jars else [])
