"""Python imports this at its start: it applies the mutation that TEST_MUTATION names, to every process of a test."""

import os
import sys
import traceback

if name := os.environ.get("TEST_MUTATION"):
    try:
        from tests.mutations.mutation import apply
        from tests.mutations.table import by_name

        apply(by_name()[name])
    except BaseException:  # else Python would go on without it, and the tests would seem to miss it
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)
