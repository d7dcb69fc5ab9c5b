"""JSON over HTTP with what a paid, shared or hostile server needs: retries, limits, budgets, silence.

Keys come from the environment when a request is sent, and are kept nowhere.  Neither a key nor a
prompt enters an exception or a log: of an error answer only the status and a machine-readable code
are shown, because servers repeat prompts and parts of keys in their sentences.
"""

from __future__ import annotations

import http.client
import ipaddress
import logging
import os
import random
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from accredit.errors import BackendError, BudgetExceeded, ParamError
from accredit.typing import Json

__all__ = ["KEYS", "Client", "Limits", "Refused", "Spent"]

KEYS = ("ACCREDIT_API_KEY", "OPENAI_API_KEY")  # the first that is set is sent

_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0  # seconds
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LENGTH = re.compile(rb"context[ _](?:length|size)|max_model_len", re.IGNORECASE)
_PIECE = 1 << 16
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server may be asked, and how long it may take.

    Args:
        requests: budget of requests, attempts counted; None: no budget.
        tokens: budget of prompt tokens sent; None: no budget.
        concurrency: requests under way at a time.
        timeout: seconds for one whole answer.
        retries: attempts after the first, for 408, 429, 5xx, broken answers and lost connections.
        body: bytes of the largest answer that is read.
    """

    requests: int | None = None
    tokens: int | None = None
    concurrency: int = 4
    timeout: float = 60.0
    retries: int = 4
    body: int = 1 << 28

    def __post_init__(self) -> None:
        least = {"concurrency": 1, "retries": 0, "body": 1, "requests": 0, "tokens": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < low):
                raise ParamError(f"{name} must be a whole number of at least {low}, got {value!r}")
        if not 0 < self.timeout < float("inf"):
            raise ParamError(f"timeout must be a positive number of seconds, got {self.timeout!r}")


@dataclass(slots=True)
class Spent:
    """What was asked so far.

    Args:
        requests: attempts.
        tokens: prompt tokens sent, those of repeated attempts included.
        retries: attempts after the first.
    """

    requests: int = 0
    tokens: int = 0
    retries: int = 0


class Refused(BackendError):
    """The server said no in a way that repeating does not change.

    Args:
        message: what happened.
        status: of the answer.
        hint: what the reader can do.
    """

    def __init__(self, message: str, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class _Passing(Exception):
    """A failure that may go away: why, and how long the server asks to wait (seconds)."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.why = why
        self.wait = wait


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another server."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Refuse."""


