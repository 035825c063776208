"""Web pages and feeds from a real server; nothing of the home is read unless its owner allows it."""

import threading

import pytest

from chat import outbound
from contracts.errors import CallError, Forbidden
from spoke.integrations._fetch import fetch
from tests.spoke.integrations.conftest import WebServer

PAGE = """<!doctype html><html><head><meta charset="iso-8859-1"><title> Caf\u00e9
 of the day </title><SCRIPT>var a = "<p>no</p>";</script></head>
<body><nav><a href="/">Home</a></nav><main><h1>Menu</h1><p>Soup &amp;   bread, 4&nbsp;\u00a3</p>
<ul><li>One<li>Two</ul><style>p {}</style></main><footer>Imprint</footer></body></html>"""

RSS = """<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>News</title>
<item><title>Old</title><link>/old</link><dc:date>2026-11-26T08:00:00Z</dc:date></item>
<item><title>Rain &amp;amp; wind</title>
<description>&lt;p&gt;It is &lt;b&gt;wet&lt;/b&gt;.&lt;/p&gt;</description>
<link>https://news.example/rain</link><pubDate>Sat, 28 Nov 2026 07:00:00 +0100</pubDate></item>
</channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Blog</title><entry><title>Hello</title>
<link rel="self" href="/self"/><link href="/hello"/><updated>2026-11-27T10:00:00Z</updated></entry></feed>"""

LAUGHS = (
    """<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><rss><item><title>&b;</title></item></rss>"""
)


async def test_a_page_is_read_as_text_in_parts(opened, web):
    long = "<p>" + "x" * 9_000
    web.serve(
        cafe=(200, "text/html", PAGE.encode("latin-1")),
        long=(200, "text/html; charset=utf-8", long),
        moved=(301, "/cafe", ""),
        picture=(200, "image/png", b"\x89PNG"),
        round=(302, "/round", ""),
        broken=(200, "text/html", "<p>Text" + "<a " * 300_000),  # minutes for html.parser
    )
    async with opened("reader", allow_private=True) as reader:
        page = await reader.call("read_page", url=f"{web.url}/moved")
        assert page == {
            "url": f"{web.url}/cafe",
            "title": "Café of the day",
            "text": "Menu\nSoup & bread, 4 £\nOne\nTwo",
            "more": 0,
        }
        assert (await reader.call("read_page", url=f"{web.url}/long"))["more"] == 1_000
        assert len((await reader.call("read_page", url=f"{web.url}/long", start=8_000))["text"]) == 1_000
        assert (await reader.call("read_page", url=f"{web.url}/broken"))["text"] == "Text"
        for path, why in (("picture", "image/png"), ("round", "without end"), ("gone", "status 404")):
            with pytest.raises(CallError, match=why):
                await reader.call("read_page", url=f"{web.url}/{path}")


async def test_headlines_of_all_feeds_come_newest_first(opened, web):
    web.serve(rss=(200, "application/rss+xml", RSS), atom=(200, "text/xml", ATOM))
    feeds = {"News": f"{web.url}/rss", "Blog": f"{web.url}/atom"}
    async with opened("reader", allow_private=True, feeds=feeds) as reader:
        found = await reader.call("headlines")
        assert [each["title"] for each in found] == ["Rain & wind", "Hello", "Old"]
        assert found[0]["summary"] == "It is wet."
        assert [each["url"].removeprefix(web.url) for each in found[1:]] == ["/hello", "/old"]
        assert await reader.answer("was gibt es Neues", "de") == "Rain & wind, Hello und Old."
        web.serve(rss=(500, "text/plain", ""), atom=(200, "text/xml", ATOM))
        assert [each["title"] for each in await reader.call("headlines")] == ["Hello"]
        assert [each["title"] for each in await reader.call("headlines", feed="blog")] == ["Hello"]
        with pytest.raises(CallError, match="no such feed") as caught:
            await reader.call("headlines", feed="sports")
        assert "News, Blog" in caught.value.hint


async def test_a_feed_that_declares_entities_is_refused(opened, web):
    web.serve(laughs=(200, "text/xml", LAUGHS.encode("utf-16")), html=(200, "text/html", "<p>no feed"))
    feeds = {"Laughs": f"{web.url}/laughs", "Page": f"{web.url}/html"}
    async with opened("reader", allow_private=True, feeds=feeds) as reader:
        with pytest.raises(CallError, match="declares entities"):
            await reader.call("headlines", feed="laughs")
        with pytest.raises(CallError, match="no XML"):
            await reader.call("headlines", feed="page")


async def test_no_address_of_the_home_is_read_unless_allowed(opened, web, monkeypatch):
    web.serve(router=(200, "text/html", "<p>password"))
    async with opened("reader") as reader:
        for host in (
            f"127.0.0.1:{web.server_port}",
            f"localhost:{web.server_port}",
            "[::1]",
            "169.254.169.254",
        ):
            with pytest.raises(CallError, match="private network"):
                await reader.call("read_page", url=f"http://{host}/router")
        for url in ("file:///etc/passwd", "http://user:pw@example.org/", "ftp://example.org", "//x"):
            with pytest.raises(CallError, match="no address of a web page"):
                await reader.call("read_page", url=url)
        # A page of the Internet that leads into the home.
        monkeypatch.setattr(outbound, "is_public", lambda address: str(address) == "127.0.0.2")
        with WebServer("127.0.0.2") as outside:
            outside.serve(trap=(302, f"{web.url}/router", ""))
            thread = threading.Thread(target=outside.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            with pytest.raises(CallError, match="private network"):
                await reader.call("read_page", url=f"http://127.0.0.2:{outside.server_port}/trap")
            outside.shutdown()
            thread.join()
            assert len(outside.asked) == 1
    assert web.asked == []


async def test_another_host_cannot_send_a_request_into_the_home(web: WebServer) -> None:
    web.serve(
        ics=(302, f"http://localhost:{web.server_port}/router", ""), router=(200, "text/html", "secret")
    )
    with pytest.raises(Forbidden):
        await fetch(f"{web.url}/ics", max_bytes=1_000, allow_private=True)
    assert [each.path for each in web.asked] == ["/ics"]
