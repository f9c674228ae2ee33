"""A page has at most 500 KB, whatever the report has."""
import base64
import random
import re
import zlib

import pytest

from sot.reports import model
from sot.reports.model import Line
from sot.reports.views import page as pages
from sot.reports.views.room import Room

RANDOM = random.Random(0)


def text(length):
    """Text that does not become much shorter when it is compressed."""
    return f"{RANDOM.getrandbits(4 * length):0{length}x}"


def line(n=0):
    return Line(f"/home/someone/project/package/module_{n % 300}.py", n % 80 + 1, text(20), text(60))


def everything(size):
    """A report with so many of each thing."""
    files = [model.SourceFile(f"/home/someone/project/package/module_{i}.py", i > size // 2, [
        model.SourceLine(n, text(60), "graph" if n % 9 else "", n, 0) for n in range(1, 81)]) for i in range(size)]
    breaks = [model.Break("TENSOR_TRUTH", text(100), text(100), line(i), [line(i + k) for k in range(9)], 3, 9, False,
                          1.0 if i % 2 else 0.0) for i in range(size)]
    graphs = [model.Graph(text(20), line(i), [model.Operation(text(12), line(k)) for k in range(40)], 3, 5, 0.1,
                          text(2000)) for i in range(size)]
    return model.Report(
        "train.py", "", 10.0, "finished", {"sot": "1", "torch": "2", "python": "3", "tensor guards": ""},
        functions=[model.Function(text(20), line(i), 1, 1, 1, 1, 1, 0.1) for i in range(size)], graphs=graphs,
        breaks=breaks, guards=[model.Guard(text(60), text(1), text(20), line(i), 1) for i in range(9 * size)],
        recompiles=[model.Recompile(text(20), line(i), line(i), [text(90)] * 8, 0.1) for i in range(size)],
        stages=[model.Stage(text(20), line(i), "execute", i, 1.0) for i in range(size)], files=files,
        events=[model.Event("graph", text(20), line(i), i % 40, i * 0.01, 0.02) for i in range(10 * size)])


@pytest.mark.parametrize("size", [3, 40, 300])
def test_a_page_has_at_most_500_kb(size):
    page = pages.page(everything(size))
    assert len(page.encode()) <= 500_000
    assert ("There is no room for this" in page) == (size > 3)


@pytest.mark.slow
def test_every_link_has_a_target_and_source_that_is_left_out_has_no_links():
    page = re.sub(r'data-html="([^"]*)"', lambda found: zlib.decompress(base64.b64decode(found[1])).decode(),
                  pages.page(everything(300)))
    targets = set(re.findall(r'id="(f\d+-\d+)"', page))
    links = set(re.findall(r'href="#(f\d+-\d+)"', page))
    assert links and links <= targets
    assert not any(name.startswith("f250-") for name in targets)


@pytest.mark.slow
def test_the_overview_has_room_whatever_the_details_need():
    page = pages.page(everything(300))
    time, functions = (page[page.index(f'<h2 id="{start}">'):page.index(f'<h2 id="{end}">')]
                       for start, end in (("time", "functions"), ("functions", "graphs")))
    assert "There is no room" not in time + functions


def test_a_part_is_plain_then_compressed_then_left_out():
    room = Room(plain=10, compressed=40)
    assert room.part("<p>one</p>") == "<p>one</p>"
    assert room.part("<p>two</p>").startswith('<div data-html="')
    assert "the report as JSON" in room.part("<p>three</p>" + text(60))
