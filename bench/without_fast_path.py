"""`countersink`, but aiohttp gets every request: what the fast path is measured against.

`python -m bench.without_fast_path [--plain] up …`; `--plain`: answers are aiohttp's own, too.
"""

import sys
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

from aiohttp import web

from countersink_server.cli.main import main
from ingest.service import Ingest
from shared.http.answers import JSON


def _plain(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers=JSON)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    with ExitStack() as patched:
        patched.enter_context(patch("countersink_server.serve.run.Ingest", partial(Ingest, short=False)))
        if arguments[:1] == ["--plain"]:
            patched.enter_context(patch("ingest.http.router.Answer", _plain))
            arguments = arguments[1:]
        main(arguments)
