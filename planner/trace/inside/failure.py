"""Why a trace cannot be made: a phrase's key and its values, so that the user reads it in their language."""

from __future__ import annotations

from typing import Any


class CannotTrace(Exception):
    """Something that the worker cannot trace: which field of the request, and why (`trace.worker.<key>`)."""

    def __init__(self, field: str, key: str, **values: Any):
        super().__init__(f"{field}: {key} {values}")
        self.field, self.key = field, key
        self.values = {name: str(value)[:300] for name, value in values.items()}
