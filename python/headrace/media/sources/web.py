"""`http://` and `https://` addresses: to listed hosts, and to public addresses alone.

The address that was checked is the one that is connected to, so a name that changes what it
resolves to between the two gains nothing. Redirects are checked like the first address. Proxies of
the environment are not used: a proxy would choose the address.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from headrace.errors import MediaError
from headrace.quoting import quoted

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_LONGEST_URL = 8192
_CHUNK = 1 << 16
_HEADERS = {"User-Agent": "headrace", "Accept": "*/*", "Accept-Encoding": "identity"}
# Global unicast. Outside of it lie addresses that hold IPv4 ones (NAT64, SIIT, IPv4-compatible) and
# site-local ones, some of which `is_global` takes for public; 6to4 and Teredo lie inside.
_UNICAST = ipaddress.ip_network("2000::/3")
_WRAPPING = [ipaddress.ip_network(text) for text in ("2002::/16", "2001::/32")]


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """`allowed_media_domains`, read.

    names: hosts, each as a whole ("example.com" does not allow "cdn.example.com"); "*" allows all.
    networks: addresses that may be connected to though they are not public. Only an address or a
        network in the list does that ("10.0.0.5", "10.0.0.0/8"): a name never does, because
        whoever owns the name chooses what it resolves to.
    """

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def check_name(self, host: str) -> None:
        """Raises MediaError for a host that is not in the list."""
        if host in self.names or "*" in self.names:
            return
        address = _as_address(host)
        if address is not None and any(address in network for network in self.networks):
            return
        raise MediaError(f"the host {quoted(host)} is not in allowed_media_domains")

    def allows(self, address: Address) -> bool:
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        address = mapped or address
        if any(address in network for network in self.networks):
            return True
        if address.version == 6 and (
            address not in _UNICAST or any(address in network for network in _WRAPPING)
        ):
            return False
        return address.is_global and not address.is_multicast


def read_allowed_hosts(domains: Iterable[str] | None) -> AllowedHosts:
    """Raises TypeError and ValueError for what is no list of hosts, addresses and networks."""
    if domains is None:
        return AllowedHosts()
    if isinstance(domains, str) or not all(isinstance(item, str) for item in domains):
        raise TypeError(f"allowed_media_domains must be a list of str, got {quoted(domains)}")
    names: set[str] = set()
    networks: list[Network] = []
    for item in domains:
        entry = item.strip().lower().rstrip(".")
        try:
            networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            if not entry or any(mark in entry for mark in "/:@ ?#"):
                raise ValueError(
                    f"allowed_media_domains: {quoted(item)} is no host: write it without scheme, "
                    "port and path"
                ) from None
            names.add(entry)
    return AllowedHosts(frozenset(names), tuple(networks))


def fetch(url: str, allowed: AllowedHosts, max_bytes: int, seconds: float) -> bytes:
    """The body of an http(s) address. Blocks up to `seconds`. Raises MediaError; connects to no
    host that is not allowed."""
    deadline = time.monotonic() + seconds
    for _ in range(_MOST_REDIRECTS + 1):
        parts = _checked_url(url)
        allowed.check_name(_host(parts))
        answer = _get(parts, allowed, max_bytes, deadline)
        if isinstance(answer, bytes):
            return answer
        try:
            following = urljoin(url, answer)
            scheme = urlsplit(following).scheme
        except ValueError as error:
            raise MediaError(f"{quoted(url)} redirects to {quoted(answer)}: {error}") from None
        if parts.scheme == "https" and scheme != "https":
            raise MediaError(f"{quoted(url)} redirects from https to another scheme")
        url = following
    raise MediaError(f"more than {_MOST_REDIRECTS} redirects, the last to {quoted(url)}")


def _checked_url(url: str) -> SplitResult:
    if len(url) > _LONGEST_URL:
        raise MediaError(f"the address has {len(url)} characters, more than {_LONGEST_URL}")
    if not url.isascii() or any(c <= " " or c == "\x7f" or c == "\\" for c in url):
        raise MediaError(f"the address {quoted(url)} has characters that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise MediaError(f"the address {quoted(url)} is malformed: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise MediaError(f"the address {quoted(url)} must read http(s)://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise MediaError("an address with a user name or a password is refused")
    return parts


def _host(parts: SplitResult) -> str:
    return (parts.hostname or "").lower().rstrip(".")


def _get(parts: SplitResult, allowed: AllowedHosts, max_bytes: int, deadline: float) -> bytes | str:
    """The body, or where a redirect leads."""
    connection = _connected(parts, allowed, deadline)
    # A server that sends a byte now and then would outlast any timeout of single reads.
    timer = threading.Timer(max(deadline - time.monotonic(), 0), _cut, [connection.sock])
    timer.daemon = True
    timer.start()
    try:
        if isinstance(connection.sock, ssl.SSLSocket):
            _shake_hands(connection.sock, parts, deadline)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers=_HEADERS)
        with connection.getresponse() as response:
            if response.status in _REDIRECTS:
                location = response.getheader("Location")
                if not location:
                    raise MediaError("the server redirects to nowhere")
                return location
            if response.status != 200:
                raise MediaError(f"the server answered with status {response.status}")
            body = _body(response, max_bytes)
        if time.monotonic() > deadline:
            raise TimeoutError
        return body
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, MediaError):
            raise
        if isinstance(error, TimeoutError) or time.monotonic() > deadline:
            raise MediaError("the server took longer than fetch_seconds") from None
        raise MediaError(f"the server's answer can't be read: {quoted(str(error))}") from None
    finally:
        timer.cancel()
        connection.close()


def _body(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    if (response.getheader("Content-Encoding") or "identity").lower() != "identity":
        raise MediaError("the server compressed its answer, which wasn't asked for")
    if response.length is not None and response.length > max_bytes:
        raise MediaError(f"it has {response.length} bytes, more than {max_bytes}")
    expected = response.length
    body = bytearray()
    while chunk := response.read1(_CHUNK):
        body += chunk
        if len(body) > max_bytes:
            raise MediaError(f"it has more than {max_bytes} bytes")
    if expected is not None and len(body) != expected:
        raise MediaError(f"the server sent {len(body)} of {expected} bytes")
    return bytes(body)


def _connected(
    parts: SplitResult, allowed: AllowedHosts, deadline: float
) -> http.client.HTTPConnection:
    host = _host(parts)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    name = f"[{host}]" if ":" in host else host
    connection = http.client.HTTPConnection(name, port)
    if parts.scheme == "https":
        connection.default_port = 443  # what the Host header leaves out
    raw = None
    try:
        raw = _dial(_resolved(host, port, allowed, deadline), port, deadline)
        raw.settimeout(max(deadline - time.monotonic(), 0.001))
        if parts.scheme == "https":
            # Without the handshake, which _get() bounds as a whole.
            raw = ssl.create_default_context().wrap_socket(
                raw, server_hostname=host, do_handshake_on_connect=False
            )
    except (OSError, ValueError) as error:
        if raw is not None:
            raw.close()
        if isinstance(error, MediaError):
            raise
        raise MediaError(f"{quoted(host)} can't be reached: {quoted(str(error))}") from None
    connection.sock = raw
    return connection


def _shake_hands(connected: ssl.SSLSocket, parts: SplitResult, deadline: float) -> None:
    try:
        connected.do_handshake()
    except ssl.SSLError as error:
        if time.monotonic() > deadline:
            raise TimeoutError from None
        host = quoted(_host(parts))
        raise MediaError(f"{host} can't be reached: {quoted(str(error))}") from None


def _resolved(host: str, port: int, allowed: AllowedHosts, deadline: float) -> list[Address]:
    """What a host resolves to and may be connected to."""
    found: list[str] = []
    failure: list[Exception] = []

    def resolve() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend(str(item[4][0]).split("%")[0] for item in answers)
        except (OSError, UnicodeError) as error:
            failure.append(error)

    # The system's resolver knows no time limit: it is left to itself.
    thread = threading.Thread(target=resolve, name="headrace-resolve", daemon=True)
    thread.start()
    thread.join(max(deadline - time.monotonic(), 0))
    if thread.is_alive():
        raise MediaError(f"resolving the host {quoted(host)} took longer than fetch_seconds")
    if failure:
        raise MediaError(f"the host {quoted(host)} can't be resolved: {failure[0]}")
    addresses = [ipaddress.ip_address(address) for address in found]
    usable = [address for address in dict.fromkeys(addresses) if allowed.allows(address)]
    if not usable:
        raise MediaError(
            f"the host {quoted(host)} has no public address: to allow another one, put the address "
            "itself into allowed_media_domains"
        )
    return usable


def _dial(addresses: list[Address], port: int, deadline: float) -> socket.socket:
    failure: OSError = TimeoutError("timed out")
    for address in addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            return socket.create_connection((str(address), port), timeout=left)
        except OSError as error:
            failure = error
    raise failure


def _cut(connected: socket.socket) -> None:
    # Of the plain class: TLS's own would wait for the peer.
    try:
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        return


def _as_address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
