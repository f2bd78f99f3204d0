"""Where the lakes of a configuration are, with the secrets that it takes to reach them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkport.cli.private_files import read_private
from sparkport.config import Config
from sparkport.config.lakes import option_texts
from sparkport.errors import BadRequest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from sparkport.spark.jvm.session.source import LakeSource

__all__ = ["lake_source"]


def lake_source(config: Config) -> LakeSource:
    """The source of a lake. Raises: BadRequest, which says what to set."""
    from sparkport.spark.jvm.session.source import LakeSource

    secrets = _secrets(config.secrets_file) if config.secrets_file else {}
    return LakeSource(
        config.catalog,
        config.warehouse.rstrip("/") if "://" in config.warehouse else config.warehouse,
        config.catalog_uri,
        {**config.catalog_options, **secrets},
    )


def _secrets(name: str) -> dict[str, str]:
    content = read_private(name)
    try:
        given: dict[str, Any] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # Without the parser's words: they may quote a secret.
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise BadRequest(f'{Path(name)}{where} is not valid TOML: write "key" = "value"') from None
    return option_texts(given, name)
