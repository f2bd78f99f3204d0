"""What is wrong with a store, in one sentence for the person who set it up."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import NamedTuple

from sparkport.spark.iceberg.storage import MissingFile, WrongSetting, scheme_of

__all__ = ["storage_trouble"]


class _Names(NamedTuple):
    """What the settings of a store are called."""

    endpoint: str
    credentials: str
    region: str
    bucket: str


_S3 = _Names(
    "s3.endpoint",
    "s3.access-key-id and s3.secret-access-key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "client.region, or AWS_REGION",
    "bucket",
)
_GCS = _Names(
    "gcs.service.host",
    "gcs.oauth2.token, or GOOGLE_APPLICATION_CREDENTIALS",
    "gcs.service.host",
    "bucket",
)
_AZURE = _Names(
    "adls.connection-string.ACCOUNT",
    "adls.auth.shared-key.account.key, adls.sas-token.ACCOUNT, or AZURE_CLIENT_ID and its kin",
    "adls.connection-string.ACCOUNT",
    "container",
)
_OTHER = _Names("its address", "its credentials", "its address", "folder")
_BY_SCHEME: Mapping[str, _Names] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GCS),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _AZURE),
}

_TROUBLES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("signaturedoesnotmatch", "authenticationfailed", "invalidauthenticationinfo"),
        "the secret of the credentials is wrong: set {credentials}",
    ),
    (
        ("invalidaccesskeyid", "usernotfound", "(401)", "unauthenticated"),
        "the store does not know the credentials: set {credentials}",
    ),
    (
        ("expiredtoken", "tokenrefreshrequired", "invalidtoken", "tokenexpired"),
        "the credentials have expired: renew them, and set {credentials}",
    ),
    (
        ("requesttimetooskewed",),
        "the clocks of this machine and of the store differ: set this machine's clock",
    ),
    (
        ("nosuchbucket", "containernotfound", "bucketdoesnotexist", "containerdoesnotexist"),
        "there is no such {bucket}: make it, or set another warehouse",
    ),
    (
        ("authorizationheadermalformed", "permanentredirect", "illegallocation", "status301"),
        "the {bucket} is in another region: set {region}",
    ),
    (
        ("curlcode:60", "curlcode:77", "certificate", "pkix"),
        "the store's certificate is not trusted: set AWS_CA_BUNDLE (or s3.ca-file) to the file of "
        "its authority, and add that to Java's trust store",
    ),
    (
        (
            *("curlcode:35", "wrongversionnumber", "curlcode:56", "curlcode:52"),
            *("sslconnecterror", "curlerror[56]", "curlerror[52]"),  # Azure's and Google's words
        ),
        "the store does not talk as it is asked to: set {endpoint}, with http:// or https:// as it "
        "wants it",
    ),
    (
        ("notavaliduri", "invaliddnslabel", "invalidendpoint"),
        "the address of the store is not one: set {endpoint}",
    ),
    (
        ("couldnotloadcredentials", "determinecredentials", "defaultazurecredential"),
        "there are no credentials: set {credentials}",
    ),
    (
        ("accessdenied", "status403", "(403)", "forbidden", "permissiondenied", "authorization"),
        "the store denies access: allow the credentials to list, read, write and remove files "
        "there, or set {credentials}",
    ),
    (
        ("missingcontentlength", "notimplemented", "status411", "status501"),
        "the store does not know checksums of uploads: set AWS_REQUEST_CHECKSUM_CALCULATION to "
        "WHEN_REQUIRED",
    ),
    (
        ("slowdown", "status503", "status500", "status502", "status504", "internalfailure"),
        "the store answers that it cannot serve now: try again later",
    ),
    (
        (
            *("networkconnection", "curlcode", "connectionrefused", "unknownhost", "timeout"),
            *("failtogetanewconnection", "curlerror["),
        ),
        "the store cannot be reached: set {endpoint}, and check the network and its proxy",
    ),
)
"""What to look for in the text of an error, without blanks and in lower case; the first counts."""

_BY_NUMBER: Mapping[int, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "it is full: make room"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "this process may not write there: give it the permission, or set another warehouse",
    ),
}


def storage_trouble(error: OSError, place: str) -> str:
    """Say what is wrong, and what to set. Never names a secret.

    Texts of stores are looked at, and not repeated: they may have addresses with signatures.
    """
    return f"{place} cannot be used: {_reason(error, _BY_SCHEME.get(scheme_of(place), _OTHER))}"


def _reason(error: OSError, names: _Names) -> str:
    if isinstance(error, WrongSetting):
        return str(error)
    if isinstance(error, MissingFile):
        return f"there is no such {names.bucket} or file: set another warehouse"
    if error.errno is not None and error.errno in _BY_NUMBER:
        return _BY_NUMBER[error.errno]
    text = "".join(str(error).lower().replace("_", "").split())
    for signs, sentence in _TROUBLES:
        if any(sign in text for sign in signs):
            return sentence.format_map(names._asdict())
    return "check the settings of the store"
