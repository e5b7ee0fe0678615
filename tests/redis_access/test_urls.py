"""URLs: what each scheme means, what is refused, and that a secret is never shown again."""

from __future__ import annotations

import logging
import string
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_cluster_kit.errors import JoinRefusedError, PersistenceFailedError
from redis_cluster_kit.redis_access import Lanes, RedisUrl
from redis_cluster_kit.redis_access.urls import Endpoint, Login
from redis_cluster_kit.settings import RedisSettings

SECRET = "s3cr3t?/@:%p"
QUOTED = quote(SECRET, safe="")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://localhost", RedisUrl("standalone", (Endpoint("localhost", 6379),))),
        ("redis://localhost/", RedisUrl("standalone", (Endpoint("localhost", 6379),))),
        ("redis://h:7000/3", RedisUrl("standalone", (Endpoint("h", 7000),), database=3)),
        ("redis://h?db=4", RedisUrl("standalone", (Endpoint("h", 6379),), database=4)),
        ("redis://[::1]:7000", RedisUrl("standalone", (Endpoint("::1", 7000),))),
        ("redis://[::1]", RedisUrl("standalone", (Endpoint("::1", 6379),))),
        ("rediss://h", RedisUrl("standalone", (Endpoint("h", 6379),), is_encrypted=True)),
        ("redis://:pw@h", RedisUrl("standalone", (Endpoint("h", 6379),), login=Login(None, "pw"))),
        ("redis://me:pw@h", RedisUrl("standalone", (Endpoint("h", 6379),), login=Login("me", "pw"))),
        (
            "redis://h?username=me&password=p@w",
            RedisUrl("standalone", (Endpoint("h", 6379),), login=Login("me", "p@w")),
        ),
        ("unix:///run/r.sock", RedisUrl("standalone", (Endpoint("", 0, "/run/r.sock"),))),
        (
            "unix://:pw@/run/a%20b.sock?db=2",
            RedisUrl("standalone", (Endpoint("", 0, "/run/a b.sock"),), login=Login(None, "pw"), database=2),
        ),
        (
            "redis+sentinel://a,b:7001/main/1?sentinel_password=sp",
            RedisUrl(
                "sentinel",
                (Endpoint("a", 26379), Endpoint("b", 7001)),
                database=1,
                master="main",
                sentinel_login=Login(None, "sp"),
            ),
        ),
        (
            "rediss+sentinel://me:pw@a/main",
            RedisUrl(
                "sentinel", (Endpoint("a", 26379),), is_encrypted=True, login=Login("me", "pw"), master="main"
            ),
        ),
        ("redis+cluster://a:1,b:2/", RedisUrl("cluster", (Endpoint("a", 1), Endpoint("b", 2)))),
        ("rediss+cluster://a", RedisUrl("cluster", (Endpoint("a", 6379),), is_encrypted=True)),
    ],
)
def test_every_scheme(text: str, expected: RedisUrl) -> None:
    assert RedisUrl.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with one of redis://"),
        ("localhost:6379", "begins with"),
        ("http://localhost", "begins with"),
        ("REDIS://localhost", "begins with"),
        ("redis://", "needs a host"),
        ("redis://:6379", "needs a host"),
        ("redis://a,,b", "needs a host"),
        ("redis://h:port", "from 1 to 65535"),
        ("redis://h:0", "from 1 to 65535"),
        ("redis://h:65536", "from 1 to 65535"),
        ("redis://fe80::1", "from 1 to 65535"),
        ("redis://[::1]7000x", "from 1 to 65535"),
        ("redis://h/one", "whole number"),
        ("redis://h/-1", "whole number"),
        ("redis://h/1/2", "path is its database"),
        ("redis://a,b", "several hosts need"),
        ("redis://h?ssl_cert_reqs=none", "no parameter 'ssl_cert_reqs'"),
        ("unix://run/r.sock", "absolute path"),
        ("unix:///r.sock?db=x", "whole number"),
        ("redis+sentinel://h", "names its master"),
        ("redis+sentinel://h/main/x", "whole number"),
        ("redis+cluster://h/1", "only database 0"),
        (f"redis://:{SECRET}@h", "written %3F"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        RedisUrl.parse(text)
    assert "s3cr3t" not in str(caught.value)
    assert "@:%p" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 7, b"redis://localhost"])
