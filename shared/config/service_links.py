"""Knows the variables that Kubernetes sets in each Pod for services whose names begin with `countersink`. Pure.

For a service `countersink` they are COUNTERSINK_SERVICE_HOST, COUNTERSINK_PORT=tcp://… and others of this form. They
look like settings, and are none.
"""

import re
from typing import Final

_SERVICE: Final = r"COUNTERSINK(?:_[A-Z0-9]+)*?"
_NAME: Final = re.compile(
    rf"{_SERVICE}_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_PORT: Final = re.compile(rf"{_SERVICE}_PORT")
_URL: Final = re.compile(r"(?:tcp|udp|sctp)://.*")


def is_service_link(name: str, value: str) -> bool:
    """Whether this variable is one of those. COUNTERSINK_PORT is one only if it is a URL, and no plain number."""
    return bool(_NAME.fullmatch(name) or (_PORT.fullmatch(name) and _URL.fullmatch(value)))
