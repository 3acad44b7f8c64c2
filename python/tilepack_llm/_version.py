"""The version of the installed distribution; a checkout that is not installed has none."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tilepack-llm")
except PackageNotFoundError:
    __version__ = "0+checkout"
