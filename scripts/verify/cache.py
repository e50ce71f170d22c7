"""Where compiled programs are kept between runs."""

import os
import tempfile
from pathlib import Path


def cache() -> Path:
    """Folder for what is compiled once and used again; private to the user. `SERRANO_VERIFY_CACHE` moves it."""
    default = Path(tempfile.gettempdir()) / f"serrano-verify-{os.getuid()}"
    folder = Path(os.environ.get("SERRANO_VERIFY_CACHE", default))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else; set SERRANO_VERIFY_CACHE")
    return folder
