"""Settings of object stores by Iceberg's names: the catalog's own, and Hadoop's translated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparkport.spark.iceberg.s3_settings import of_bucket

if TYPE_CHECKING:
    from sparkport.spark.jvm.gateway import Gateway

__all__ = ["file_properties", "of_hadoop"]

_OPTIONS = ("s3.", "client.", "http-client.", "gcs.", "adls.")
"""What options of a catalog begin with that are for its files."""
_CREDENTIALS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
"""They belong together: some of one place and some of another are of no use."""

_S3: Mapping[str, str] = {
    "access.key": "s3.access-key-id",
    "secret.key": "s3.secret-access-key",
    "session.token": "s3.session-token",
    "endpoint": "s3.endpoint",
    "endpoint.region": "client.region",
    "path.style.access": "s3.path-style-access",
    "assumed.role.arn": "client.assume-role.arn",
    "assumed.role.session.name": "client.assume-role.session-name",
    "assumed.role.external.id": "client.assume-role.external-id",
}
"""Names after `fs.s3a.` or after `fs.s3a.bucket.BUCKET.`, and Iceberg's."""
_S3_BUCKET = "fs.s3a.bucket."
_NO_ENDPOINT = ("s3.amazonaws.com", "https://s3.amazonaws.com")
"""What Hadoop takes for "the usual", whatever the region."""
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_OTHERS: Mapping[str, str] = {
    "fs.gs.project.id": "gcs.project-id",
    "fs.gs.storage.root.url": "gcs.service.host",
    "fs.azure.account.oauth2.client.id": "adls.client-id",
    "fs.azure.account.oauth2.client.secret": "adls.client-secret",
}
_BY_ACCOUNT: Mapping[str, str] = {
    "fs.azure.account.key.": "adls.account-key.",
    "fs.azure.sas.fixed.token.": "adls.sas-token.",
}
"""What names begin with that end in the host of an account."""
_TENANT = "fs.azure.account.oauth2.client.endpoint"
_SECRET = ("key", "token", "secret")


def file_properties(gateway: Gateway) -> dict[str, str]:
    """Properties for object stores. The catalog's win over those of Hadoop's configuration."""
    options = {name: value for name, value in gateway.options.items() if name.startswith(_OPTIONS)}
    configuration = gateway.spark.sparkContext._jsc.hadoopConfiguration()
    return {**of_hadoop(_Configuration(configuration), options), **options}


class _Configuration:
    """A Hadoop configuration that is asked as little as possible: each question goes to Java."""

    def __init__(self, java: Any) -> None:
        self._java = java

    def get(self, name: str) -> str:
        """The value, also of a secret that is kept elsewhere; "" if there is none."""
        if name.endswith(_SECRET):
            found = self._java.getPassword(name)
            return "".join(map(str, found)) if found is not None else ""
        return str(self._java.get(name) or "")

    def after(self, begin: str) -> list[str]:
        """What stands after the beginning in the names that have it."""
        return [str(each) for each in self._java.getPropsWithPrefix(begin)]


def of_hadoop(configuration: _Configuration, options: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings by Iceberg's names, as far as `options` leave them open."""
    found = _s3(lambda name: configuration.get(f"fs.s3a.{name}"))
    buckets: dict[str, set[str]] = {}
    for rest in configuration.after(_S3_BUCKET):
        for name in (*_S3, "aws.credentials.provider", "connection.ssl.enabled"):
            if rest.endswith(f".{name}"):
                buckets.setdefault(rest.removesuffix(f".{name}"), set()).add(name)
    for bucket, names in buckets.items():
        own = _s3(
            lambda name, begin=f"{_S3_BUCKET}{bucket}", names=names: (  # type: ignore[misc]
                configuration.get(f"{begin}.{name}") if name in names else ""
            )
        )
        for name, value in _left_open(own, options).items():
            found[of_bucket(bucket, name)] = value
    found |= {ours: configuration.get(theirs) for theirs, ours in _OTHERS.items()}
    for begin, ours in _BY_ACCOUNT.items():
        found |= {
            f"{ours}{rest}": configuration.get(f"{begin}{rest}")
            for rest in configuration.after(begin)
        }
    if tenant := configuration.get(_TENANT):  # https://login.microsoftonline.com/TENANT/oauth2/…
        found["adls.tenant-id"] = tenant.partition("://")[2].partition("/")[2].partition("/")[0]
    if configuration.get("fs.gs.auth.type") == "UNAUTHENTICATED":
        found["gcs.no-auth"] = "true"
    return _left_open({name: value for name, value in found.items() if value}, options)


def _s3(get: Callable[[str], str]) -> dict[str, str]:
    found = {ours: value for theirs, ours in _S3.items() if (value := get(theirs))}
    endpoint = found.pop("s3.endpoint", "")
    if endpoint and endpoint not in _NO_ENDPOINT:
        is_plain = get("connection.ssl.enabled") == "false"
        scheme = "" if "://" in endpoint else ("http://" if is_plain else "https://")
        found["s3.endpoint"] = f"{scheme}{endpoint}"
    if _ANONYMOUS in get("aws.credentials.provider"):
        found["s3.anonymous"] = "true"
    return found


def _left_open(found: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    given = {*options}
    if not given.isdisjoint(_CREDENTIALS):
        given |= {*_CREDENTIALS, "s3.anonymous", "client.assume-role.arn"}
    if "s3.region" in given:
        given.add("client.region")
    return {name: value for name, value in found.items() if name not in given}
