"""What ``plain`` promises: what it wraps runs without the callback."""
import contextlib
import gc
import inspect
import weakref

import pytest
from hooked import callback_set, with_entries
from hooked import no_callback_left as no_callback_left

from sot import _hook


def test_plain_hides_the_callback_and_shows_it_again():
    def fn():
        return "frame"

    with_entries(fn, lambda: "entry")
    plain = _hook.plain(fn)
    assert plain() == "frame"
    with callback_set():
        assert [fn(), plain(), fn()] == ["entry", "frame", "entry"]


def test_plain_shows_the_callback_again_after_an_exception():
    def fn():
        return "frame"

    def failing():
        raise KeyError

    with_entries(fn, lambda: "entry")
    with callback_set():
        with contextlib.suppress(KeyError):
            _hook.plain(failing)()
        assert fn() == "entry"


def test_plain_nests_and_passes_any_arguments():
    def fn(*args, **kwargs):
        return args, kwargs

    with_entries(fn, lambda *_: "entry")
    plain = _hook.plain(_hook.plain(fn))
    with callback_set():
        assert plain(1, 2, a=3) == ((1, 2), {"a": 3})
        assert plain(*[1], **{"b": 2}) == ((1,), {"b": 2})
        assert fn() == "entry"


def test_a_callback_set_inside_plain_is_seen_after_it():
    def fn():
        return "frame"

    def setting():
        _hook.set_callback(lambda function, arguments: None)
        return fn()

    with_entries(fn, lambda: "entry")
    assert _hook.plain(setting)() == "frame"
    assert fn() == "entry"
    _hook.set_callback(None)


def test_plain_holds_what_it_wraps():
    def fn():
        pass

    plain = _hook.plain(fn)
    assert plain.__wrapped__ is fn
    assert inspect.unwrap(plain) is fn
    assert "fn" in repr(plain)
    with pytest.raises(AttributeError):
        plain.__wrapped__ = None


def test_plain_is_collected_in_cycles():
    def cycle():
        def fn():
            return plain

        plain = _hook.plain(fn)
        return weakref.ref(plain), weakref.ref(fn)

    alive = cycle()
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
