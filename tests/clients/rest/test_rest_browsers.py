"""What a browser sends for a page of somebody else is refused; what programs send is not."""

from __future__ import annotations

import httpx
import pytest

from flymq.testing import TestBroker

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:{port}", "localhost.:{port}", "127.0.0.1:{port}", "[::1]:{port}", "app.localhost"]
)
def test_a_broker_on_loopback_goes_by_localhost_and_addresses(
    http: httpx.Client, broker: TestBroker, host: str
) -> None:
    answer = http.get("/api/v1/topics", headers={"Host": host.format(port=broker.http_port)})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(http: httpx.Client, host: str) -> None:
    answer = http.get("/api/v1/topics", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (403, "FOREIGN_HOST")
    assert "rest.hosts" in answer.json()["hint"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1"])
def test_a_page_of_another_origin_cannot_write(http: httpx.Client, topic: str, origin: str) -> None:
    for method, path in (
        ("POST", f"/api/v1/topics/{topic}/records"),
        ("DELETE", f"/api/v1/topics/{topic}"),
        ("PATCH", f"/api/v1/topics/{topic}"),
    ):
        answer = http.request(method, path, headers={"Origin": origin, **JSON}, content=b'{"records":[{"value":1}]}')
        assert (answer.status_code, answer.json()["code"]) == (403, "FOREIGN_ORIGIN")


def test_a_page_of_the_broker_itself_can_write(http: httpx.Client, broker: TestBroker, topic: str) -> None:
    origin = f"http://127.0.0.1:{broker.http_port}"
    answer = http.post(f"/api/v1/topics/{topic}/records", headers={"Origin": origin}, json={"records": [{"value": 1}]})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}]
)
def test_a_body_that_a_form_could_send_is_refused(http: httpx.Client, topic: str, headers: dict[str, str]) -> None:
    for path, body in (
        (f"/api/v1/topics/{topic}/records", b'{"records":[{"value":1}]}'),
        ("/api/v1/topics", b'{"name":"made-by-a-form"}'),
    ):
        answer = http.post(path, headers=headers, content=body)
        assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
        assert "application/json" in answer.json()["detail"]
