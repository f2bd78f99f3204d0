"""Python objects that the command line names: `module:name` or `file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import Any

from sparkport.auth import Authenticator
from sparkport.builder import CatalogBuilder
from sparkport.catalog import Catalog
from sparkport.errors import BadRequest

__all__ = ["load_authenticator", "load_catalog"]

_log = logging.getLogger("sparkport.cli")


def load_catalog(target: str) -> CatalogBuilder | Catalog:
    """The catalog that a target names, or that the named function makes. Raises: BadRequest."""
    place, name, catalog = _load(target)
    if callable(catalog) and not isinstance(catalog, Catalog | CatalogBuilder):
        catalog = catalog()
    if not isinstance(catalog, Catalog | CatalogBuilder):
        raise BadRequest(f"{place} has no CatalogBuilder or Catalog called {name!r}")
    return catalog


def load_authenticator(target: str) -> Authenticator:
    """The function that a target names, or an object of the named class. Raises: BadRequest."""
    place, name, found = _load(target)
    if isinstance(found, type):
        found = found()
    if not callable(found):
        raise BadRequest(
            f"{place} has no function called {name!r} that could tell whose a token is"
        )
    authenticator: Authenticator = found
    return authenticator


def _load(target: str) -> tuple[str, str, Any]:
    """The module, the name and the object of a target; the object is None if there is none."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise BadRequest(f"{target!r} must be of the form module:name or file.py:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does, and the installed command does not
    try:
        module = (
            _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        )
    except Exception as error:
        _log.debug("importing %s", place, exc_info=error)
        problem = f"{type(error).__name__}: {error} (--log-level debug shows where)"
        raise BadRequest(f"{place} cannot be imported: {problem}") from error
    return place, name, getattr(module, name, None)


def _load_file(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise ImportError("it is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module
