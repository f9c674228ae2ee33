"""heapq without C: the same heaps, element for element."""
from __future__ import annotations

import heapq

from sot.support.registry import polyfills


def _down(heap, at, before):
    """Let the element at a position sink: to a leaf along the preferred children, then up to its place."""
    end, start, item = len(heap), at, heap[at]
    child = 2 * at + 1
    while child < end:
        if child + 1 < end and not before(heap[child], heap[child + 1]):
            child += 1
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = item
    _up(heap, start, at, before)


def _up(heap, start, at, before):
    """Let the element at a position rise, not above ``start``."""
    item = heap[at]
    while at > start:
        parent = (at - 1) >> 1
        if not before(item, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item


def _less(a, b):
    return a < b


def _greater(a, b):
    return b < a


def _heapify(heap, before):
    for at in range(len(heap) // 2 - 1, -1, -1):
        _down(heap, at, before)


def _pop(heap, before):
    last = heap.pop()
    if not heap:
        return last
    top = heap[0]
    heap[0] = last
    _down(heap, 0, before)
    return top


def _replace(heap, item, before):
    top = heap[0]
    heap[0] = item
    _down(heap, 0, before)
    return top


@polyfills(heapq.heapify)
def heapify(heap):
    _heapify(heap, _less)


@polyfills(heapq.heappush)
def heappush(heap, item):
    heap.append(item)
    _up(heap, 0, len(heap) - 1, _less)


@polyfills(heapq.heappop)
def heappop(heap):
    return _pop(heap, _less)


@polyfills(heapq.heapreplace)
def heapreplace(heap, item):
    return _replace(heap, item, _less)


@polyfills(heapq.heappushpop)
def heappushpop(heap, item):
    return _replace(heap, item, _less) if heap and heap[0] < item else item


@polyfills(heapq._heapify_max)
def heapify_max(heap):
    _heapify(heap, _greater)


@polyfills(heapq._heappop_max)
def heappop_max(heap):
    return _pop(heap, _greater)


@polyfills(heapq._heapreplace_max)
def heapreplace_max(heap, item):
    return _replace(heap, item, _greater)
