"""What spans and metrics have in common when they are exported with OpenTelemetry: who sends them, and with which
credentials. Import it only where they are.
"""

import os
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

from opentelemetry.sdk.resources import Resource

LAST_EXPORT: Final = 2.0
"""Seconds at the end of the process for what has not been exported."""
_GOOGLE: Final = ".googleapis.com"
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


def resource_of(version: str) -> Resource:
    """Who this process is, as the environment variables of OpenTelemetry describe it."""
    about = {"service.version": version}
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        about["service.name"] = "countersink"
    resource = Resource.create(about)
    if "service.instance.id" not in resource.attributes:  # older versions of OpenTelemetry make none
        resource = resource.merge(Resource({"service.instance.id": str(uuid4())}))
    return resource


def session_of(endpoint: str) -> Any:
    """A session of `requests` with Google's credentials, if the endpoint is a service of Google's; else None. Raises
    `ValueError` if there are no credentials, `ImportError` if the extra is missing.
    """
    if not (urlsplit(endpoint).hostname or "").endswith(_GOOGLE):
        return None
    from google.auth import default, exceptions  # noqa: PLC0415 (only then)
    from google.auth.transport.requests import AuthorizedSession  # noqa: PLC0415

    try:
        credentials, _ = default(scopes=[_SCOPE])
    except exceptions.GoogleAuthError as error:
        raise ValueError(f"there are no credentials for {endpoint}: {error}") from None
    return AuthorizedSession(credentials)
