"""Credentials of AWS from where its own programs look for them, for requests that we make.

In this order: variables, the token of a service account (Kubernetes), the profile's keys, the
container's role, the machine's role. Profiles that ask others for credentials (single sign-on, a
process, another role) are left to Arrow.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from configparser import ConfigParser, Error
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

__all__ = ["AwsKeys", "default_keys"]

_EARLY = 300.0
"""Seconds before their end that credentials are renewed."""
_NEVER = float("inf")
_CONTAINER = "http://169.254.170.2"
_MACHINE = "http://169.254.169.254"
_SECONDS = 2.0


class AwsKeys(NamedTuple):
    """What requests are signed with."""

    access: str
    secret: str
    token: str = ""
    end: float = _NEVER
    """When they expire, in seconds since 1970."""

    def __repr__(self) -> str:
        return "AwsKeys(…)"


def default_keys() -> AwsKeys | None:
    """The credentials of this process now; None where there are none, or only Arrow finds them."""
    with _lock:
        now = time.time()
        known, until = _known.get("keys", (None, 0.0))
        if now >= until:
            known = next((keys for find in _PLACES if (keys := find())), None)
            until = now + 60 if known is None else min(known.end - _EARLY, now + 3600)
            _known["keys"] = known, until
        return known


_lock = threading.Lock()
_known: dict[str, tuple[AwsKeys | None, float]] = {}
"""The last answer, and until when it holds."""


def _of_variables() -> AwsKeys | None:
    access, secret, token = (
        os.environ.get(f"AWS_{name}", "")
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
    )
    return AwsKeys(access, secret, token) if access and secret else None


def _of_service_account() -> AwsKeys | None:
    file, role = os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"), os.environ.get("AWS_ROLE_ARN")
    if not file or not role:
        return None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    host = f"https://sts.{region}.amazonaws.com" if region else "https://sts.amazonaws.com"
    query = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": role,
        "RoleSessionName": os.environ.get("AWS_ROLE_SESSION_NAME", "sparkport"),
        "WebIdentityToken": _text(file).strip(),
    }
    body = urlencode(query)
    headers = {"content-type": "application/x-www-form-urlencoded"}
    told = _ask(
        "POST", f"{os.environ.get('AWS_ENDPOINT_URL_STS', host).rstrip('/')}/", headers, body
    )
    found = dict(re.findall(r"<(\w+)>([^<]*)</\1>", told or ""))
    return _keys(found, "SessionToken")


def _of_profile() -> AwsKeys | None:
    profile = os.environ.get("AWS_PROFILE") or "default"
    home = Path.home() / ".aws"
    for file, section in (
        (os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", profile),
        (
            os.environ.get("AWS_CONFIG_FILE") or home / "config",
            profile if profile == "default" else f"profile {profile}",
        ),
    ):
        parser = ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(_text(file))
        except (Error, ValueError):
            continue
        found = dict(parser[section]) if parser.has_section(section) else {}
        if "role_arn" in found:
            return None
        if found.get("aws_access_key_id") and found.get("aws_secret_access_key"):
            return AwsKeys(
                found["aws_access_key_id"],
                found["aws_secret_access_key"],
                found.get("aws_session_token", ""),
            )
    return None


def _of_container() -> AwsKeys | None:
    relative = os.environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    url = os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if relative:
        url = f"{_CONTAINER}{relative}"
    if not url:
        return None
    token = os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    if file := os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        token = _text(file).strip()
    return _keys(_json(_ask("GET", url, {"authorization": token} if token else {})), "Token")


def _of_machine() -> AwsKeys | None:
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    start = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", _MACHINE).rstrip("/")
    lifetime = {"x-aws-ec2-metadata-token-ttl-seconds": "300"}
    token = _ask("PUT", f"{start}/latest/api/token", lifetime)
    if not token:
        return None
    headers = {"x-aws-ec2-metadata-token": token}
    place = f"{start}/latest/meta-data/iam/security-credentials/"
    role = (_ask("GET", place, headers) or "").strip().partition("\n")[0]
    return _keys(_json(_ask("GET", f"{place}{role}", headers)), "Token") if role else None


_PLACES: tuple[Callable[[], AwsKeys | None], ...] = (
    _of_variables,
    _of_service_account,
    _of_profile,
    _of_container,
    _of_machine,
)


def _keys(found: Mapping[str, str], token: str) -> AwsKeys | None:
    access, secret = found.get("AccessKeyId"), found.get("SecretAccessKey")
    if not access or not secret:
        return None
    end = found.get("Expiration")
    try:
        moment = datetime.fromisoformat(end.replace("Z", "+00:00")).timestamp() if end else _NEVER
    except ValueError:
        return None
    return AwsKeys(access, secret, found.get(token, ""), moment)


def _json(text: str | None) -> Mapping[str, str]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _ask(method: str, url: str, headers: Mapping[str, str], body: str = "") -> str | None:
    """What is answered; None if nobody answers, or not with what was asked for."""
    from urllib3 import PoolManager, Timeout
    from urllib3.exceptions import HTTPError

    with PoolManager(timeout=Timeout(_SECONDS), retries=False) as pool:
        try:
            answer = pool.request(method, url, headers=dict(headers), body=body or None)
        except HTTPError:
            return None
    return answer.data.decode("utf-8", "replace") if answer.status == 200 else None


def _text(file: str | Path) -> str:
    try:
        return Path(file).expanduser().read_text("utf-8")
    except OSError:
        return ""
