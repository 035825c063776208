"""Back-off, rates and addresses: used everywhere, so tested once."""

import pytest

from contracts.addresses import Endpoint, broker_endpoint, endpoint, is_loopback
from contracts.errors import ConfigError
from contracts.rates import Backoff, SourceLimit, TokenBucket, TokenBuckets


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_waits_double_up_to_a_bound_and_begin_again_after_a_success() -> None:
    backoff = Backoff(1, 5, jitter=0)
    assert [backoff.next() for _ in range(4)] == [1, 2, 4, 5]
    backoff.reset()
    assert backoff.next() == 1


def test_waits_are_spread_below_their_length() -> None:
    waits = [Backoff(8, 8).next() for _ in range(200)]
    assert min(waits) >= 4
    assert max(waits) <= 8
    assert len(set(waits)) > 100


def test_a_bucket_fills_up_again_and_never_beyond_its_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(burst=20, per_second=10, clock=clock)
    assert [bucket.take(each) for each in (15, 6, 5, 1)] == [True, False, True, False]
    clock.now += 0.5
    assert [bucket.take(each) for each in (6, 5)] == [False, True]
    clock.now += 1000
    assert [bucket.take(each) for each in (21, 20)] == [False, True]


def test_what_is_reserved_waits_for_its_turn() -> None:
    bucket = TokenBucket(burst=2, per_second=10, clock=Clock())
    assert [bucket.reserve() for _ in range(4)] == pytest.approx([0, 0, 0.1, 0.2])


def test_each_key_has_a_bucket_and_the_oldest_is_forgotten() -> None:
    buckets = TokenBuckets(burst=1, per_second=1, most=2, clock=Clock())
    assert [buckets.take(key) for key in "aabb"] == [True, False, True, False]
    assert buckets.is_empty("a")
    assert buckets.take("c")
    assert not buckets.is_empty("a"), "forgotten"
    assert buckets.is_empty("b")


def test_many_sources_together_have_ten_times_as_much() -> None:
    limit = SourceLimit(per_minute=2, clock=Clock())
    limit.count("a")
    limit.count("a")
    assert limit.exceeded("a")
    assert not limit.exceeded("b")
    for number in range(18):
        limit.count(str(number))
    assert limit.exceeded("b")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("192.168.1.2", False), ("pi.local", False)],
)
def test_hosts_that_are_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_an_address_without_a_port_has_that_of_its_scheme() -> None:
    assert endpoint("mqtts://PI.local") == Endpoint("mqtts", "pi.local", 8883)
    assert endpoint("http://[::1]:8321/x") == Endpoint("http", "::1", 8321)
    assert endpoint("ftp://pi.local") is endpoint("mqtt://host:port") is endpoint("nothing") is None


@pytest.mark.parametrize("url", ["http://pi.local", "mqtt://", "pi.local:1883", "mqtt://pi.local/x"])
def test_what_is_no_address_of_a_broker_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a broker"):
        broker_endpoint(url)


def test_a_login_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        broker_endpoint("mqtt://anna:pass-word@pi.local")
    assert "pass-word" not in refused.value.message + refused.value.hint
