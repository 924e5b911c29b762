"""One HTTP answer, read whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from multidict import CIMultiDict


@dataclass(frozen=True)
class Answer:
    """Status, headers and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def field(self) -> str | None:
        """What a problem document says is wrong."""
        value: str | None = self.json.get("field")
        return value


def parse(data: bytes) -> Answer:
    """From the bytes of a connection that the server has closed; interim answers are left out."""
    while True:
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        if status != 100:
            break
        data = body
    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines[1:]:
        name, _, value = line.partition(": ")
        headers.add(name, value)
    return Answer(status, headers, body)
