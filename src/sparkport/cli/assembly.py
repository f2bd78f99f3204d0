"""Making the objects of a server from its settings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sparkport.auth import Authenticator, AuthenticatorChain, JWTAuthenticator, TokenFile
from sparkport.auth.jwks import KeySet
from sparkport.builder import CatalogBuilder
from sparkport.builder.demo import demo_catalog
from sparkport.catalog import Catalog
from sparkport.cli.loading import load_authenticator, load_catalog
from sparkport.cli.private_files import doubt_readable, expect_unchangeable, read_secret
from sparkport.cli.rule_file import RuleFile
from sparkport.config import Config, changed
from sparkport.errors import BadRequest
from sparkport.server import ServerSettings
from sparkport.server.tls import Certificates, check_files
from sparkport.settings import LAKE

__all__ = [
    "authenticator",
    "catalogs",
    "certificates",
    "included",
    "jwt_authenticator",
    "server_settings",
    "worker_doubts",
]

_log = logging.getLogger("sparkport.cli")


def catalogs(config: Config, targets: Sequence[str]) -> list[Catalog | CatalogBuilder]:
    """All catalogs but the lake, which takes longer to make. Raises: BadRequest."""
    found = [load_catalog(target) for target in targets]
    _expect_used(config)
    if not config.every_lake:
        found += [demo_catalog(settings=config.memory)] if config.demo else []
        if not found:
            raise BadRequest(
                "name a catalog to serve, for instance shop.py:catalog, or a --warehouse, or try "
                "--demo"
            )
    return found


def included(config: Config, found: Sequence[Catalog | CatalogBuilder]) -> Sequence[CatalogBuilder]:
    """The catalogs whose functions are added to the lake `into`. Raises: BadRequest."""
    lakes = [each.name for each in config.every_lake]
    if config.into not in lakes:
        raise BadRequest(
            f"there is no lake {config.into!r} for --into; there is {', '.join(lakes)}"
        )
    builders = [each for each in found if isinstance(each, CatalogBuilder)]
    if not found or len(builders) < len(found):
        raise BadRequest(
            f"--into {config.into} needs functions of a CatalogBuilder: name it, for instance "
            "functions.py:catalog"
        )
    for each in builders:
        each.function_schemas()
    return builders


def _expect_used(config: Config) -> None:
    """Refuse settings for a lake or memory that is not served: users would not notice that."""
    given = changed(config, Config())
    if not config.every_lake:
        of_lake = [
            each.flag
            for each in given
            if each.part == "lake" or (each.section == LAKE and each.name not in ("demo", "name"))
        ]
        if of_lake:
            raise BadRequest(
                f"there is no lake for {', '.join(of_lake)}: name its folder with --warehouse"
            )
    if config.every_lake or not config.demo:
        of_memory = [each.flag for each in given if each.part == "memory"]
        if of_memory:
            raise BadRequest(
                f"there is no catalog in memory for {', '.join(of_memory)}: --demo without a "
                "--warehouse serves one; one of your own has its settings in Python"
            )


def server_settings(config: Config, rules: RuleFile | None = None) -> ServerSettings:
    """The settings of the server. `rules` give the policy, where it may change.

    Secrets that others can read are logged. Raises: BadRequest for files that cannot be read, or
    that others can change; PreconditionFailed for packages that are missing.
    """
    secret = read_secret(config.secret_file) if config.secret_file else None
    if config.tokens_file:
        expect_unchangeable(config.tokens_file)
        for doubt in doubt_readable(config.tokens_file):
            _log.warning("%s", doubt)
    tls = certificates(config)
    if tls is not None:
        check_files(tls)  # checked here, so that errors show before Spark starts
    return replace(
        config.server,
        authenticate=authenticator(config),
        policy=config.policy if rules is None else rules,
        secret=secret,
    )


def worker_doubts(config: Config) -> list[str]:
    """Sentences about Spark's workers that would not run, or not as configured.

    Raises: BadRequest for a worker_environment that does not fit.
    """
    from sparkport.spark.jvm.worker_python import missing_python, worker_settings

    if not config.every_lake:
        return []
    master = config.master or config.spark_conf.get("spark.master", "local")
    worker_settings(master, config.worker_environment)
    said = missing_python(master, config.worker_environment, config.spark_conf)
    return [said] if said else []


def certificates(config: Config) -> Certificates | None:
    """The certificate files; None where nothing is encrypted."""
    server = config.server
    if not server.tls_certificate or not server.tls_key:
        return None
    return Certificates(server.tls_certificate, server.tls_key, server.tls_client_ca)


def authenticator(config: Config) -> Authenticator | None:
    """All configured ways to sign in; None if there are none.

    Raises: BadRequest, PreconditionFailed.
    """
    ways: dict[str, Authenticator] = {}
    if config.tokens_file:
        ways["tokens_file"] = TokenFile(config.tokens_file)
    if config.jwks_url:
        ways["jwt"] = jwt_authenticator(config)
    if config.authenticator:
        ways["authenticator"] = load_authenticator(config.authenticator)
    return AuthenticatorChain(ways) if ways else None


def jwt_authenticator(config: Config) -> JWTAuthenticator:
    """The authenticator for an OpenID provider's tokens. Raises: BadRequest, PreconditionFailed."""
    return JWTAuthenticator(
        config.jwks_url,
        config.jwt_issuer,
        config.jwt_audience,
        principal_claim=config.jwt_principal_claim,
        groups_claim=config.jwt_groups_claim,
        attributes=config.jwt_attributes,
        keys=KeySet(config.jwks_url, allow_http=config.insecure),
    )
