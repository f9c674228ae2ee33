"""The page of a report in a real browser: Debian's Chromium, driven by Selenium."""
import pytest
import torch

import sot
from sot.reports.views import page as pages
from sot.reports.views.room import Room

pytest.importorskip("selenium")
import chromium
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = pytest.mark.skipif(not (chromium.CHROMIUM and chromium.DRIVER),
                                reason="needs Debian's chromium and chromium-driver")


OPEN_IS_UNPACKED = "return !document.querySelector('details[open] > div > [data-html], main > [data-html]')"


def inner(x):
    y = torch.sin(x) * 2
    if y.mean() > 0:
        y = y + 1
    return torch.relu(y)


def outer(x):
    return inner(x) - sum(inner(x + i).max().item() for i in range(2))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = chromium.launch(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module", params=[Room, lambda plain, compressed: Room(0, compressed)],
                ids=["plain", "compressed"])
def url(tmp_path_factory, request):
    """A page whose long parts are plain, and one in which they are compressed."""
    sot.reset()
    path = tmp_path_factory.mktemp("report") / "report.html"
    report = sot.explain(outer)(torch.ones(3)).report
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "Room", request.param)
        report.save(path)
    return path.as_uri()


@pytest.fixture
def page(browser, url):
    chromium.as_usual(browser)
    browser.get("about:blank")
    browser.get(url)
    WebDriverWait(browser, 10).until(lambda _: browser.execute_script(OPEN_IS_UNPACKED))
    yield browser
    assert chromium.errors(browser) == []


def find(page, selector):
    return page.find_elements("css selector", selector)


def shown(page, selector):
    return [element for element in find(page, selector) if element.is_displayed()]


@pytest.mark.slow
def test_it_has_every_section(page):
    assert [a.text for a in find(page, "nav a")] == [
        "Breaks", "Time", "Functions", "Graphs", "Recompiled", "Guards", "Source", "Reasons"]
    for link in find(page, "nav a"):
        assert find(page, f"h2#{link.get_attribute('href').split('#')[1]}")


def test_it_asks_the_network_for_nothing(page):
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_a_break_shows_its_line_marked(page):
    chromium.unfold(page)
    marked = find(page, "details .row.here")
    assert any("if y.mean() > 0:" in row.text for row in marked)


@pytest.mark.slow
def test_the_filter_hides_what_does_not_fit_and_escape_brings_it_back(page):
    everything = len(shown(page, "#by-function tbody tr"))
    page.find_element("css selector", "body").send_keys("/")
    assert page.switch_to.active_element.get_attribute("id") == "filter"
    page.switch_to.active_element.send_keys("no-" + "such-text")     # which this file, being on the page, has not
    assert shown(page, ".entry") == []
    page.switch_to.active_element.send_keys("\ue00c")      # Escape
    assert len(shown(page, "#by-function tbody tr")) == everything


def test_the_filter_says_how_much_is_left(page):
    box = page.find_element("id", "filter")
    box.send_keys("a branch depends")
    left, whole = page.find_element("id", "found").text.split(" of ")
    assert 0 < int(left) == len(find(page, ".entry:not([hidden])")) < int(whole) == len(find(page, ".entry"))
    box.send_keys("\ue00c")
    assert page.find_element("id", "found").text == ""


def test_a_link_into_folded_source_unfolds_it(page):
    row = find(page, ".fold .row")[0]
    assert not row.is_displayed()
    page.execute_script("location.hash = encodeURIComponent(arguments[0].id)", row)
    WebDriverWait(page, 10).until(lambda _: row.is_displayed())


def test_a_column_sorts_with_the_keyboard(page):
    def values():
        return [int(row.find_elements("css selector", "td")[4].text) for row in find(page, "#by-function tbody tr")]

    button = find(page, "#by-function th button")[4]
    button.send_keys("\ue007")      # Enter
    assert values() == sorted(values(), reverse=True)
    assert find(page, "#by-function th")[4].get_attribute("aria-sort") == "descending"
    button.send_keys("\ue007")
    assert values() == sorted(values())


def test_a_link_to_a_line_opens_the_source_there(page):
    link = shown(page, "#by-function a.at")[0]
    link.click()
    target = page.execute_script("return document.getElementById(decodeURIComponent(location.hash.slice(1)))")
    assert target.is_displayed() and "row" in target.get_attribute("class")


@pytest.mark.parametrize("width", [320, 390, 768])
def test_it_fits_a_small_screen(page, width):
    assert chromium.as_wide_as(page, width) <= width


def test_it_is_dark_where_that_is_wished(page):
    chromium.in_scheme(page, "dark")
    colours = page.execute_script("const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]")
    back, fore = (sum(int(n) for n in c[c.index("(") + 1:-1].split(",")[:3]) for c in colours)
    assert back < 150 < 500 < fore


def test_every_link_leads_somewhere(page):
    chromium.unfold(page)
    assert chromium.missing_targets(page) == []


def test_a_reason_explains_itself_when_its_link_is_followed(page):
    chromium.unfold(page)
    link = shown(page, "a[href='#reason-TENSOR_TRUTH']")[0]
    page.execute_script("arguments[0].click()", link)
    WebDriverWait(page, 10).until(lambda _: "torch.where" in page.find_element("id", "reason-TENSOR_TRUTH").text)


def test_the_code_of_a_graph_is_unpacked_when_it_is_opened(page):
    fold = find(page, "details.packed")[0]
    page.execute_script("for (let p = arguments[0]; p; p = p.parentElement) if (p.tagName === 'DETAILS') p.open = true",
                        fold)
    WebDriverWait(page, 10).until(lambda _: "def forward(self" in fold.text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(page, scheme):
    """The contrast of texts with their backgrounds is 4.5 or more, as WCAG AA asks."""
    chromium.in_scheme(page, scheme)
    chromium.unfold(page)
    assert chromium.faint_texts(page) == []
