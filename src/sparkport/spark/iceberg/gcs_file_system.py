"""Arrow's file system for Google Cloud Storage, set up by the names of Iceberg's GCSFileIO."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from sparkport.spark.iceberg.storage import WrongSetting

__all__ = ["gcs_file_system"]

_RETRY = timedelta(seconds=60)
_UNKNOWN_END = timedelta(hours=1)


def gcs_file_system(properties: Mapping[str, str]) -> Any:
    """Without settings, credentials are those that Google's own programs would use.

    Raises: WrongSetting, which names the setting that is wrong.
    """
    from pyarrow.fs import GcsFileSystem

    options: dict[str, Any] = {"retry_time_limit": _RETRY}
    token = properties.get("gcs.oauth2.token")
    if properties.get("gcs.no-auth", "").lower() == "true":
        options["anonymous"] = True
    elif token:
        options["access_token"] = token
        options["credential_token_expiration"] = _end(properties)
    if account := properties.get("gcs.impersonate.service-account"):
        options["target_service_account"] = account
    if project := properties.get("gcs.project-id"):
        options["project_id"] = project
    if host := properties.get("gcs.service.host"):
        scheme, separator, rest = host.rpartition("://")
        options["scheme"] = scheme if separator else "https"
        options["endpoint_override"] = rest.rstrip("/")
    return GcsFileSystem(**options)


def _end(properties: Mapping[str, str]) -> datetime:
    """When the token ends, which Arrow wants to know."""
    text = properties.get("gcs.oauth2.token-expires-at")
    try:
        moment = (
            datetime.fromtimestamp(int(text) / 1000, timezone.utc)
            if text
            else datetime.now(timezone.utc) + _UNKNOWN_END
        )
    except (ValueError, OverflowError) as error:
        raise WrongSetting(
            "gcs.oauth2.token-expires-at is not a time: set milliseconds since 1970"
        ) from error
    return moment
