"""What to say when a setting needs packages that are not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.model.errors import SettingsError


@contextmanager
def needs(extra: str, variable: str, url: str) -> Iterator[None]:
    """Import inside it what only installations with this extra have. `SettingsError` if the extra is missing."""
    try:
        yield
    except ImportError as error:
        raise SettingsError(
            f"{variable}={url!r} needs more packages: install Countersink with its extra {extra!r}"
            f" (in a checkout: make install EXTRAS={extra})"
        ) from error
