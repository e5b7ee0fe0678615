"""What a Redis URL says: where the servers are and how to get in. Parsing only, nothing connects here.

Secrets live in `Login`, whose repr hides them; every message made here is free of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, unquote

Topology = Literal["standalone", "sentinel", "cluster"]

_SCHEMES: dict[str, tuple[Topology, bool]] = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "unix": ("standalone", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_PORTS: dict[Topology, int] = {"standalone": 6379, "sentinel": 26379, "cluster": 6379}
_PARAMETERS = frozenset({"db", "password", "username", "sentinel_username", "sentinel_password"})


class Endpoint(NamedTuple):
    """One server: a host and port, or the path of a unix socket."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether bytes to it stay on this host: a unix socket or a loopback address."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Login:
    """A user's name and password; shown to nobody."""

    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A parsed URL. `endpoints` are seeds for a cluster, sentinels for a sentinel URL."""

    topology: Topology
    endpoints: tuple[Endpoint, ...]
    is_encrypted: bool = False
    login: Login = Login()
    database: int = 0
    master: str = ""
    sentinel_login: Login = Login()

    def __str__(self) -> str:
        return f"{self.topology} redis at {','.join(map(str, self.endpoints))}"

    @property
    def exposes_password(self) -> bool:
        """Whether a password would leave this host unencrypted."""
        secret = self.login.password or self.sentinel_login.password
        return bool(secret) and not self.is_encrypted and not all(end.is_local for end in self.endpoints)

    @classmethod
    def parse(cls, text: object) -> RedisUrl:
        """Read a URL; ValueError says what is wrong with it without repeating its secrets."""
        if not isinstance(text, str):
            raise TypeError(f"a Redis URL must be text, got {type(text).__name__}")
        scheme, separator, rest = text.partition("://")
        if not separator or scheme not in _SCHEMES:
            known = ", ".join(f"{name}://" for name in _SCHEMES)
            raise ValueError(f"a Redis URL begins with one of {known}")
        topology, is_encrypted = _SCHEMES[scheme]
        rest, _, query = rest.partition("?")
        values = _parameters(query)
        user_info, _, place = rest.rpartition("@")
        login = _login(user_info, values, "")
        if scheme == "unix":
            return cls("standalone", (_socket(place),), False, login, _database(values.get("db", "0")))
        hosts, _, path = place.partition("/")
        endpoints = tuple(_endpoint(host, _PORTS[topology]) for host in hosts.split(","))
        master, database = _path(topology, path, values)
        if topology == "standalone" and len(endpoints) > 1:
            raise ValueError("several hosts need redis+sentinel:// or redis+cluster://")
        return cls(
            topology,
            endpoints,
            is_encrypted,
            login,
            database,
            master,
            _login("", values, "sentinel_"),
        )


def _parameters(query: str) -> dict[str, str]:
    values = {name: found[-1] for name, found in parse_qs(query, keep_blank_values=True).items()}
    for name in sorted(values.keys() - _PARAMETERS):
        if "@" in query:  # a password with a question mark, most likely: its second half is no name to show
            raise ValueError("in a Redis URL a question mark of the user or password is written %3F")
        raise ValueError(f"a Redis URL has no parameter {name!r}; known: {', '.join(sorted(_PARAMETERS))}")
    return values


def _login(user_info: str, values: dict[str, str], prefix: str) -> Login:
    username, _, password = user_info.partition(":")
    return Login(
        unquote(username) or values.get(f"{prefix}username") or None,
        unquote(password) or values.get(f"{prefix}password") or None,
    )


def _socket(place: str) -> Endpoint:
    if not place.startswith("/"):
        raise ValueError("a unix:// URL holds an absolute path: unix:///run/redis.sock")
    return Endpoint("", 0, unquote(place))


def _endpoint(text: str, default_port: int) -> Endpoint:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError("a Redis URL needs a host")
    if not port:
        return Endpoint(host, default_port)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError("a Redis URL's port is a number from 1 to 65535")
    return Endpoint(host, int(port))


def _path(topology: Topology, path: str, values: dict[str, str]) -> tuple[str, int]:
    """Return (sentinel's master name, database number)."""
    parts = [part for part in path.split("/") if part]
    master = ""
    if topology == "sentinel":
        if not parts:
            raise ValueError("a sentinel URL names its master: redis+sentinel://host:26379/mymaster/0")
        master = parts.pop(0)
    if len(parts) > 1:
        raise ValueError("a Redis URL's path is its database number")
    database = _database(parts[0] if parts else values.get("db", "0"))
    if topology == "cluster" and database:
        raise ValueError("a Redis cluster has only database 0")
    return master, database


def _database(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 5:
        raise ValueError("a Redis URL's database is a whole number")
    return int(text)
