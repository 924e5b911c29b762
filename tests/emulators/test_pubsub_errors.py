"""What the answers of Google Cloud that no emulator gives mean to us, from a server that gives nothing else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.iam.v1 import iam_policy_pb2

from shared.model.errors import BrokerRejectedError, SettingsError, TransientError
from shared.pubsub.client import PubsubClient, PubsubPlace, SetupError
from shared.pubsub.publisher import PubsubPublisher
from shared.pubsub.subscription import PubsubSubscription
from tests.contracts.broker import message
from tests.emulators.front import Front, front

PLACE = PubsubPlace("p", "t", "s")
PATIENCE = 0.2


class Nothing(Front):
    """It passes nothing on, and lets everybody publish."""

    async def pass_on(self, method: str, request: bytes, context: Any) -> bytes:
        allowed = iam_policy_pb2.TestIamPermissionsResponse(permissions=["pubsub.topics.publish"])
        return bytes(allowed.SerializeToString()) if method.endswith("/TestIamPermissions") else b""


@pytest.fixture
async def answers() -> AsyncIterator[Front]:
    async with front("nowhere", Nothing) as one:
        yield one


@pytest.fixture
async def client(answers: Front) -> AsyncIterator[PubsubClient]:
    client = PubsubClient(answers.address)
    async with asyncio.timeout(30):
        await client._channel.channel_ready()  # else a try on a busy machine may end before it is sent
    yield client
    await client.close()


SAID = "said the front|Deadline Exceeded"
"""Those are tried again as long as there is time, and the last try may be cut off."""


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("PERMISSION_DENIED", SetupError, "Publisher or Subscriber, or for countersink provision Pub/Sub Editor"),
        ("UNAUTHENTICATED", SetupError, "Publisher or Subscriber, or for countersink provision Pub/Sub Editor"),
        ("NOT_FOUND", SetupError, "countersink provision"),
        ("FAILED_PRECONDITION", SetupError, "countersink (provision|doctor)"),
        ("INVALID_ARGUMENT", BrokerRejectedError, "said the front; if the topic has a schema, remove the schema"),
        ("OUT_OF_RANGE", BrokerRejectedError, "said the front"),
        ("ALREADY_EXISTS", SetupError, "said the front"),
        ("DATA_LOSS", TransientError, SAID),
        ("UNIMPLEMENTED", TransientError, "check the proxies on the way|Deadline Exceeded"),
        ("UNAVAILABLE", TransientError, SAID),
        ("ABORTED", TransientError, SAID),
        ("INTERNAL", TransientError, SAID),
        ("UNKNOWN", TransientError, SAID),
        ("CANCELLED", TransientError, SAID),
        ("DEADLINE_EXCEEDED", TransientError, SAID),
        ("RESOURCE_EXHAUSTED", TransientError, SAID),
    ],
)
async def test_every_answer_is_an_error_of_ours(
    answers: Front, client: PubsubClient, code: str, error: type[Exception], says: str
) -> None:
    answers.codes["Publish"] = grpc.StatusCode[code]
    with pytest.raises(error, match=says) as caught:
        await PubsubPublisher(client, PLACE.topic, patience=PATIENCE).publish([message(1)])
    assert type(caught.value.__cause__) is grpc.aio.AioRpcError
    assert answers.routes == {"topic=projects/p/topics/t"}


async def test_a_pull_that_takes_too_long_is_empty_and_others_fail(answers: Front, client: PubsubClient) -> None:
    subscription = PubsubSubscription(client, PLACE, lease=10.0, linger=0.0)
    answers.codes["Pull"] = grpc.StatusCode.DEADLINE_EXCEEDED
    assert await subscription.pull(1, 1, 0.0) == ()
    answers.codes["Pull"] = grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(SetupError, match="give this account the role"):
        await subscription.pull(1, 1, 0.0)
    await subscription.close()


async def test_an_account_that_may_only_publish_is_ready(answers: Front, client: PubsubClient) -> None:
    answers.codes["GetTopic"] = grpc.StatusCode.PERMISSION_DENIED
    await PubsubPublisher(client, PLACE.topic).check()
    answers.codes["TestIamPermissions"] = grpc.StatusCode.UNAVAILABLE
    with pytest.raises(TransientError):
        await PubsubPublisher(client, PLACE.topic).check()


async def test_without_credentials_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "no/such/file.json")
    with pytest.raises(SettingsError, match="PUBSUB_EMULATOR_HOST"):
        PubsubClient()