class Client:
    """One server.

    Args:
        url: ``http://`` or ``https://``, without user and password.
        limits: see `Limits`.
        sleep: waits that many seconds.

    Raises:
        ParamError: for a URL of another kind.

    Example:
        >>> Client("http://localhost:8000/v1/").root
        'http://localhost:8000'
    """

    def __init__(
        self, url: str, limits: Limits | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.root, host = _root(url)
        self.limits = limits or Limits()
        self.spent = Spent()
        self._sleep = sleep
        self._lock = threading.Lock()
        self._chance = random.Random(0)
        # A proxy of the environment is no way to this machine itself.
        proxies = [urllib.request.ProxyHandler({})] if _is_here(host) else []
        self._opener = urllib.request.build_opener(_NoRedirects, *proxies)

    def __repr__(self) -> str:
        return f"Client({self.root!r})"

    def get(self, path: str) -> Json:
        """Return the JSON at a path.

        Raises:
            BackendError: if there is none.
            BudgetExceeded: if the budget of requests is spent.
        """
        return self._tried(path, None, 0)

    def post(self, path: str, body: Mapping[str, Any], tokens: int = 0) -> Json:
        """Return the JSON that answers ``body``.

        Args:
            path: under the server's root.
            body: JSON-ready.
            tokens: prompt tokens in it, for the budget.

        Raises:
            BackendError: if there is none; `Refused` where repeating would not help.
            BudgetExceeded: if a budget is spent; nothing is sent then.
        """
        return self._tried(path, msgspec.json.encode(body), tokens)

    def _tried(self, path: str, body: bytes | None, tokens: int) -> Json:
        why = ""
        for attempt in range(self.limits.retries + 1):
            self._charge(tokens, again=attempt > 0)
            try:
                return self._once(path, body)
            except _Passing as failure:
                why, asked = failure.why, failure.wait
            if attempt < self.limits.retries:
                wait = self._wait(attempt, asked)
                _log.info("%s: %s; again in %.1f s", path, why, wait)
                self._sleep(wait)
        times = f" ({self.limits.retries + 1} attempts)" if self.limits.retries else ""
        raise BackendError(f"{self.root}{path}: {why}{times}", hint="Is the server running and well?")

    def _charge(self, tokens: int, *, again: bool) -> None:
        with self._lock:
            for name, more in (("requests", 1), ("tokens", tokens)):
                most, spent = getattr(self.limits, name), getattr(self.spent, name)
                if most is not None and spent + more > most:
                    raise BudgetExceeded(
                        f"the budget of {most} {name} is spent: {spent} used, {more} more needed",
                        hint=f"Raise the budget of {name}, or score fewer rollouts",
                    )
            self.spent.requests += 1
            self.spent.tokens += tokens
            self.spent.retries += again

    def _wait(self, attempt: int, asked: float) -> float:
        with self._lock:
            spread = 0.5 + self._chance.random()  # clients that failed together return apart
        return min(_LONGEST_WAIT, max(asked, _FIRST_WAIT * 2.0**attempt * spread))

    def _once(self, path: str, body: bytes | None) -> Json:
        headers = {"Content-Type": "application/json", "Accept": "application/json", **_authorization()}
        request = urllib.request.Request(self.root + path, body, headers)
        end = time.monotonic() + self.limits.timeout
        try:
            with self._opener.open(request, timeout=self.limits.timeout) as answer:
                return _json(_read(answer, self.limits.body, end))
        except urllib.error.HTTPError as error:
            status, asked, code = error.code, error.headers.get("Retry-After"), _reason(error)
        except TimeoutError:
            raise _Passing(f"no whole answer within {self.limits.timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            raise _Passing(f"no answer ({type(cause).__name__})") from None
        if status in _AGAIN:
            raise _Passing(f"HTTP {status}{code}", _seconds(asked))
        raise Refused(f"{self.root}{path} refuses: HTTP {status}{code}", status, _hint(status, code))


def _root(url: str) -> tuple[str, str]:
    """Return the server's root without ``/v1``, and its host."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port  # reading the port checks it
    except ValueError:
        raise ParamError(
            "the endpoint's URL cannot be read", hint="For example http://localhost:8000/v1"
        ) from None
    if parts.scheme not in ("http", "https") or not host:
        raise ParamError("an endpoint's URL begins with http:// or https://, then a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ParamError(
            "an endpoint's URL holds no user, password or query", hint=f"Put the key into {KEYS[0]}"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}", host


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _authorization() -> dict[str, str]:
    for name in KEYS:
        key = os.environ.get(name, "").strip()
        if key and not (key.isascii() and key.isprintable()):
            raise ParamError(f"{name} holds characters that no key has")
        if key:
            return {"Authorization": f"Bearer {key}"}
    return {}


def _read(answer: Any, most: int, end: float) -> bytes:
    """Return the whole body; a slow drip does not outlast ``end``."""
    promised = answer.headers.get("Content-Length", "")
    length = int(promised) if promised.isdecimal() else None
    pieces, size = [], 0
    while (length or 0) <= most and (piece := answer.read1(_PIECE)):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            break
        if time.monotonic() > end:
            raise TimeoutError
    if max(size, length or 0) > most:
        raise BackendError(
            f"the answer is larger than {most} bytes and was not read", hint="Raise the limit `body`"
        )
    if length is not None and size < length:
        raise _Passing(f"the answer ends after {size} of {length} bytes")
    return b"".join(pieces)


def _json(data: bytes) -> Json:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        cause = (
            "NaN or Infinity in it"
            if re.search(rb"[:\[,]\s*-?(?:NaN|Infinity)", data)
            else "cut off or broken"
        )
        raise _Passing(f"the answer is not JSON ({cause})") from None


def _reason(error: urllib.error.HTTPError) -> str:
    """Return what the answer says in machine-readable words, never its sentences."""
    try:
        data = error.read(_PIECE)
        found = msgspec.json.decode(data)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, http.client.HTTPException):
        return ""
    inner = found.get("error", found) if isinstance(found, dict) else {}
    words = [inner.get(name) for name in ("type", "code")] if isinstance(inner, dict) else []
    said = [w for w in words if isinstance(w, str) and _CODE.fullmatch(w) and not _is_secret(w)]
    if _LENGTH.search(data):
        said.append("context_length")
    return f" ({', '.join(dict.fromkeys(said))})" if said else ""


def _is_secret(word: str) -> bool:
    keys = [os.environ.get(name, "").strip() for name in KEYS]
    return any(key and (key in word or word in key) for key in keys)


def _hint(status: int, code: str) -> str:
    if "context" in code:
        return "The prompt is longer than the server's context; it is never cut: leave such rollouts out"
    if 300 <= status < 400:
        return "It redirects; give the URL where it ends, since a key is never carried on"
    if status in (401, 403):
        return f"Put the key into {' or '.join(KEYS)}"
    return "See the server's own log for its reason" if status != 404 else ""


def _seconds(text: str | None) -> float:
    """Return the wait that ``Retry-After`` asks for; dates count as no wish."""
    return float(text) if text and re.fullmatch(r"\d{1,6}", text) else 0.0
