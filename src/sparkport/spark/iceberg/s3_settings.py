"""Settings of S3, by Iceberg's names, and Arrow's file system for them.

They mean here what they mean in Iceberg's S3FileIO for Java. What is not set comes from where the
programs of AWS look: variables, profiles, the role of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from sparkport.spark.iceberg.storage import WrongSetting

__all__ = ["S3Settings", "of_bucket", "s3_file_system"]

_BUCKET = "bucket."


@dataclass(frozen=True, slots=True)
class S3Settings:
    """What a client of S3 needs to know. Hashable."""

    endpoint: str = ""
    """With its scheme; "" for AWS."""
    region: str = ""
    path_style: bool = False
    """Whether the bucket is in the path of addresses, and not in the name of the host."""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    role: str = ""
    role_session: str = ""
    role_external_id: str = field(default="", repr=False)
    role_seconds: int = 3600
    anonymous: bool = False
    connect_seconds: float = 2
    request_seconds: float = 30
    attempts: int = 6
    proxy: str = field(default="", repr=False)
    ca_file: str = ""
    acl: str = ""
    encryption: str = ""
    """How the store is asked to encrypt new files, if not by what is set for the bucket."""

    @classmethod
    def of(cls, properties: Mapping[str, str], bucket: str) -> S3Settings:
        """Raises: WrongSetting."""
        begin = of_bucket(bucket, "")
        own = {
            name.removeprefix(begin): value
            for name, value in properties.items()
            if name.startswith(begin)
        }
        take = _Properties({**properties, **own})
        if take.flag("s3.remote-signing-enabled"):
            raise WrongSetting(
                "the catalog wants to sign each request to S3, which only Java can ask it for: set "
                "header.X-Iceberg-Access-Delegation to vended-credentials"
            )
        environment = os.environ
        endpoint = (
            take.text("s3.endpoint")
            or environment.get("AWS_ENDPOINT_URL_S3", "")
            or environment.get("AWS_ENDPOINT_URL", "")
        )
        if endpoint and "://" not in endpoint:
            endpoint = f"https://{endpoint}"
        region = take.text("s3.region", "client.region") or (
            environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
        )
        return cls(
            endpoint=endpoint,
            region=region,
            path_style=take.flag("s3.path-style-access") or _is_address(endpoint),
            access_key=take.text("s3.access-key-id"),
            secret_key=take.text("s3.secret-access-key"),
            session_token=take.text("s3.session-token"),
            role=take.text("client.assume-role.arn", "s3.role-arn"),
            role_session=take.text("client.assume-role.session-name", "s3.role-session-name"),
            role_external_id=take.text("client.assume-role.external-id"),
            role_seconds=int(take.number(3600, "client.assume-role.timeout-sec")),
            anonymous=take.flag("s3.anonymous"),
            connect_seconds=take.seconds(
                2,
                "s3.connect-timeout",
                "http-client.apache.connection-timeout-ms",
                "http-client.urlconnection.connection-timeout-ms",
            ),
            request_seconds=take.seconds(
                30,
                "s3.request-timeout",
                "http-client.apache.socket-timeout-ms",
                "http-client.urlconnection.socket-timeout-ms",
            ),
            attempts=int(take.number(5, "s3.retry.num-retries")) + 1,
            proxy=take.text("http-client.proxy-endpoint", "s3.proxy-uri"),
            ca_file=take.text("s3.ca-file") or environment.get("AWS_CA_BUNDLE", ""),
            acl=take.text("s3.acl"),
            encryption=take.text("s3.sse.type").lower().replace("none", ""),
        )


def of_bucket(bucket: str, name: str) -> str:
    """The name of a property that holds for one bucket only."""
    return f"{_BUCKET}{bucket}.{name}"


class _Properties:
    """Reads properties. Of several names the first that is set counts."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def text(self, *names: str) -> str:
        return next((self._properties[each] for each in names if self._properties.get(each)), "")

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def number(self, usual: float, *names: str) -> float:
        for name in names:
            if text := self._properties.get(name):
                try:
                    value = float(text)
                except ValueError:
                    value = -1
                if not value >= 0:
                    raise WrongSetting(f"{name} is not a number: set one that is not negative")
                return value
        return usual

    def seconds(self, usual: float, *names: str) -> float:
        """Names that end in -ms are of milliseconds."""
        for name in names:
            if self._properties.get(name):
                return self.number(usual, name) / (1000 if name.endswith("-ms") else 1)
        return usual


def _is_address(endpoint: str) -> bool:
    """Whether the host is a number. There can be no bucket in front of it, as in Java's client."""
    host = urlsplit(endpoint).hostname
    if not host:
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def s3_file_system(bucket: str, settings: S3Settings) -> Any:
    """Arrow's file system for a bucket. Nothing is asked of the store but its region, if need be.

    Raises: OSError.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    options: dict[str, Any] = {
        "request_timeout": settings.request_seconds,
        "connect_timeout": settings.connect_seconds,
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=settings.attempts),
        "background_writes": True,
        "allow_delayed_open": True,  # a small file is one request
    }
    if settings.role:
        options |= {
            "role_arn": settings.role,
            "session_name": settings.role_session or None,
            "external_id": settings.role_external_id or None,
            # Renewed before they end: Arrow asks again only once they are that old.
            "load_frequency": max(settings.role_seconds - 300, 60),
        }
    elif settings.access_key:
        options |= {
            "access_key": settings.access_key,
            "secret_key": settings.secret_key,
            "session_token": settings.session_token or None,
        }
    elif settings.anonymous:
        options["anonymous"] = True
    region = settings.region or (_region_of(bucket) if not settings.endpoint else "us-east-1")
    if region:
        options["region"] = region
    if settings.endpoint:
        options["endpoint_override"] = settings.endpoint
        options["force_virtual_addressing"] = not settings.path_style
    elif settings.path_style and region:
        options["endpoint_override"] = f"https://s3.{region}.amazonaws.com"
    if settings.proxy:
        options["proxy_options"] = settings.proxy
    if settings.ca_file:
        options["tls_ca_file_path"] = settings.ca_file
    if settings.acl:
        options["default_metadata"] = {"ACL": settings.acl}
    return S3FileSystem(**options)


def _region_of(bucket: str) -> str:
    """The region that AWS has a bucket in; "" if it does not say."""
    from pyarrow.fs import resolve_s3_region

    try:
        return str(resolve_s3_region(bucket))
    except OSError:
        return ""
