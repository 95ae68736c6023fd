"""Bodies of requests: their JSON, their fields, and the errors that answer them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""A surrogate in JSON. Two of them may be the halves of one character."""


class RequestError(Exception):
    """A request that is answered with an error, and the HTTP status of the answer."""

    def __init__(self, status: int, message: str, *, code: str = "invalid_request_error", param: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {"message": message, "type": _kind(status), "param": param or None, "code": code},
        }


def _kind(status: int) -> str:
    return "invalid_request_error" if status < 500 and status != 429 else "server_error"


def parse_json(content: bytes | bytearray) -> Any:
    """Returns the content of a body. Raises RequestError if it is not JSON, or has halves of surrogate pairs in texts,
    which neither a tokenizer nor an answer can contain."""
    try:
        text = content.decode()
        found = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RequestError(400, "the body has texts that are not Unicode") from None
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON") from None
    return found


def integer(body: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value < high:
        raise RequestError(400, f"`{name}` is not an integer from {low} to {high - 1}", param=name)
    return value


def number(body: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not low <= value <= high:
        raise RequestError(400, f"`{name}` is not a number from {low:g} to {high:g}", param=name)
    return float(value)


def flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value not in (None, False, True):
        raise RequestError(400, f"`{name}` is not true or false", param=name)
    return bool(value)
