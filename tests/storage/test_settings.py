"""The same settings mean the same, by Iceberg's names and by Hadoop's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparkport.spark.iceberg.azure_file_system import azure_path
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.object_storage import ObjectStorage
from sparkport.spark.iceberg.s3_settings import S3Settings
from sparkport.spark.jvm.file_properties import _Configuration, of_hadoop

KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "secret"}


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # nobody would answer
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


# ------------------------------------------------------------------------------------- Iceberg's


def test_names_are_taken_as_they_are() -> None:
    storage = storage_at("s3a://b/a", {**KEYS, "s3.endpoint": "http://127.0.0.1:9"})
    assert isinstance(storage, ObjectStorage)
    system, path = storage._at("S3A://bucket/a b#c?d%20e")
    assert path == "bucket/a b#c?d%20e"
    assert system.type_name == "s3"


@pytest.mark.parametrize(
    ("properties", "in_path"),
    [
        ({"s3.endpoint": "https://store.example"}, False),
        ({"s3.endpoint": "https://store.example", "s3.path-style-access": "true"}, True),
        ({"s3.endpoint": "https://store.example", "s3.path-style-access": "TRUE"}, True),
        ({"s3.endpoint": "http://127.0.0.1:9000"}, True),  # as Java's client does by itself
        ({"s3.endpoint": "http://[::1]:9000"}, True),
        ({}, False),
    ],
)
def test_where_the_bucket_is_in_addresses(properties: dict[str, str], in_path: bool) -> None:
    assert S3Settings.of(properties, "b").path_style is in_path


def test_settings_of_s3() -> None:
    settings = S3Settings.of(
        {
            "client.region": "eu-central-1",
            "s3.endpoint": "store.example:443",
            "client.assume-role.arn": "arn:role",
            "client.assume-role.timeout-sec": "900",
            "http-client.apache.connection-timeout-ms": "1500",
            "s3.retry.num-retries": "9",
            "s3.session-token": "t",
            "bucket.own.s3.endpoint": "http://elsewhere",
        },
        "b",
    )
    assert settings.endpoint == "https://store.example:443"
    assert (settings.region, settings.role) == ("eu-central-1", "arn:role")
    assert (settings.role_seconds, settings.connect_seconds, settings.attempts) == (900, 1.5, 10)
    assert "'t'" not in repr(settings)
    own = S3Settings.of({"bucket.own.s3.endpoint": "http://elsewhere"}, "own")
    assert own.endpoint == "http://elsewhere"


def test_the_environment_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://general")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert S3Settings.of({}, "b").endpoint == "http://general"
    assert S3Settings.of({}, "b").region == "eu-north-1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://own")
    assert S3Settings.of({}, "b").endpoint == "http://own"
    assert S3Settings.of({"s3.endpoint": "http://set"}, "b").endpoint == "http://set"


def test_file_systems_of_every_kind_can_be_made() -> None:
    account = "abfss://c@acct.dfs.core.windows.net/a/b"
    for location, properties in (
        (
            "gs://bucket/a",
            {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "1893456000000"},
        ),
        ("gs://bucket/a", {"gcs.no-auth": "true", "gcs.service.host": "http://127.0.0.1:9"}),
        (account, {"adls.sas-token.acct": "sv=1&sig=x"}),
        (account, {"adls.sas-token.acct.dfs.core.windows.net": "sv=1&sig=x"}),
        (account, {"adls.account-key.acct.dfs.core.windows.net": "aGVsbG8="}),
        (
            account,
            {
                "adls.auth.shared-key.account.name": "acct",
                "adls.auth.shared-key.account.key": "aGVsbG8=",
                "adls.connection-string.acct": "http://127.0.0.1:10000",
            },
        ),
        ("s3://b/a", {**KEYS, "client.region": "eu-west-1", "s3.path-style-access": "true"}),
        ("s3://b/a", {"client.region": "eu-west-1", "s3.proxy-uri": "http://127.0.0.1:3128"}),
    ):
        storage = storage_at(location, properties)
        assert isinstance(storage, ObjectStorage)
        assert storage._at(location)[0].type_name in ("s3", "gcs", "abfs")
    assert azure_path(account) == ("acct.dfs.core.windows.net", "c/a/b")


@pytest.mark.parametrize(
    ("address", "blob", "dfs"),
    [
        ("https://acct.dfs.core.windows.net", ".blob.core.windows.net", ".dfs.core.windows.net"),
        ("https://acct.blob.core.windows.net/", ".blob.core.windows.net", ".dfs.core.windows.net"),
        ("acct.dfs.private.example", ".blob.private.example", ".dfs.private.example"),
        ("https://127.0.0.1:10000/acct", "127.0.0.1:10000", "127.0.0.1:10000"),
        ("https://127.0.0.1:10000", "127.0.0.1:10000", "127.0.0.1:10000"),
    ],
)
def test_an_address_of_azure_has_the_account_once(address: str, blob: str, dfs: str) -> None:
    """Arrow puts the account before an authority that begins with a dot, and else behind it."""
    properties = {"adls.account-key.acct": "aGVsbG8=", "adls.connection-string.acct": address}
    made = _made("abfss://c@acct.dfs.core.windows.net/a", properties)
    assert (made["blob_storage_authority"], made["dfs_storage_authority"]) == (blob, dfs)
    assert (made["blob_storage_scheme"], made["dfs_storage_scheme"]) == ("https", "https")


@pytest.mark.parametrize("cloud", ["core.chinacloudapi.cn", "z12.dfs.storage.example"])
def test_a_cloud_of_its_own(cloud: str) -> None:
    ending = cloud if ".dfs." in cloud else f"dfs.{cloud}"
    made = _made(f"abfss://c@acct.{ending}/a", {"adls.account-key.acct": "aGVsbG8="})
    assert made["dfs_storage_authority"] == f".{ending}"
    assert made["blob_storage_authority"] == f".{ending.replace('dfs.', 'blob.')}"


def test_an_address_of_azure_may_bring_its_sas_token() -> None:
    host = "acct.dfs.core.windows.net"
    address = {f"adls.connection-string.{host}": f"https://{host}/?sv=1&sig=x%2B"}
    others = {"adls.sas-token.acct": "sv=2&sig=y", "adls.account-key.acct": "aGVsbG8="}
    made = _made(f"abfss://c@{host}/a", {**others, **address})
    assert made["sas_token"] == "?sv=1&sig=x%2B"
    assert not made["account_key"]


def _made(location: str, properties: Mapping[str, str]) -> dict[str, str]:
    """What Arrow's file system was made with."""
    storage = storage_at(location, properties)
    assert isinstance(storage, ObjectStorage)
    options: dict[str, str] = storage._at(location)[0].__reduce__()[1][0]
    return options


