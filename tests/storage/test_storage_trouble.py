"""What is wrong with a store is told in one sentence, which says what to set."""

from __future__ import annotations

import datetime
import errno
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.parts.faults import FaultProxy
from tests.parts.s3 import S3Server, s3_server

from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.s3_storage import S3Storage
from sparkport.spark.iceberg.storage import MissingFile, Storage, WrongSetting
from sparkport.spark.iceberg.storage_trouble import storage_trouble

_ACTS: Mapping[str, Callable[[Storage, str], object]] = {
    "write": lambda storage, place: storage.write(place, b"x"),
    "read": lambda storage, place: storage.read(place, 0, 1),
    "open": lambda storage, place: storage.open(place),
    "size": lambda storage, place: storage.size(place),
    "delete": lambda storage, place: storage.delete(place),
}


@pytest.fixture
def told(s3: S3Server) -> Callable[..., set[str]]:
    """What is said about a store with these settings, whatever is done with it."""

    def tell(bucket: str = s3.bucket, **settings: str) -> set[str]:
        changed = {name.replace("__", ".").replace("_", "-"): settings[name] for name in settings}
        options = {**s3.options(), "s3.retry.num-retries": "0", **changed}
        found = set()
        for act in _ACTS.values():
            with pytest.raises(OSError, match=r".+") as caught:
                act(S3Storage(options), f"s3://{bucket}/trouble/a")
            assert not isinstance(caught.value, MissingFile)
            assert options["s3.secret-access-key"] not in str(caught.value)
            found.add(storage_trouble(caught.value, f"s3://{bucket}/x"))
        return found

    return tell


def test_a_wrong_secret(told: Callable[..., set[str]]) -> None:
    (sentence,) = told(s3__secret_access_key="not-the-secret")
    assert sentence == (
        "s3://lake/x cannot be used: the secret of the credentials is wrong: set s3.access-key-id "
        "and s3.secret-access-key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def test_a_wrong_key(told: Callable[..., set[str]]) -> None:
    (sentence,) = told(s3__access_key_id="nobody")
    assert "does not know the credentials: set s3.access-key-id" in sentence


def test_a_wrong_bucket(told: Callable[..., set[str]]) -> None:
    (sentence,) = told(bucket="no-such-bucket")
    assert sentence == (
        "s3://no-such-bucket/x cannot be used: there is no such bucket: make it, or set another "
        "warehouse"
    )


def test_a_wrong_region(told: Callable[..., set[str]]) -> None:
    (sentence,) = told(client__region="eu-west-1")
    assert "is in another region: set client.region" in sentence


def test_nobody_listens(told: Callable[..., set[str]]) -> None:
    (sentence,) = told(s3__endpoint="http://127.0.0.1:9")
    assert "cannot be reached: set s3.endpoint" in sentence


def test_an_endpoint_that_is_no_address(told: Callable[..., set[str]]) -> None:
    assert all("set s3.endpoint" in sentence for sentence in told(s3__endpoint="http://a b"))


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (400, "ExpiredToken", "the credentials have expired: renew them"),
        (403, "AccessDenied", "the store denies access: allow the credentials"),
        (403, "InvalidAccessKeyId", "does not know the credentials"),
        (403, "RequestTimeTooSkewed", "set this machine's clock"),
        (503, "SlowDown", "it cannot serve now: try again later"),
        (411, "MissingContentLength", "set AWS_REQUEST_CHECKSUM_CALCULATION to WHEN_REQUIRED"),
        (301, "PermanentRedirect", "in another region: set client.region"),
    ],
)
def test_what_the_store_answers(
    told: Callable[..., set[str]], proxy: FaultProxy, status: int, code: str, words: str
) -> None:
    proxy.fail_next(status, code, times=1000)
    (sentence,) = told(s3__endpoint=proxy.endpoint())
    assert words in sentence


def test_keys_that_were_rotated(s3: S3Server, told: Callable[..., set[str]]) -> None:
    place = f"s3://{s3.bucket}/rotated"
    S3Storage(s3.options()).write(place, b"x")
    (sentence,) = told(s3__access_key_id="the-old-key", s3__secret_access_key="the-old-secret")
    assert "set s3.access-key-id" in sentence
    assert S3Storage(s3.options()).exists(place)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Server, Path]]:
    """A server whose certificate nobody knows, and the certificate."""
    certificate, key = _certificate(tmp_path_factory.mktemp("tls"))
    with s3_server((certificate, key)) as server:
        yield server, certificate


def test_a_certificate_that_is_not_trusted(
    told: Callable[..., set[str]], tls: tuple[S3Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, certificate = tls
    (sentence,) = told(s3__endpoint=server.endpoint)
    assert "certificate is not trusted: set AWS_CA_BUNDLE" in sentence
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    storage = S3Storage({**server.options(), "test": "trusted"})
    for act in ("write", "read"):
        with pytest.raises(OSError, match=r"(?i)no_?such_?bucket"):
            _ACTS[act](storage, f"s3://{server.bucket}/a")


def test_http_where_https_is_spoken(
    told: Callable[..., set[str]], tls: tuple[S3Server, Path], s3: S3Server
) -> None:
    for server in (tls[0], s3):
        other = {"http": "https", "https": "http"}[server.endpoint.partition(":")[0]]
        endpoint = f"{other}:{server.endpoint.partition(':')[2]}"
        assert all("set s3.endpoint" in sentence for sentence in told(s3__endpoint=endpoint))


def test_other_stores_have_other_settings() -> None:
    denied = OSError("GetBlobProperties: 403 AuthorizationPermissionMismatch sig=abc")
    assert "adls.sas-token.ACCOUNT" in storage_trouble(denied, "abfss://c@a.dfs.core.windows.net/")
    assert "sig=" not in storage_trouble(denied, "abfss://c@a.dfs.core.windows.net/")
    unknown = OSError("Permanent error: Could not load credentials, PERMISSION_DENIED")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in storage_trouble(unknown, "gs://b/")
    full = OSError(errno.ENOSPC, "No space left on device")
    assert storage_trouble(full, "/lake") == "/lake cannot be used: it is full: make room"


def test_settings_that_cannot_be_kept_to() -> None:
    for settings, words in (
        ({"s3.remote-signing-enabled": "true"}, "vended-credentials"),
        ({"s3.retry.num-retries": "many"}, "s3.retry.num-retries is not a number"),
    ):
        with pytest.raises(WrongSetting, match=words) as caught:
            storage_at("s3://b/a", settings).open("s3://b/a")
        assert words in storage_trouble(caught.value, "s3://b/a")
    with pytest.raises(WrongSetting, match="the default of the bucket"):
        storage_at("s3://b/a", {"s3.sse.type": "kms"}).write("s3://b/a", b"x")
    with pytest.raises(OSError, match=r"ACCOUNT\.dfs\.core"):
        storage_at("abfss://c/a", {}).open("abfss://c/a")
    place = "abfss://c@account.dfs.core.windows.net/a"
    with pytest.raises(OSError, match="SAS tokens"):
        storage_at(place, {"adls.token": "t"}).open(place)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
