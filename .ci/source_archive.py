"""The sdist: the same sources give the same bytes, and it is unpacked where wheels are made of it."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path


def normalize(sdist: Path, date: int) -> None:
    """Write it again in the order of names, with one time, and without the user who made it."""
    with tarfile.open(sdist) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        contents = [archive.extractfile(member) for member in members]
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as normal:
            for member, content in zip(members, contents, strict=True):
                normal.addfile(_normal(member, date), content)
    with sdist.open("wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=date) as zipped:
        zipped.write(packed.getvalue())


def _normal(member: tarfile.TarInfo, date: int) -> tarfile.TarInfo:
    member.mtime, member.uid, member.gid, member.uname, member.gname = date, 0, 0, "", ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    member.pax_headers = {}  # the time again, with fractions
    return member


def unpack(sdist: Path, folder: Path) -> Path:
    """Returns the only folder in it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top
