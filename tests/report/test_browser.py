"""The report in a real browser: no error, tables sort, both themes, narrow and wide, by keyboard."""

from __future__ import annotations

import shutil

import pytest
from sklearn.datasets import load_diabetes

from foldwise import BilevelSearchCV, LinearSVR
from foldwise.plotting import contour_data
from foldwise.report import write_report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

HOSTILE = "<script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X = X.rename(columns={"bmi": HOSTILE})
    search = BilevelSearchCV(LinearSVR(), cv=3).fit(X, y)
    rows = [{"method": name, "seconds": t} for name, t in (("grid", 10.0), ("ours", 9.0), (HOSTILE, 100.0))]
    path = tmp_path_factory.mktemp("report") / "report.html"
    contour = contour_data(search, X, y, points=4)
    return write_report(path, search, title="Diabetes", comparison=rows, contour=contour, warnings=[HOSTILE])


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(params=[400, 1600])
def page(request, browser, report):
    size = {"width": request.param, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(report.as_uri())
    return browser


def test_it_renders_without_an_error_and_without_scrolling_sideways(page):
    assert page.get_log("browser") == []
    assert page.title == "Diabetes"
    assert len(page.find_elements("css selector", "figure svg")) >= 5
    wide, room = page.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= room
    smallest = page.execute_script(
        "return Math.min(...[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height))"
    )
    assert smallest >= 9


def test_tables_sort_by_number_and_by_keyboard(page):
    table = next(
        t
        for t in page.find_elements("css selector", "table.sortable")
        if "seconds" in t.text and "grid" in t.text
    )

    def column():
        return [cell.text for cell in table.find_elements("css selector", "tbody td.n")]

    button = table.find_elements("css selector", "th button")[1]
    button.send_keys("\ue007")
    assert column() == ["9", "10", "100"]
    button.send_keys("\ue007")
    assert column() == ["100", "10", "9"]
    head = table.find_elements("css selector", "th")[1]
    assert head.get_attribute("aria-sort") == "descending"


def test_the_theme_can_be_changed(page):
    def background():
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    first = background()
    page.find_element("id", "theme").click()
    assert background() != first
    page.find_element("id", "theme").click()
    assert background() == first


def test_charts_answer_the_pointer(page):
    dot = page.find_element("css selector", "circle.dot")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", dot)
    webdriver.ActionChains(page).move_to_element(dot).perform()
    tip = page.find_element("id", "tip")
    assert tip.is_displayed()
    assert tip.text.startswith("evaluation 1")


def test_every_picture_has_a_name_and_every_heading_its_order(page):
    for svg in page.find_elements("css selector", "svg"):
        assert svg.get_attribute("role") == "img"
        assert svg.get_attribute("aria-label")
    assert len(page.find_elements("css selector", "h1")) == 1
    assert page.find_element("css selector", "html").get_attribute("lang") == "en"
    assert len(page.find_elements("css selector", "main")) == 1
