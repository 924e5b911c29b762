"""How long and how often everything is measured."""

from dataclasses import dataclass
from pathlib import Path

from bench.emulators import Emulators
from bench.rivals import Rivals


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one run."""

    folder: Path
    """For data and bodies, ours alone."""
    data: Path
    """The folder that it is in, where servers that run as another user may have folders of their own."""
    bodies: dict[str, Path]
    rounds: int
    """Of rows with a target; three do for the others."""
    cloud_rounds: int
    """Of rows on emulators, which take longer."""
    seconds: float
    """Of one load in one round."""
    sustained: float
    """Seconds of the memory row."""
    names: int
    """Of each simulated key space."""
    counters: int
    """That a job visits."""
    emulators: Emulators
    rivals: Rivals
    """The original algorithm on them."""
