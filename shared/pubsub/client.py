"""Calls Pub/Sub: one channel, requests in raw protobuf, and its errors translated to Countersink's own.

proto-plus would take about fifteen times as long to build and to read a request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote

import google.auth.exceptions
import grpc
from google.iam.v1 import iam_policy_pb2
from google.pubsub_v1 import types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport

from shared.model.errors import BrokerRejectedError, SettingsError, StoodStillError, TransientError
from shared.runtime.retry import Backoff, insist

HOST: Final = "pubsub.googleapis.com"
TIMEOUT: Final = 5.0
"""Seconds for one try of a call that does not wait for messages."""
RETRY_FOR: Final = 10.0
"""Seconds for which a call is retried before its caller gets the error."""
PULL_MARGIN: Final = 1.0
"""Seconds. The emulator answers a pull that found nothing this long before its deadline; so none is ever cut off."""

_OPTIONS: Final = [
    ("grpc.max_send_message_length", -1),  # Pub/Sub's own limits hold; 4 MB by default
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),  # two minutes by default
]
_KEEPALIVE: Final = ("grpc.keepalive_time_ms", 30_000)
"""Lets a pull notice a dead connection. The emulator would close the connection of a client that pings it."""

_T = TypeVar("_T")


class SetupError(TransientError):
    """Pub/Sub is not set up. The message says what to do; once that is done, the same call succeeds."""


@dataclass(frozen=True, slots=True)
class PubsubPlace:
    """Names the topic and the subscription, and those that go with them."""

    project: str
    topic_id: str
    subscription_id: str

    @property
    def topic(self) -> str:
        return f"projects/{self.project}/topics/{self.topic_id}"

    @property
    def subscription(self) -> str:
        return f"projects/{self.project}/subscriptions/{self.subscription_id}"

    @property
    def tasks(self) -> "PubsubPlace":
        return PubsubPlace(self.project, f"{self.topic_id}-tasks", f"{self.subscription_id}-tasks")

    @property
    def dead_topic(self) -> str:
        return f"{self.topic}-dead-letters"

    @property
    def dead_subscription(self) -> str:
        return f"{self.subscription}-dead-letters"


class PubsubClient:
    """Each method is one call. It raises only `TransientError`; `SetupError` and `BrokerRejectedError` are kinds of it.

    No error of Pub/Sub is final: once permissions, schemas or routes are corrected, the same call succeeds. Create the
    client inside the running event loop.
    """

    def __init__(self, emulator: str | None = None) -> None:
        """`emulator`: its host and port, as in PUBSUB_EMULATOR_HOST. Without one it connects to Google Cloud."""
        self._channel = _channel(emulator)
        self._publish = self._stub("Publisher/Publish", types.PublishRequest.pb())
        self._pull = self._stub("Subscriber/Pull", types.PullRequest.pb(), types.PullResponse.pb())
        self._acknowledge = self._stub("Subscriber/Acknowledge", types.AcknowledgeRequest.pb())
        self._modify = self._stub("Subscriber/ModifyAckDeadline", types.ModifyAckDeadlineRequest.pb())
        self._get_topic = self._stub("Publisher/GetTopic", types.GetTopicRequest.pb(), _TOPIC)
        self._create_topic = self._stub("Publisher/CreateTopic", _TOPIC, _TOPIC)
        self._update_topic = self._stub("Publisher/UpdateTopic", types.UpdateTopicRequest.pb(), _TOPIC)
        get, update = types.GetSubscriptionRequest.pb(), types.UpdateSubscriptionRequest.pb()
        self._get_subscription = self._stub("Subscriber/GetSubscription", get, _SUBSCRIPTION)
        self._create_subscription = self._stub("Subscriber/CreateSubscription", _SUBSCRIPTION, _SUBSCRIPTION)
        self._update_subscription = self._stub("Subscriber/UpdateSubscription", update, _SUBSCRIPTION)
        asked, answered = iam_policy_pb2.TestIamPermissionsRequest, iam_policy_pb2.TestIamPermissionsResponse
        self._permissions = self._stub("IAMPolicy/TestIamPermissions", asked, answered, "google.iam.v1")

    def _stub(self, method: str, request: Any, response: Any = None, package: str = "google.pubsub.v1") -> Any:
        read = response.FromString if response is not None else bytes
        return self._channel.unary_unary(
            f"/{package}.{method}", request_serializer=request.SerializeToString, response_deserializer=read
        )

    async def close(self) -> None:
        await self._channel.close()

    async def publish(self, topic: str, messages: Sequence[Any], timeout: float) -> None:
        """Publish at most 1,000 `PubsubMessage`s and 10 MB. It returns when they are durable."""
        request = types.PublishRequest.pb()(topic=topic, messages=messages)
        await _call(self._publish, request, ("topic", topic), timeout)

    async def pull(self, subscription: str, most: int, wait: float) -> Sequence[Any]:
        """`ReceivedMessage`s; none if none came within about `wait` seconds. Do not cancel it: messages that the server
        hands to a cancelled call stay leased to nobody for a while.
        """
        request = types.PullRequest.pb()(subscription=subscription, max_messages=most)
        try:
            response = await _call(self._pull, request, ("subscription", subscription), wait + PULL_MARGIN)
        except _DeadlineError:
            return ()
        received: Sequence[Any] = response.received_messages
        return received

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str], timeout: float) -> None:
        request = types.AcknowledgeRequest.pb()(subscription=subscription, ack_ids=ack_ids)
        await _call(self._acknowledge, request, ("subscription", subscription), timeout)

    async def set_deadline(self, subscription: str, ack_ids: Sequence[str], seconds: int, timeout: float) -> None:
        """Let the leases end `seconds` from now; 0 gives the messages back."""
        request = types.ModifyAckDeadlineRequest.pb()(
            subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=seconds
        )
        await _call(self._modify, request, ("subscription", subscription), timeout)

    async def get_topic(self, topic: str) -> Any:
        return await _call(self._get_topic, types.GetTopicRequest.pb()(topic=topic), ("topic", topic), TIMEOUT)

    async def create_topic(self, topic: Any) -> Any:
        return await _call(self._create_topic, topic, ("name", topic.name), TIMEOUT)

    async def update_topic(self, topic: Any, fields: Sequence[str]) -> Any:
        request = types.UpdateTopicRequest.pb()(topic=topic)
        request.update_mask.paths.extend(fields)
        return await _call(self._update_topic, request, ("topic.name", topic.name), TIMEOUT)

    async def get_subscription(self, subscription: str, timeout: float = TIMEOUT) -> Any:
        request = types.GetSubscriptionRequest.pb()(subscription=subscription)
        return await _call(self._get_subscription, request, ("subscription", subscription), timeout)

    async def create_subscription(self, subscription: Any) -> Any:
        return await _call(self._create_subscription, subscription, ("name", subscription.name), TIMEOUT)

    async def update_subscription(self, subscription: Any, fields: Sequence[str]) -> Any:
        request = types.UpdateSubscriptionRequest.pb()(subscription=subscription)
        request.update_mask.paths.extend(fields)
        return await _call(self._update_subscription, request, ("subscription.name", subscription.name), TIMEOUT)

    async def may(self, resource: str, permission: str) -> bool:
        """Whether this account has a permission. Asking needs no permission."""
        request = iam_policy_pb2.TestIamPermissionsRequest(resource=resource, permissions=[permission])
        response = await _call(self._permissions, request, ("resource", resource), TIMEOUT)
        return permission in response.permissions


async def patiently(call: Callable[[float], Awaitable[_T]], patience: float = RETRY_FOR) -> _T:
    """Repeat a call for `patience` seconds while its errors may pass. The call gets the seconds of each try."""
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    return await insist(
        lambda: call(min(TIMEOUT, max(until - loop.time(), 0.1))),
        TransientError,
        lambda: loop.time() < until,
        Backoff(),
        never=(SetupError, BrokerRejectedError, StoodStillError),
    )


class NotFoundError(SetupError):
    """The topic or subscription does not exist."""


class ExistsError(SetupError):
    """The topic or subscription exists already."""


class DeniedError(SetupError):
    """The account lacks a permission."""


class _DeadlineError(TransientError):
    """Pub/Sub did not answer in time."""


_TOPIC: Final = types.Topic.pb()
_SUBSCRIPTION: Final = types.Subscription.pb()
_DENIED: Final = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}
_INVALID: Final = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE}


async def _call(stub: Any, request: Any, route: tuple[str, str], timeout: float) -> Any:
    metadata = (("x-goog-request-params", f"{route[0]}={quote(route[1], safe='/')}"),)
    try:
        return await stub(request, timeout=timeout, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        raise _ours(error, route[1]) from error
    except google.auth.exceptions.GoogleAuthError as error:
        raise SetupError(f"no valid credentials for Pub/Sub: {error}") from error
    except grpc.aio.UsageError as error:
        raise TransientError(f"the channel to Pub/Sub is closed: {error}") from error


def _ours(error: grpc.aio.AioRpcError, resource: str) -> TransientError:
    """Our error for it. Each is transient: the call may have taken effect, or may work later."""
    code = error.code()
    said = f"Pub/Sub answered {code.name} for {resource}: {error.details()}"
    if code == grpc.StatusCode.NOT_FOUND:
        return NotFoundError(f"{said}; to create what is missing, run: countersink provision")
    if code in _DENIED:
        roles = "Pub/Sub Publisher or Subscriber, or for countersink provision Pub/Sub Editor"
        return DeniedError(f"{said}; give this account the role that it lacks there: {roles}")
    if code == grpc.StatusCode.ALREADY_EXISTS:
        return ExistsError(said)
    if code == grpc.StatusCode.FAILED_PRECONDITION:
        return SetupError(f"{said}; to see what is wrong, run: countersink doctor")
    if code in _INVALID:
        return BrokerRejectedError(f"{said}; if the topic has a schema, remove the schema")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return TransientError(f"{said}; the answer is not Pub/Sub's: check the proxies on the way to Pub/Sub")
    return (_DeadlineError if code == grpc.StatusCode.DEADLINE_EXCEEDED else TransientError)(said)


def _channel(emulator: str | None) -> Any:
    if emulator:
        return grpc.aio.insecure_channel(emulator, options=_OPTIONS)
    try:
        return PublisherGrpcAsyncIOTransport.create_channel(HOST, options=[*_OPTIONS, _KEEPALIVE])
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise SettingsError(
            f"no credentials for Pub/Sub: set GOOGLE_APPLICATION_CREDENTIALS, or PUBSUB_EMULATOR_HOST ({error})"
        ) from error
