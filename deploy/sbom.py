"""Writes `sbom.json`, the packages from which the image is made, in the format of CycloneDX: `make sbom`."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
FILE: Final = Path(__file__).with_name("sbom.json")
LOCKS: Final = [f"requirements/{name}.txt" for name in ("server", "google", "redis", "otel")]
_PINNED: Final = re.compile(r"^([\w.-]+==[\w.+!-]+)", re.MULTILINE)


def pinned() -> list[str]:
    """Each package with its version, as pip writes it."""
    return sorted({one for lock in LOCKS for one in _PINNED.findall((ROOT / lock).read_text())})


def made() -> dict[str, Any]:
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "-", "--output-reproducible", "--of", "JSON"]
    project = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
    told = "\n".join(pinned())
    done = subprocess.run([*command, *project], input=told, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    del found["metadata"]["tools"]
    for component in found["components"]:
        component |= {"bom-ref": component["purl"]}
        del component["externalReferences"], component["description"]  # an index's address, and a number of a line
    root = found["metadata"]["component"]["bom-ref"]
    found["dependencies"] = [{"ref": root, "dependsOn": [one["bom-ref"] for one in found["components"]]}]
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(made(), indent=2) + "\n")
