"""Makes the name of a counter from the name and the tags of a StatsD line. Pure."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_TAG: Final = "tag."


class NameTemplate(NamedTuple):
    """A text with places for the name and for tags."""

    texts: tuple[str, ...]
    """What stands before, between and behind the places."""
    tags: tuple[str | None, ...]
    """The tag whose value comes at each place; None for the name."""

    def is_plain(self) -> bool:
        """Whether it is the name alone."""
        return self == PLAIN

    def name_of(self, name: str, tags: Mapping[str, str]) -> str:
        """The counter's name. A tag that a line lacks is empty."""
        values = [name if tag is None else tags.get(tag, "") for tag in self.tags]
        return "".join([self.texts[0], *(part for pair in zip(values, self.texts[1:], strict=True) for part in pair)])


PLAIN: Final = NameTemplate(("", ""), (None,))


def template_text(text: str) -> str:
    """The text of a template, if it is a valid one."""
    name_template(text)
    return text


def name_template(text: str) -> NameTemplate:
    """Read a template such as {name}:{tag.host}."""
    parts = _FIELD.split(text)
    texts, fields = parts[::2], parts[1::2]
    if not fields or "{" in "".join(texts) or "}" in "".join(texts):
        raise ValueError("must be a text with {name} or {tag.TAG} in it")
    for field in fields:
        if field != "name" and not (field.startswith(_TAG) and len(field) > len(_TAG)):
            raise ValueError(f"{{{field}}} is neither {{name}} nor {{tag.TAG}}")
    return NameTemplate(tuple(texts), tuple(None if one == "name" else one.removeprefix(_TAG) for one in fields))
