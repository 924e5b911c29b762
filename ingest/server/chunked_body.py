"""Owns how the chunks of a body reach aiohttp's parser, which alone can tell where the body ends."""

from collections.abc import Iterator
from typing import Final

from aiohttp import StreamReader
from aiohttp.http_exceptions import BadHttpMessage

PIECE: Final = 4_096
"""Bytes that the parser gets at once."""
MOST_FRAMING: Final = 4_096
"""Bytes for the sizes of the chunks, besides half as many as the body has."""


class ChunkedBody:
    """Refuses a body in tiny chunks. Each chunk costs some microseconds and some tens of bytes, however small it is."""

    def __init__(self, body: StreamReader) -> None:
        self.body = body
        self._sent = 0
        """Its bytes so far, with the sizes of its chunks."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What the parser is to get of the data, piece by piece. What follows the body is dropped."""
        for begin in range(0, len(data), PIECE):
            if self.body.is_eof():
                return
            piece = data[begin : begin + PIECE]
            yield piece
            self._sent += len(piece)
            if self._sent - self.body.total_bytes > MOST_FRAMING + self.body.total_bytes // 2:
                self.body.set_exception(BadHttpMessage("the body comes in too many tiny chunks"))
                self.body.feed_eof()
