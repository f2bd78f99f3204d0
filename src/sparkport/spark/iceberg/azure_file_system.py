"""Arrow's file system for Azure's storage, set up by the names of Iceberg's ADLSFileIO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from sparkport.spark.iceberg.storage import WrongSetting

__all__ = ["azure_file_system", "azure_path"]

_KEY = "adls.account-key."
_SAS = "adls.sas-token."
_ENDPOINT = "adls.connection-string."


def azure_path(location: str) -> tuple[str, str]:
    """The host of the account, and the path with the container.

    `abfss://container@account.dfs.core.windows.net/a/b` is at `container/a/b`. The host is "" where
    a location does not say it, and then `adls.account-name` does.
    """
    authority, slash, path = location.partition("://")[2].partition("/")
    container, at, host = authority.partition("@")
    return (host if at else ""), f"{container}{slash}{path}"


def azure_file_system(host: str, properties: Mapping[str, str]) -> Any:
    """Without settings, credentials are those that Azure's own programs would use.

    Raises: WrongSetting, which names the setting that is wrong or that Arrow cannot keep to.
    """
    from pyarrow.fs import AzureFileSystem

    shared_name = properties.get("adls.auth.shared-key.account.name")
    account = host.partition(".")[0] or shared_name or properties.get("adls.account-name") or ""
    if not account:
        raise WrongSetting(
            "a location in Azure names its account: abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/"
        )
    options: dict[str, Any] = {"account_name": account}
    key = _of_account(_KEY, host, account, properties)
    if not key and shared_name in (None, account):
        key = properties.get("adls.auth.shared-key.account.key", "")
    endpoint = _of_account(_ENDPOINT, host, account, properties)
    address = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    sas = address.query or _of_account(_SAS, host, account, properties)
    client = [properties.get(f"adls.{each}") for each in ("client-id", "client-secret")]
    if sas:
        options["sas_token"] = sas if sas.startswith("?") else f"?{sas}"
    elif key:
        options["account_key"] = key
    elif all(client):
        options["client_id"], options["client_secret"] = client
        options["tenant_id"] = properties.get("adls.tenant-id")
    elif properties.get("adls.token"):
        raise WrongSetting(
            "Azure is read without tokens of Java's kind: have the catalog give out SAS tokens, or "
            "set adls.auth.shared-key.account.key"
        )
    suffix = host.partition(".")[2]
    if endpoint:
        for service in ("blob", "dfs"):
            options[f"{service}_storage_authority"] = _authority(address.netloc, account, service)
            options[f"{service}_storage_scheme"] = address.scheme
    elif suffix and not suffix.endswith(".core.windows.net"):  # a cloud of its own: China's, say
        options["blob_storage_authority"] = _authority(host, account, "blob")
        options["dfs_storage_authority"] = _authority(host, account, "dfs")
    return AzureFileSystem(**options)


def _authority(netloc: str, account: str, service: str) -> str:
    """An authority as Arrow wants it, which adds the account.

    It goes before an authority that begins with a dot, and else into the path behind it.
    """
    if not netloc.startswith(f"{account}."):
        return netloc
    rest = netloc.removeprefix(account)
    return rest.replace(".dfs.", f".{service}.", 1).replace(".blob.", f".{service}.", 1)


def _of_account(begin: str, host: str, account: str, properties: Mapping[str, str]) -> str:
    """A setting that has the name of the account behind it, or the name of its host."""
    return next(
        (found for each in (host, account) if each and (found := properties.get(f"{begin}{each}"))),
        "",
    )
