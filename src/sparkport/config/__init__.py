"""Settings of a server: a table of them, and their values from flags, environment and file."""

from sparkport.config.load import LISTEN, LISTEN_HELP, load_config
from sparkport.config.render import example_toml, settings_markdown
from sparkport.config.settings import SETTINGS, Config, changed, value_of
from sparkport.config.suggest import nearest, suggestion

__all__ = [
    "LISTEN",
    "LISTEN_HELP",
    "SETTINGS",
    "Config",
    "changed",
    "example_toml",
    "load_config",
    "nearest",
    "settings_markdown",
    "suggestion",
    "value_of",
]
