"""The page in a browser: it opens, folds, selects, searches, and leads through the passes, by hand and by keys."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, DRIVER, Page, open_browser
from graph_models import DIGITS, build, decoder, measured
from nacre.compiler.cli.main import run
from nacre.compiler.tools.explorer.measured_times import read_profile
from nacre.compiler.tools.viewer.drawing import drawing_of
from nacre.compiler.tools.viewer.pictures import make_page
from nacre.compiler.tools.viewer.placement import HEADER, Drawing, draw
from nacre.compiler.tools.viewer.tree import build_tree
from safetensors.numpy import load_file
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="there is no chromium and chromedriver on this machine: the page itself is not tried",
)

SOURCE = decoder(6)
LAYER = "/x_4/layer.{}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with open_browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "small.html"
    path.write_text(make_page(drawing_of(build(SOURCE)), {}), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Page, small: Path) -> Iterator[Page]:
    browser.open(small)
    yield browser
    assert browser.complaints() == []


def test_opens_with_the_blocks_of_the_model(page: Page) -> None:
    paths = page.paths()
    assert "/x_4" in paths and LAYER in paths and 5 < len(paths) <= 60
    assert page.one("#pass").text.startswith("0/")
    assert "decode" in page.one("#text").text
    # Every box is in the picture, and the first of them can be seen.
    assert page.box("/input x").is_displayed()


def test_folds_and_unfolds(page: Page) -> None:
    page.run(f"select({LAYER + '/attention'!r})")
    before = page.box(LAYER).get_attribute("aria-expanded")
    assert before == "true"
    page.press(" ")
    folded = page.box(LAYER + "/attention").get_attribute("aria-expanded")
    page.press(" ")
    unfolded = page.box(LAYER + "/attention").get_attribute("aria-expanded")
    assert {folded, unfolded} == {"true", "false"}
    page.one("#fold").click()
    assert page.box(LAYER) is None and page.box("/x_4") is not None
    page.one("#unfold").click()
    assert page.box(LAYER + "/attention/query/1") is not None
    assert len(page.paths()) == page.run("return boxesOf(stageNow().root).boxes.length")


def test_folded_boxes_keep_their_position(page: Page) -> None:
    place = "const r = elementOf('/x_4').getBoundingClientRect(); return [r.left, r.top]"
    page.run("select('/x_4')")
    before = page.run(place)
    page.press(" ")
    assert page.run(place) == pytest.approx(before, abs=1)


def test_selecting_shows_details_source_and_the_way_there(page: Page) -> None:
    page.run(f"reveal({LAYER + '/attention/query/2'!r})")
    details = page.one("#details").text
    for part in ("add", "f32[T, 16]", "layer.{}.attention.query", "operands", "1.02 kflop", "16*T"):
        assert part in details, part
    assert page.marked_lines() == ["  return x @ weight.T + bias"]
    assert page.one("#text mark").text == "x @ weight.T + bias"
    assert page.crumbs() == ["model", "repeat 6 times", "layer.{}", "attention", "query", "add"]
    page.one("#crumbs button:nth-child(4)").click()
    assert page.crumbs()[-1] == "attention"
    # A block was written at the lines of what is in it.
    assert "  return x @ weight.T + bias" in page.marked_lines() and len(page.marked_lines()) > 1


def test_a_kernel_says_why_it_is_not_larger(page: Page) -> None:
    page.run("showStage(data.stages.length - 1)")
    reader = page.run("return data.remarks[0][3]")
    path = page.run(f"return makerOf({reader!r}, '')")
    page.run(f"reveal({path!r})")
    assert "not fused" in page.one("#details").text
    assert page.run("return data.remarks[0][4]") in page.one("#details").text
    page.run("showStage(0); reveal(boxesOf(stageNow().root).boxes.find((b) => b.item.title === 'matmul').path)")
    assert "not fused" not in page.one("#details").text


def test_operands_link_to_their_nodes(page: Page) -> None:
    page.run(f"reveal({LAYER + '/attention/query/2'!r})")
    page.one("#details button.value").click()
    assert page.crumbs()[-1] == "matmul"


def test_a_line_links_to_its_nodes(page: Page) -> None:
    line = next(i for i, text in enumerate(SOURCE.splitlines(), 1) if "gelu" in text)
    page.run(f"document.querySelector('#text li:nth-child({line})').click()")
    assert page.marked_lines() == ["  return h + second(gelu(first(h)))"]
    assert LAYER in str(page.run("return state.selected"))


def test_searches(page: Page) -> None:
    search = page.one("#search")
    search.send_keys("query weight")
    assert "found" in page.one("#hits").text
    search.send_keys(Keys.ENTER)
    first = page.crumbs()
    assert "query" in first and page.box(str(page.run("return state.selected"))).is_displayed()
    search.send_keys(Keys.ENTER)
    assert page.crumbs() != first or page.run("return state.hits.length") == 1
    search.clear()
    # The whole path of a parameter, of which a box shows the end; words that never meet; words that nobody wrote.
    search.send_keys("layer.{}.attention.query.weight")
    assert "found" in page.one("#hits").text and "transpose" in page.one("#hits").text
    search.clear()
    search.send_keys("softmax gelu")
    assert "nothing found" in page.one("#hits").text
    search.clear()
    search.send_keys("no such thing")
    assert "nothing found" in page.one("#hits").text
    search.send_keys(Keys.ESCAPE)
    assert not page.one("#hits").is_displayed()


def test_the_slider_shows_the_graph_after_each_pass(page: Page) -> None:
    slider = page.one("#stage")
    slider.send_keys(*[Keys.ARROW_RIGHT] * page.stage("unroll-repeat"))
    assert "unroll-repeat" in page.one("#pass").text
    assert "/layer.0" in page.paths() and "/x_4" not in page.paths()
    assert re.search(r"\d+ new", page.one("#pass").text)
    assert page.run("return scene.querySelectorAll('.added, .within').length") > 0
    slider.send_keys(Keys.END)
    assert page.run("return state.stage === data.stages.length - 1")
    page.run("showStage(data.stages.findLastIndex((stage) => stage.name === 'fuse'))")
    assert "fuse" in page.one("#pass").text
    assert page.run("return scene.querySelectorAll('.box.changed, .within').length") > 0
    assert "Groups nodes with" in page.one("#details").text
    page.one("#before").click()
    assert "nothing changed" in page.one("#pass").text or "gone" in page.one("#pass").text


def test_the_selection_stays_from_pass_to_pass(page: Page) -> None:
    number = page.stage("unroll-repeat")
    page.run(f"showStage({number}); reveal('/layer.3/attention')")
    page.press("]")
    assert page.run("return [state.stage, state.selected]") == [number + 1, "/layer.3/attention"]


def test_keys_lead_through_the_graph(page: Page) -> None:
    page.run("select('/input x')")
    page.press(Keys.ARROW_DOWN)
    assert page.run("return state.selected") == "/x_4"
    page.press(Keys.ENTER)
    assert str(page.run("return state.selected")).startswith("/x_4/")
    page.press(Keys.ESCAPE)
    assert page.run("return state.selected") == "/x_4"
    page.press(Keys.ARROW_UP)
    assert page.run("return state.selected") == "/input x"
    page.press(Keys.ARROW_RIGHT)
    assert page.run("return state.selected") == "/input mask"
    active = page.run("return document.getElementById(svg.getAttribute('aria-activedescendant')).ariaLabel")
    assert "mask" in active and "f32[T, T]" in active
    page.press("?")
    assert page.one("#keys").is_displayed()


def test_shares_of_a_measure(page: Page) -> None:
    page.run("measureChoice.value = 'flops'; redraw()")
    texts = page.run("return [...scene.querySelectorAll('.percent')].map((t) => t.textContent)")
    assert texts and texts[0] == "100 %"


def test_times_of_a_profile(browser: Page, tmp_path: Path) -> None:
    made = build(SOURCE)
    times = measured(made, tmp_path / "profile.json")
    profile = read_profile(tmp_path / "profile.json")
    page = make_page(drawing_of(made), profile.dims, first=len(made.stages) - 1, profile=profile)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    browser.open(tmp_path / "page.html")
    assert made.stages[-1].name in browser.one("#pass").text
    assert browser.run("return measureChoice.value") == "seconds"
    assert f"{sum(times.values()) * 1e6:.3g} µs" in browser.one("#details").text
    assert browser.run("return document.querySelectorAll('.roofline circle').length") == len(times)
    # One roof for products of f32, one for those of i8.
    assert browser.run("return document.querySelectorAll('.roofline .roof').length") == 2
    slowest = f"document.querySelectorAll('.roofline circle')[{len(times) - 1}]"
    browser.run(f"{slowest}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    assert f"{len(times)}.0 µs" in browser.one("#details").text and "of the peak" in browser.one("#details").text
    assert browser.run("return sumOf(kernelsOf(stageNow().root)[0].item).ideal") == 1e-9
    # Before the last pass there were no such kernels, and nothing has their time.
    browser.run("showStage(0)")
    assert "of a call" not in browser.one("#details").text
    assert browser.complaints() == []


def test_boxes_lie_where_the_svg_has_them(page: Page) -> None:
    """The script stretches layouts as `placement.py` does: the same sizes and positions, whatever is unfolded."""
    stages = build(SOURCE).stages
    for number in (0, 2, len(stages) - 1):
        tree = build_tree(stages[number].module)
        page.run(f"showStage({number})")
        for depth in (0, 1, 3, 99):
            drawing = draw(tree, lambda path, item, depth=depth: len(path) <= depth)
            expected = dict(_places(drawing, "", 0, 0))
            page.run(f"foldAll({depth})")
            found = page.run("return [...view.boxes].map(([p, b]) => [p, [b.left, b.top, b.width, b.height]])")
            assert dict(found).keys() == expected.keys()
            for path, position in found:
                assert position == pytest.approx(expected[path], abs=0.01), path


def _places(drawing: Drawing, path: str, x: float, y: float) -> Iterator[tuple[str, list[float]]]:
    for box in drawing.boxes:
        here = f"{path}/{box.item.key}"
        yield here, [x + box.x, y + box.y, box.width, box.height]
        if box.inside is not None:
            left = x + box.x + (box.width - box.inside.width) / 2
            yield from _places(box.inside, here, left, y + box.y + HEADER)


def test_two_thousand_nodes(browser: Page, tmp_path: Path) -> None:
    made = build(decoder(48))
    assert max(stage.nodes for stage in made.stages) >= 1900
    path = tmp_path / "large.html"
    path.write_text(make_page(drawing_of(made), {}), encoding="utf-8")
    assert path.stat().st_size < 5_000_000
    browser.open(path)
    # Half a second on one quiet core; the limit is for a busy machine.
    assert browser.run("return performance.getEntriesByName('drawn')[0].startTime") < 5000
    browser.run("showStage(data.stages.length - 1); foldAll(99)")
    assert len(browser.paths()) > 2000
    assert browser.complaints() == []


def test_opens_with_the_whole_graph_in_sight(page: Page) -> None:
    page.driver.refresh()
    ends = "const r = scene.getBoundingClientRect(), s = svg.getBoundingClientRect();"
    assert page.run(f"{ends} return r.left >= s.left - 1 && r.right <= s.right + 1 && r.bottom <= s.bottom + 1")


def test_dark_and_light(page: Page) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = page.run(colour)
    page.one("#dark").click()
    dark = page.run(colour)
    assert dark != before
    page.one("#dark").click()
    assert page.run(colour) == before


def test_saves_pictures(page: Page) -> None:
    text = page.run("return exportSvg()")
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg") and "var(" not in text
    titles = "".join(root.itertext())
    assert "attention" in titles
    size = page.driver.execute_async_script("const done = arguments[0]; exportPng().then((blob) => done(blob.size))")
    assert size > 1000


def test_search_finds_kinds(page: Page) -> None:
    page.run("showStage(data.stages.length - 1)")
    page.one("#search").send_keys("kernel attention")
    assert int(page.one("#hits li").text.split()[0]) > 0


def test_weights_of_a_selected_box(browser: Page, tmp_path: Path) -> None:
    browser.open(page_of_file(DIGITS, tmp_path))
    browser.run("reveal(boxesOf(stageNow().root).boxes.find((box) => box.item.caption === 'edges').path)")
    stored = load_file(DIGITS.with_name("digits.safetensors"))["edges.weight"].reshape(-1)
    weight = browser.run("return document.querySelector('.weight').innerText")
    assert "edges.weight: f32[16, 1, 3, 3]" in weight and f"begins {stored[0]:.4g}"[:9] in weight
    bars = browser.run("return [...document.querySelectorAll('.histogram')[0].querySelectorAll('rect')].length")
    assert bars == 32
    high = "Math.max(...[...document.querySelectorAll('.histogram rect')].map((r) => r.getBoundingClientRect().height))"
    assert browser.run(f"return {high}") > 20
    assert browser.complaints() == []


@pytest.mark.parametrize("suffix", [".so", ".graph"])
def test_files_without_a_model_text_open_fitted(browser: Page, tmp_path: Path, suffix: str) -> None:
    model, made = tmp_path / "scale.nacre", tmp_path / f"made{suffix}"
    model.write_text("model scale(x: f32[4]) -> f32[4] {\n  y = softmax(x * 2)\n  return exp(y) + 1\n}\n")
    arguments = ["compile", "-o", str(made)] if suffix == ".so" else ["compile", "--emit", "graph", "-o", str(made)]
    assert run([*arguments, str(model)]) == 0
    browser.open(page_of_file(made, tmp_path))
    assert browser.complaints() == []
    ends = "const r = scene.getBoundingClientRect(), s = svg.getBoundingClientRect();"
    assert browser.run(f"{ends} return r.left >= s.left - 1 && r.right <= s.right + 1 && r.bottom <= s.bottom + 1")
    middle = browser.run(f"{ends} return [r.left + r.right, s.left + s.right]")
    assert middle[0] == pytest.approx(middle[1], abs=4)
    assert browser.one("#source").is_displayed() == (suffix == ".graph")
    browser.one("#search").send_keys("softmax")
    assert "found" in browser.one("#hits").text and "nothing" not in browser.one("#hits").text


def test_two_models_show_the_text_of_each(browser: Page, tmp_path: Path) -> None:
    first, second = tmp_path / "a.nacre", tmp_path / "b.nacre"
    first.write_text("model m(x: f32[4]) -> f32[4] { return relu(x + 1) }\n")
    second.write_text("model m(x: f32[4]) -> f32[4] { return gelu(x + 1) }\n")
    browser.open(page_of_file(first, tmp_path, "--diff", str(second)))
    assert "1 new, 1 gone" in browser.one("#pass").text and "gelu" in browser.one("#text").text
    new = browser.run("return [...document.querySelectorAll('.box.added .title')].map((t) => t.textContent)")
    assert new == ["gelu"]
    browser.one("#before").click()
    assert "relu" in browser.one("#text").text and browser.complaints() == []


def page_of_file(path: Path, folder: Path, *arguments: str) -> Path:
    page = folder / "page.html"
    assert run(["graph", str(path), "-o", str(page), *arguments]) == 0
    return page