def test_secrets_are_not_told() -> None:
    storage = storage_at("abfss://c@a.x/f", {"adls.sas-token.a": "sv=1&sig=secret"})
    assert isinstance(storage, ObjectStorage)
    told = storage._without_secrets("GET https://a.x/c?sv=1&sig=secret and ?sig=other' failed")
    assert "secret" not in told
    assert "other" not in told


# ---------------------------------------------------------------------------------------- Hadoop's


class _Settings(_Configuration):
    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def get(self, name: str) -> str:
        return self._settings.get(name, "")

    def after(self, begin: str) -> list[str]:
        return [name.removeprefix(begin) for name in self._settings if name.startswith(begin)]


def test_settings_of_hadoop() -> None:
    found = of_hadoop(
        _Settings(
            {
                "fs.s3a.access.key": "k",
                "fs.s3a.secret.key": "s",
                "fs.s3a.endpoint": "store.example",
                "fs.s3a.connection.ssl.enabled": "false",
                "fs.s3a.path.style.access": "true",
                "fs.s3a.bucket.my.own.endpoint": "https://elsewhere",
                "fs.s3a.bucket.my.own.access.key": "k2",
                "fs.s3a.bucket.open.aws.credentials.provider": "x.AnonymousAWSCredentialsProvider",
                "fs.azure.account.key.a.dfs.core.windows.net": "azure",
                "fs.azure.account.oauth2.client.endpoint": "https://login.x/tenant/oauth2/token",
                "fs.gs.project.id": "p",
            }
        ),
        {},
    )
    assert found == {
        "s3.access-key-id": "k",
        "s3.secret-access-key": "s",
        "s3.endpoint": "http://store.example",
        "s3.path-style-access": "true",
        "bucket.my.own.s3.endpoint": "https://elsewhere",
        "bucket.my.own.s3.access-key-id": "k2",
        "bucket.open.s3.anonymous": "true",
        "adls.account-key.a.dfs.core.windows.net": "azure",
        "adls.tenant-id": "tenant",
        "gcs.project-id": "p",
    }


def test_the_catalogs_settings_win() -> None:
    hadoop = _Settings(
        {
            "fs.s3a.access.key": "k",
            "fs.s3a.secret.key": "s",
            "fs.s3a.session.token": "t",
            "fs.s3a.endpoint": "s3.amazonaws.com",
            "fs.s3a.endpoint.region": "eu-west-1",
            "fs.s3a.bucket.own.endpoint": "http://elsewhere",
            "fs.s3a.bucket.own.access.key": "k2",
        }
    )
    assert of_hadoop(hadoop, KEYS) == {
        "client.region": "eu-west-1",
        "bucket.own.s3.endpoint": "http://elsewhere",
    }
    assert of_hadoop(hadoop, {**KEYS, "s3.region": "x", "s3.endpoint": "http://y"}) == {}