def test_only_text_is_a_url(value: object) -> None:
    with pytest.raises(TypeError, match="must be text"):
        RedisUrl.parse(value)


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("localhost", True), ("127.0.0.9", True), ("[::1]", True), ("10.0.0.1", False), ("cache", False)],
)
def test_a_password_that_would_leave_the_host_unencrypted(host: str, is_local: bool) -> None:
    assert RedisUrl.parse(f"redis://:pw@{host}").exposes_password is not is_local
    assert not RedisUrl.parse(f"rediss://:pw@{host}").exposes_password
    assert not RedisUrl.parse(f"redis://{host}").exposes_password
    sentinel = RedisUrl.parse(f"redis+sentinel://{host}/main?sentinel_password=pw")
    assert sentinel.exposes_password is not is_local


async def test_lanes_refuse_to_expose_a_password_unless_told() -> None:
    url = RedisUrl.parse(f"redis://:{QUOTED}@cache.example")
    with pytest.raises(JoinRefusedError, match="allow_plaintext_password") as caught:
        Lanes(url, RedisSettings())
    assert SECRET not in str(caught.value)
    async with Lanes(url, RedisSettings(allow_plaintext_password=True)) as lanes:
        assert lanes.url is url


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{QUOTED}@127.0.0.1:1",
        f"redis://{QUOTED}:{QUOTED}@127.0.0.1:1/0",
        f"redis://127.0.0.1:1?password={QUOTED}&username={QUOTED}",
        f"unix://:{QUOTED}@/nowhere/at/all.sock",
        f"redis+cluster://:{QUOTED}@127.0.0.1:1",
        f"redis+sentinel://:{QUOTED}@127.0.0.1:1/main?sentinel_password={QUOTED}",
    ],
)
async def test_a_secret_is_shown_nowhere(text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = RedisUrl.parse(text)
    shown = [str(url), repr(url), f"{url!s} {url.login!r} {url.login} {url.sentinel_login!r}"]
    async with Lanes(url, RedisSettings(), retry_for=0) as lanes:
        shown += [repr(lanes), repr(vars(lanes))]
        with pytest.raises(PersistenceFailedError) as caught:
            await lanes.call(0, "PING")
    logging.getLogger("test").warning("%s %r", caught.value, url, exc_info=caught.value)
    shown += [str(caught.value), repr(caught.value), caplog.text, repr(caught.value.__cause__)]
    for line in shown:
        assert SECRET not in line
        assert QUOTED not in line


_words = st.text(st.sampled_from(string.printable + "ßλ😀"), min_size=1, max_size=20)


@given(user=_words, password=_words, port=st.integers(1, 65535), database=st.integers(0, 99))
def test_whatever_is_quoted_comes_back(user: str, password: str, port: int, database: int) -> None:
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    url = RedisUrl.parse(f"redis://{login}@example.org:{port}/{database}")
    assert url.login == Login(user, password)
    assert (url.endpoints, url.database) == ((Endpoint("example.org", port),), database)
    assert str(url) == f"standalone redis at example.org:{port}"
    assert repr(url) == repr(RedisUrl.parse(f"redis://example.org:{port}/{database}"))


@settings(max_examples=100)
@given(
    scheme=st.sampled_from(["redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "http"]),
    rest=st.text(st.sampled_from(string.printable), max_size=40),
)
def test_any_text_is_a_url_or_a_value_error(scheme: str, rest: str) -> None:
    try:
        url = RedisUrl.parse(f"{scheme}://{rest}")
    except ValueError:
        return
    assert url.endpoints
    assert all(endpoint.path or 0 < endpoint.port < 65536 for endpoint in url.endpoints)
