"""Who may ask: only pages of this very server, under a name that no stranger's DNS can give it.

A page elsewhere may make the browser send requests here. What it cannot do is send our own origin, or a Host that is an
address of its choice without being that address: a name that is made to point here (DNS rebinding) is refused.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from email.message import Message
from typing import NamedTuple
from urllib.parse import urlsplit

from smallvit.errors import UsageError


class Refusal(NamedTuple):
    status: int
    sentence: str


def is_loopback(host: str) -> bool:
    """Whether only this computer can reach it."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def check_host(host: str) -> None:
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        raise UsageError(
            f"--host {host}: no address of this computer; 127.0.0.1 is for it alone, 0.0.0.0 for its network"
        ) from None


def refuse_host(headers: Message, bound: str) -> Refusal | None:
    """The name under which the server was asked for: an address, localhost, or what this computer is called."""
    given = headers.get_all("Host") or []
    name = _host_name(given[0]) if len(given) == 1 else None
    if name is None:
        return Refusal(400, "The request does not say which server it is meant for.")
    if is_loopback(name):
        return None
    if not is_loopback(bound) and (_address(name) is not None or name in {bound.lower(), *_own_names()}):
        return None
    return Refusal(403, "This server does not answer under that name. Open the address that smallvit app has printed.")


def refuse_origin(headers: Message) -> Refusal | None:
    """Where a request comes from that makes the model work: the page that this server gave, and nothing else."""
    sites = headers.get_all("Sec-Fetch-Site") or ["same-origin"]
    if headers.get_all("Origin") == [f"http://{headers.get('Host')}"] and sites == ["same-origin"]:
        return None
    return Refusal(403, "Only the page of this server may send images to it.")


def refuse_body(headers: Message, most_bytes: int) -> Refusal | None:
    """Its kind and its size, before any of it is read."""
    if headers.get_content_type() != "application/octet-stream":
        return Refusal(415, "Send the bytes of one image, as application/octet-stream.")
    length = headers.get("Content-Length", "")
    if "Transfer-Encoding" in headers or not (length.isascii() and length.isdigit()):
        return Refusal(411, "The request does not say how large the image is.")
    if announced(length, most_bytes + 1) > most_bytes:
        return Refusal(413, too_large(most_bytes))
    return None


def announced(length: str, most: int) -> int:
    """The bytes that a request says it has, or `most` where it says more; Python makes no number of thousands of digits."""
    if not (length.isascii() and length.isdigit()):
        return 0
    digits = length.lstrip("0")
    return most if len(digits) > len(str(most)) else min(int(digits or 0), most)


def too_large(most_bytes: int) -> str:
    return f"The file is larger than {most_bytes / 2**20:.4g} MB."


def security_headers(policy: str) -> Mapping[str, str]:
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
        "Cache-Control": "no-store",
    }


def _host_name(given: str) -> str | None:
    try:
        parts = urlsplit(f"//{given}")
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    return parts.hostname if parts.netloc == given and "@" not in given else None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _own_names() -> set[str]:
    name = socket.gethostname().lower()
    return {name, name.partition(".")[0]}
