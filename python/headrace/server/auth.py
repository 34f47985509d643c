"""Who may call what. Keys are compared in constant time and are never part of a message."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping

from headrace.server.config import ServerConfig
from headrace.server.errors import ApiError


class _Keys:
    def __init__(self, keys: Iterable[str]) -> None:
        # Digests: of equal length, so that the time tells nothing of the keys' lengths either.
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def has(self, key: str) -> bool:
        digest = _digest(key)
        found = False
        for known in self._digests:  # all of them, whichever fits
            found |= hmac.compare_digest(known, digest)
        return found


class KeyGuard:
    """Checks the keys that requests bring in Authorization or x-api-key."""

    def __init__(self, config: ServerConfig) -> None:
        self._users = _Keys((*config.api_keys, *config.admin_keys) if config.api_keys else ())
        self._admins = _Keys(config.admin_keys)

    def check_user(self, headers: Mapping[str, str]) -> None:
        """Raises ApiError (401) if a key is asked for and this isn't one."""
        if self._users:
            self._check(self._users, headers)

    def check_admin(self, headers: Mapping[str, str]) -> None:
        """Raises ApiError: 403 if this server has no admin key, 401 if this isn't it."""
        if not self._admins:
            raise ApiError(
                "this server loads and unloads nothing: start it with --admin-key to allow it",
                403,
                code="no_admin_key",
            )
        self._check(self._admins, headers)

    @staticmethod
    def _check(keys: _Keys, headers: Mapping[str, str]) -> None:
        given = _given_key(headers)
        if given is None:
            raise ApiError(
                "no API key: send it as 'Authorization: Bearer KEY'", 401, code="missing_api_key"
            )
        if not keys.has(given):
            raise ApiError("the API key is not right", 401, code="invalid_api_key")


def _given_key(headers: Mapping[str, str]) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("x-api-key") or None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
