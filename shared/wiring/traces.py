"""Decides by the environment variables of OpenTelemetry whether this process makes spans."""

import logging
import os
from typing import Final
from urllib.parse import urlsplit

from shared.model.errors import SettingsError
from shared.runtime.traces import Traces

_log = logging.getLogger(__name__)

OWN: Final = "OTEL_EXPORTER_OTLP_TRACES_"
COMMON: Final = "OTEL_EXPORTER_OTLP_"
PROTOCOL: Final = "http/protobuf"


def traces_of(version: str) -> Traces | None:
    """None if no endpoint is set, or if spans can't be exported. These variables are often set for all programs of a
    machine, so a missing extra does not end the start.
    """
    endpoint, variable = _variable("ENDPOINT")
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if not endpoint or off or "otlp" not in exporters.replace(" ", "").split(","):
        return None
    if urlsplit(endpoint).scheme not in {"http", "https"}:
        raise SettingsError(f"{variable}={endpoint!r} must be a URL that begins with http:// or https://")
    protocol, variable = _variable("PROTOCOL")
    if protocol not in {"", PROTOCOL}:
        _log.warning("no spans are exported: %s is %s, and Countersink knows only %s", variable, protocol, PROTOCOL)
        return None
    try:
        from shared.runtime.otlp_traces import OtlpTraces  # noqa: PLC0415 (the extra may be missing)
    except ImportError:
        _log.warning(
            "no spans are exported: install Countersink with its extra 'otel' (in a checkout: make install EXTRAS=otel)"
        )
        return None
    try:
        return OtlpTraces(version)
    except ValueError as error:
        raise SettingsError(f"a variable of OpenTelemetry (OTEL_…) is wrong: {error}") from None


def _variable(name: str) -> tuple[str, str]:
    """The value of a variable for traces or for all signals, and which one it is of. Empty ones count as not set."""
    for variable in (OWN + name, COMMON + name):
        if value := os.environ.get(variable, "").strip():
            return value, variable
    return "", ""
