"""Unpacks the tests of a package from its source distribution: python suite_of_sdist.py SUITE.TOML TARGET

Only what `keep` names is unpacked, so that the tests run against the installed package and not against a copy beside them.
"""

import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path


def main(description: Path, target: Path) -> None:
    suite = tomllib.loads(description.read_text())
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    package = suite["package"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wanted = f"{package}=={suite['version']}"
    subprocess.run([*pip, "download", "--no-deps", "--no-binary", package, "--dest", target, wanted], check=True)
    (archive,) = target.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        for member in members.getmembers():
            inner = Path(*Path(member.name).parts[1:])
            if inner.parts and inner.parts[0] in suite["keep"]:
                member.name = str(inner)
                members.extract(member, target, filter="data")
    archive.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
