"""Where Headroom finds its own files, and where it may keep the user's.

In the repository templates/ and assets/ stand beside planner/; in a wheel they are inside it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _beside(name: str) -> Path:
    packaged = _HERE / f"_{name}"
    return packaged if packaged.is_dir() else _HERE.parent / name


def templates() -> Path:
    """The folder of Jinja templates: report/ and export/."""
    return _beside("templates")


def assets() -> Path:
    """The folder of style sheets, logo, icons and fonts."""
    return _beside("assets")


def data() -> Path:
    """The folder of shipped facts: hardware, models, prices, coefficients, evidence."""
    return _HERE / "data"


def user_data() -> Path:
    """The folder for what the user keeps (scenarios, calibrations, jobs). Whoever writes there makes it first.

    HEADROOM_HOME when it is set, else the place that the operating system has for such things.
    """
    if home := os.environ.get("HEADROOM_HOME"):
        try:
            return Path(home).expanduser().resolve()
        except RuntimeError:  # "~somebody", who has no account here: a folder of that name, as a shell has it
            return Path(home).resolve()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "Headroom"
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/Headroom"
    stated = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (stated if stated.is_absolute() else Path.home() / ".local/share") / "headroom"
