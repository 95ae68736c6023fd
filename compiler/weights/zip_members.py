"""Members of zip archives that are stored as they are, so that they can be mapped."""

from __future__ import annotations

import zipfile
from pathlib import Path

_LOCAL_HEADER = b"PK\x03\x04"


def data_offset(path: Path, member: zipfile.ZipInfo) -> int:
    """Returns where the data of a member begins in the file. Raises ValueError if its local header is damaged."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        local = file.read(30)
    if len(local) < 30 or not local.startswith(_LOCAL_HEADER):
        raise ValueError(f"the member `{member.filename}` has no header")
    # The local header may be longer than the entry in the archive's directory indicates.
    lengths = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    return member.header_offset + 30 + lengths
