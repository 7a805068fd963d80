"""Files and environment in, domain values out. Every `ConfigError` is born here."""

from goent.config.load import load_settings
from goent.config.starter import write_starter
from goent.project import find_project

__all__ = ["find_project", "load_settings", "write_starter"]
