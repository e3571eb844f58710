"""What a reader keeps, within a limit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from mmdb.store.models.recover import Cache


def test_the_least_recently_used_goes_first() -> None:
    cache = Cache[str, int](limit_bytes=10)
    for key in "ab":
        cache.put(key, 1, size=5)
    assert cache.get("a") == 1
    cache.put("c", 1, size=5)
    assert [cache.get(key) for key in "abc"] == [1, None, 1]
    assert cache.size_bytes == 10


def test_a_value_above_the_limit_is_kept_alone() -> None:
    cache = Cache[str, int](limit_bytes=10)
    cache.put("a", 1, size=5)
    cache.put("b", 2, size=50)
    assert (cache.get("a"), cache.get("b"), len(cache)) == (None, 2, 1)
    cache.put("c", 3, size=5)
    assert (cache.get("b"), cache.get("c"), cache.size_bytes) == (None, 3, 5)


def test_a_value_that_is_put_again_counts_once() -> None:
    cache = Cache[str, int](limit_bytes=10)
    for size in (3, 4):
        cache.put("a", size, size)
    assert (cache.get("a"), cache.size_bytes, len(cache)) == (4, 4, 1)
    cache.forget("a")
    cache.forget("a")
    assert (cache.get("a"), cache.size_bytes) == (None, 0)


def test_threads_leave_the_count_of_bytes_right() -> None:
    cache = Cache[int, int](limit_bytes=500)

    def use(seed: int) -> None:
        for k in range(400):
            key = (k * 37 + seed) % 101
            if cache.get(key) is None:
                cache.put(key, key, size=key)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    kept = [key for key in range(101) if cache.get(key) is not None]
    assert cache.size_bytes == sum(kept) <= 500
