"""Names lead somewhere: a limit is one constant, and CONTRIBUTING names what is in the files that it links."""

import re
from collections import Counter
from typing import Final

from tests.meta.checkout import ROOT, product, tracked

LIMIT: Final = re.compile(r"^(M(?:OST|AX)_\w+)\b.* = ", re.MULTILINE)
NAME: Final = re.compile(r"`([A-Za-z]*[a-z][A-Z]\w*|(?!COUNTERSINK_)\w*[A-Za-z]_\w+|_\w+|[A-Z]{3,})(?:\(\))?`")
LINK: Final = re.compile(r"\]\(([^)#\s]+)\)")


def test_a_limit_has_one_name_and_one_place() -> None:
    server = [path for path in product() if path.suffix == ".py" and ROOT / "countersink" not in path.parents]
    found = Counter(name for path in server for name in LIMIT.findall(path.read_text()))
    assert [name for name, places in found.items() if places > 1] == []
    assert len(found) > 100


def test_contributing_names_what_is_in_the_files_that_it_links() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for entry in re.split(r"\n(?=- \*\*|\n|\d\. )", text):
        linked = tuple(str(ROOT / link) for link in LINK.findall(entry))
        files = [path for path in tracked() if str(path).startswith(linked)] if linked else []
        words = {word for path in files for word in re.findall(r"\w+", path.read_text(errors="ignore"))}
        assert not linked or not {*NAME.findall(entry)} - words, entry
