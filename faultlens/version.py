"""Which version of faultlens this is."""

from importlib.metadata import version


def program_version() -> str:
    """Return the version of the installed distribution."""
    return version("faultlens")
