"""The rules of a configuration file: who may do what can change without a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparkport.auth import Policy
from sparkport.auth.watched import WatchedFiles
from sparkport.cli.rule_doubts import doubts_about_patterns
from sparkport.config import SETTINGS, Config, changed
from sparkport.errors import BadRequest

__all__ = ["RuleFile"]

_log = logging.getLogger("sparkport.cli")

_RULES = ("grants", "row_filters", "masks", "admins")


@dataclass(frozen=True, slots=True)
class _Read:
    config: Config
    policy: Policy | None


class RuleFile:
    """Gives the policy of a configuration file at each call, and reads the file when it changes.

    While the file is broken or missing, its earlier rules stay in force. Only the rules are taken
    from it: when other settings have changed, the log says that they need a restart. Thread-safe.
    """

    def __init__(self, file: Path, started: Config, load: Callable[[], Config]) -> None:
        """`started` are the settings at the start; `load` reads them again. Raises: BadRequest."""
        self._file = file
        self._started = started
        self._load = load
        self._before = _Read(started, started.policy)
        self._rules = WatchedFiles([file], self._read, _log, "the rules stay as they were")

    def __call__(self) -> Policy | None:
        """The policy in force; None where every caller may do everything."""
        if self._rules.look():
            self._tell(self._rules.value)
        return self._rules.value.policy

    @property
    def outdated(self) -> bool:
        """Whether the file has changed, but cannot be used."""
        self()
        return self._rules.outdated

    def _read(self) -> _Read:
        config, before = self._load(), self._before
        if config.grants is None and before.config.grants is not None:
            # Most likely the file is still being written.
            raise BadRequest(
                f"{self._file} has no [[grants]] any more, so that everybody might do everything: "
                f"if that is meant, restart "
                "the server"
            )
        same = all(getattr(config, name) == getattr(before.config, name) for name in _RULES)
        return _Read(config, before.policy if same else config.policy)

    def _tell(self, read: _Read) -> None:
        if read.policy is not self._before.policy:
            _log.info("the rules were read again from %s", self._file)
            for doubt in doubts_about_patterns(read.config):
                _log.warning("%s", doubt)
        self._before = read
        others = [each for each in SETTINGS if each.name not in _RULES]
        names = [each.name for each in changed(read.config, self._started, others)]
        if names:
            _log.warning(
                "%s has other settings now that take a restart: %s", self._file, ", ".join(names)
            )
