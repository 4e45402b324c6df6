"""One file from the Hugging Face hub: the config.json of a model, as text. Nothing is run, nothing is kept.

Works without any account; HF_TOKEN is sent when it is set, HF_HUB_OFFLINE=1 forbids the look-up.
"""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from planner.errors import BadInput, MissingDependency, PlannerError, Problem, UnknownPreset
from planner.i18n import Phrase, Said, phrase
from planner.spec.huggingface import MAX_BYTES

HOST = "huggingface.co"
TIMEOUT = 10.0  # s, for each wait and for the whole answer

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_TOKEN = re.compile(r"[\x21-\x7e]+")
_PASTE = Phrase("near.config")


def looks_like_id(name: str) -> bool:
    """Whether `name` has the form organisation/model."""
    return bool(_ID.fullmatch(name)) and ".." not in name


def address(id: str) -> str:
    """Where the config.json of a model is."""
    return f"https://{HOST}/{id}/resolve/main/config.json"


def huggingface_config(id: str, field: str = "model") -> bytes:
    """The config.json of organisation/model; raises a PlannerError in plain words when it cannot be had."""
    if not looks_like_id(id):
        raise BadInput(Problem(field, phrase("problem.hub.no-id", id=repr(id[:100])), "meta-llama/Meta-Llama-3-8B"))
    if os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in ("1", "true", "yes", "on"):
        raise _offline(id, field, Phrase("problem.hub.forbidden"))
    try:
        with _opener().open(_request(id), timeout=TIMEOUT) as answer:
            return _read(answer.read1, id, field)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error, id, field) from None
    except (OSError, http.client.HTTPException):
        raise _offline(id, field, phrase("problem.hub.unreached", host=HOST)) from None


def _request(id: str) -> urllib.request.Request:
    """The question, with the user's token when there is one."""
    agent = {"User-Agent": "headroom-planner"}
    request = urllib.request.Request(address(id), headers=agent)  # noqa: S310, the scheme is a constant: https
    token = os.environ.get("HF_TOKEN", "").strip()
    if _TOKEN.fullmatch(token):
        request.add_header("Authorization", f"Bearer {token}")
    return request


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to Hugging Face's own hosts only, and takes the token along only to the first."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        to = urlsplit(newurl)
        host = to.hostname or ""
        if to.scheme != "https" or not (host in (HOST, "hf.co") or host.endswith((f".{HOST}", ".hf.co"))):
            raise urllib.error.HTTPError(newurl, code, "a redirect to another site", headers, fp)
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following and host != HOST:
            following.remove_header("Authorization")
        return following


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Redirects)


def _read(piece: Callable[[int], bytes], id: str, field: str) -> bytes:
    """The answer, as long as it is small and comes in time."""
    text, until = b"", time.monotonic() + TIMEOUT
    while more := piece(65_536):
        text += more
        if len(text) > MAX_BYTES:
            raise BadInput(Problem(field, phrase("problem.hub.large", id=id, most=MAX_BYTES), _PASTE))
        if time.monotonic() > until:
            raise TimeoutError
    return text


def _refused(error: urllib.error.HTTPError, id: str, field: str) -> PlannerError:
    """What an HTTP status means for the user. For a model that does not exist the hub says 401 as well."""
    absent = error.code == 404 or error.headers.get("X-Error-Code") == "RepoNotFound"
    if absent:
        return UnknownPreset(Problem(field, phrase("problem.hub.absent", id=id), Phrase("near.id")))
    if error.code in (401, 403):
        problem = phrase("problem.hub.gated", id=id)
        return BadInput(Problem(field, problem, _PASTE))
    return BadInput(Problem(field, phrase("problem.hub.answered", code=error.code, id=id), _PASTE))


def _offline(id: str, field: str, because: Said) -> MissingDependency:
    problem = phrase("problem.hub.offline", id=id, because=because)
    return MissingDependency(Problem(field, problem, _PASTE))
