"""The page, in a real browser."""

from __future__ import annotations

import itertools
import re
import shutil

import pytest
from playwright.sync_api import Error, Page, expect, sync_playwright

import umpteen
from umpteen.data.corrections import read_corrections
from umpteen.serving.app import make_app
from umpteen.serving.settings import Settings

from .contrast import find_faint
from .serving import NASTY, listening, serving

TEXT = "The herring in the north sea, and a tax on wine 🍷 and beer"


def find_chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium on this machine; install Debian's with: apt-get install chromium")


@pytest.fixture(scope="module")
def browser():
    program = find_chromium()
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        except Error as error:
            pytest.skip(f"Chromium does not start here: {error.message.splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(served_models):
    with listening(make_app(Settings(served_models, watch=0))) as address:
        yield address


@pytest.fixture
def page(browser, address):
    """A page whose every complaint, a script error or a breach of the content policy, fails the test."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(10_000)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: None if request.url.startswith(address) else complaints.append(request.url))
    page.goto(address)
    page.locator("body[data-ready]").wait_for()
    yield page
    context.close()
    assert complaints == []


def labels(page: Page, column: int = 0) -> list[str]:
    return page.locator(".column").nth(column).locator(".name").all_text_contents()


def write(page: Page, text: str = TEXT, top_k: str = "10") -> None:
    page.locator("#top-k").select_option(top_k)
    page.locator("#text").fill(text)
    page.locator(".labels li").first.wait_for()


def test_a_text_survives_a_reload_in_its_tab_only(page, browser, address):
    write(page, "wine tax")
    before = labels(page)
    page.reload()
    page.locator("#top-k").select_option("10")
    page.locator(".labels li").first.wait_for()
    expect(page.locator("#text")).to_have_value("wine tax")
    assert labels(page) == before
    other = browser.new_context().new_page()
    other.goto(address)
    other.locator("body[data-ready]").wait_for()
    expect(other.locator("#text")).to_have_value("")
    other.context.close()


def test_labels_are_copied_and_say_that_they_can_be_clicked(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    write(page)
    expect(page.get_by_text("Click a label to see which words count for it.")).to_be_visible()
    page.get_by_role("button", name="Copy labels").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    found = labels(page)
    assert page.evaluate("navigator.clipboard.readText()").splitlines() == found
    page.get_by_label(f"Wrong: {found[0]}").click()  # what was corrected is copied as corrected
    page.locator("#filter summary").click()
    page.locator("#find").fill("customs")
    page.get_by_label("add customs").click()
    page.get_by_role("button", name="Copy labels").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").splitlines() == [*found[1:], "customs"]


def test_type_and_see_labels(page):
    expect(page.locator(".empty")).to_have_text("Labels appear here as you write.")
    write(page)
    assert {"fish", "sea", "tax", "wine"} <= set(labels(page))
    scores = [float(text) for text in page.locator(".score").all_text_contents()]
    assert scores == sorted(scores, reverse=True)
    widths = [row.evaluate("row => parseFloat(getComputedStyle(row, '::before').width) / row.clientWidth")
              for row in page.locator(".labels li").all()]  # fmt: skip
    assert widths == pytest.approx(scores, abs=0.05)
    page.locator("#text").fill("floob herring")
    expect(page.locator("#status")).to_contain_text("1 of 2 words are unknown")
    page.locator("#text").fill("")
    expect(page.locator(".empty")).to_be_visible()


def test_label_text_is_never_markup(page):
    write(page, "wine and beer tax")
    assert NASTY in labels(page)
    assert page.locator("img[src=x]").count() == 0
    page.locator(".pick", has_text=NASTY).click()
    expect(page.locator("#why-title")).to_have_text(f"Why {NASTY}?")
    page.get_by_label(f"Leave out {NASTY}").click()
    expect(page.locator("#rules button")).to_have_text(NASTY)
    page.locator("#to-facts").click()
    expect(page.locator("#frequent")).to_contain_text(NASTY)
    assert page.locator("img[src=x]").count() == 0


def test_a_picked_label_shows_which_words_spoke_for_it(page, address):
    write(page)
    page.locator(".pick", has_text="wine").click()
    expect(page.locator("#why-title")).to_have_text("Why wine?")
    assert page.locator("#why-text").text_content() == TEXT  # nothing is lost, not even beyond a 🍷
    marked = page.locator("#why-text mark.for").all_text_contents()
    assert "wine" in marked
    assert "beer" in [word.strip() for word in marked]
    assert page.locator("#why-text mark.against").count() > 0
    strengths = {mark.text_content(): mark.evaluate("m => parseFloat(m.style.getPropertyValue('--strength'))")
                 for mark in page.locator("#why-text mark").all()}  # fmt: skip
    assert max(strengths.values()) == pytest.approx(0.72)
    assert strengths["wine"] > min(strengths.values())
    expect(page.locator("#why-words li.for").first).to_contain_text("+")
    expect(page.locator("#why-words li.against").first).to_contain_text("−")
    expect(page.locator("li.picked .name")).to_have_text("wine")
    lines = {kind: [float(line.replace("−", "-")) for line in
                    page.locator(f"#why-words li.{kind} .value").all_text_contents()]
             for kind in ("word", "rest", "base", "sum")}  # fmt: skip
    assert len(lines["word"]) >= 3
    assert len(lines["base"]) == len(lines["sum"]) == 1
    shown = sum(lines["word"]) + sum(lines["rest"]) + lines["base"][0]
    assert shown == pytest.approx(lines["sum"][0], abs=0.0005 * 20)  # each is rounded
    why = page.request.post(f"{address}/v1/explain", data={"text": TEXT, "label": "wine"}).json()
    assert lines["sum"][0] == pytest.approx(why["raw_score"], abs=0.0006)
    assert lines["base"][0] == pytest.approx(why["base"], abs=0.0006)
    expect(page.locator("#why-note")).to_contain_text(
        f"Its probability rests on {why['support']:,} held-out prediction"
    )
    page.keyboard.press("Escape")
    expect(page.locator("#why")).to_be_hidden()


def test_only_likely_labels_unless_more_are_asked_for(page):
    write(page, "wine and beer tax", top_k="")
    assert {"tax", "wine"} <= set(labels(page)) <= {"tax", "wine", NASTY}
    page.locator("#text").fill("floobdoodle")
    expect(page.locator(".empty")).to_have_text("no label: the model knows no word of this text")


def test_exclude_with_one_click_and_take_back(page):
    write(page)
    first = labels(page)[0]
    page.locator(".never").first.click()
    expect(page.locator(".name", has_text=re.compile(f"^{first}$"))).to_have_count(0)
    page.locator("#rules button", has_text=first).click()
    expect(page.locator(".name").first).to_have_text(first)


def test_the_slider_hides_what_is_unlikely(page):
    write(page, "wine and beer tax")
    before = [float(text) for text in page.locator(".score").all_text_contents()]
    least = max(before) - 0.02
    assert min(before) < least
    page.locator("#threshold").fill(f"{least:.2f}")
    assert page.locator("#threshold-value").text_content() == f"{least:.2f}"
    left = [float(text) for text in page.locator(".score").all_text_contents()]
    assert left == [score for score in before if score >= least]
    page.locator("#threshold").fill("1")
    expect(page.locator(".empty")).to_contain_text("No label is that likely")


def test_compare_two_models(page):
    write(page)
    page.locator("#other").select_option("trees")
    expect(page.locator(".column")).to_have_count(2)
    expect(page.locator(".column h2")).to_have_text(["tags", "trees"])
    assert set(labels(page, 0)) & set(labels(page, 1))
    page.set_viewport_size({"width": 1200, "height": 900})
    page.locator(".name").first.evaluate("name => { name.textContent = 'thermometers' }")  # no word is broken
    assert page.locator(".name").first.evaluate("name => name.getClientRects()[0].height") < 30
    expect(page.locator(".shared").first).to_contain_text("#")
    page.locator(".column").nth(1).locator(".pick").first.click()
    expect(page.locator("#why-note")).to_contain_text("trees' votes")
    shared = next(label for label in labels(page, 0) if label in labels(page, 1))
    page.get_by_label(f"Leave out {shared}").first.click()
    expect(page.locator(".name", has_text=re.compile(f"^{shared}$"))).to_have_count(0)  # in both


def test_find_a_label_and_allow_only_it(page):
    write(page)
    page.get_by_text("Add a label, leave some out, or allow only some").click()
    page.locator("#find").fill("SE")
    page.get_by_role("button", name="only sea").click()
    expect(page.locator(".name")).to_have_text(["sea"])
    page.locator("#rules button").click()
    expect(page.locator(".name").nth(1)).to_be_visible()


def test_facts_about_the_model(page):
    page.get_by_role("link", name="About the model").click()
    expect(page.locator("#facts-title")).to_have_text("tags")
    expect(page.locator("#facts")).to_contain_text("dismec (linear)")
    expect(page.locator("#parameters")).to_contain_text("prune")
    expect(page.locator("#metrics tbody tr").first).to_contain_text("100.0")
    expect(page.locator("#frequencies svg circle").first).to_be_visible()
    expect(page.locator("#frequent li").first).to_contain_text("sea 120")
    page.locator("#model").select_option("numbers")
    expect(page.locator("#metrics")).to_contain_text("umpteen evaluate DIR TEST --keep")


def test_a_model_of_numbers(page):
    page.locator("#model").select_option("numbers")
    page.locator("#text").fill("17:1.5 3:2")
    page.locator(".labels li").first.wait_for()
    page.locator(".pick").first.click()
    expect(page.locator("#why-words li").first).to_be_visible()
    page.locator("#text").fill("17:1.5 fish")
    expect(page.get_by_role("alert")).to_contain_text("features must be id:value, but one is fish")


def test_everything_works_by_keyboard(page):
    page.keyboard.type("wine tax")  # the text has the focus already
    page.locator(".labels li").first.wait_for()
    first = labels(page)[0]
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.className || document.activeElement.id"))
        if reached[-1] == "pick":
            break
    assert reached[-1] == "pick", reached
    assert {"threshold", "top-k"} <= set(reached)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    expect(page.locator("#why-title")).to_have_text(f"Why {first}?")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.className") == "judge accepted"  # the focus is not lost
    expect(page.get_by_label(f"Right: {first}")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#rules button")).to_have_text(first)
    assert page.evaluate("document.activeElement.className") == "never"  # the focus is not lost


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readable_in_light_and_dark_and_on_a_phone(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 740})
    write(page)
    page.locator(".pick").first.click()
    expect(page.locator("#why-text")).to_be_visible()
    page.locator("#other").select_option("trees")
    expect(page.locator(".column")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for selector in ("body", ".name", ".score", ".hint", "nav a", "#why-text", ".legend"):
        assert contrast(page, selector) >= 4.5, selector


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(page, scheme):
    """Each view, with labels, reasons, corrections, a table and facts; names stand on their bars, too."""
    page.emulate_media(color_scheme=scheme)
    write(page, "wine tax")
    page.get_by_label("Right: wine").click()
    page.get_by_label("Wrong: fish").click()
    page.locator(".pick").first.click()
    expect(page.locator("#why-text")).to_be_visible()
    page.locator("#filter summary").click()
    page.locator("#find").fill("customs")
    page.get_by_label("add customs").click()
    assert find_faint(page, 30) == []
    page.locator(".labels li").evaluate_all(  # the bar stands behind a part of each line
        "lines => lines.forEach((line) => { line.style.background = getComputedStyle(line, '::before').background; })"
    )
    assert find_faint(page, 30) == []
    label_table(page, "a.csv", b"text\nwine\n")
    expect(page.locator("#table-outcome")).to_contain_text("1 row got")
    assert find_faint(page, 10) == []
    page.locator("#to-facts").click()
    expect(page.locator("#facts dt").first).to_be_visible()
    assert find_faint(page, 20) == []


def test_progress_of_a_table_is_shown(page):
    """The bar stands while a table is labelled, grows with every piece, and is gone at the end."""
    seen: list[float] = []
    bar = page.locator("#table-progress")

    def watch(route):
        seen.append(bar.evaluate("bar => bar.hidden ? -1 : bar.value"))
        route.continue_()

    page.route("**/v1/label-table*", watch)
    assert bar.is_hidden()
    label_table(page, "new.csv", b"id;text\n" + b"".join(b"%d;wine tax or cod\n" % i for i in range(3000)))
    expect(page.locator("#table-outcome")).to_contain_text("3,000 rows got", timeout=30_000)
    assert len(seen) >= 3
    assert seen[0] == 0
    assert all(before < after <= 1 for before, after in itertools.pairwise(seen))
    assert bar.is_hidden()


def contrast(page: Page, selector: str) -> float:
    """WCAG's contrast of an element's text with what is behind it."""
    return page.locator(selector).first.evaluate("""element => {
        const parse = (text) => text.match(/[\\d.]+/g).map(Number);
        const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        const light = (colour) => colour.slice(0, 3).map((v) => linear(v / 255))
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        let behind = element;
        const ground = () => parse(getComputedStyle(behind).backgroundColor);
        while (behind.parentElement && ground().length === 4 && ground()[3] === 0) behind = behind.parentElement;
        const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground())];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }""")


def test_a_token_is_asked_for_once(browser, served_models):
    settings = Settings({"tags": served_models["tags"]}, token="open-sesame", watch=0)
    with listening(make_app(settings)) as address:
        page = browser.new_page()
        page.goto(address)
        wrong = page.get_by_text("The server does not accept this token.")
        expect(page.locator("#token")).to_be_visible()
        expect(wrong).to_be_hidden()
        page.locator("#token").fill("wrong-token")
        page.get_by_role("button", name="Continue").click()
        expect(wrong).to_be_visible()
        page.locator("#token").fill("open-sesame")
        page.get_by_role("button", name="Continue").click()
        page.locator("body[data-ready]").wait_for()
        write(page, "wine tax")
        assert labels(page)
        page.close()


def test_the_reference_reads_well(browser, address):
    """Under the content policy, without a request to elsewhere."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: None if request.url.startswith(address) else complaints.append(request.url))
    page.goto(f"{address}/docs")
    expect(page.locator("section#suggest h2")).to_contain_text("/v1/suggest")
    assert page.locator("section#suggest").evaluate("s => getComputedStyle(s).borderRadius") == "10px"  # styled
    page.locator("section#suggest summary").click()
    expect(page.locator("section#suggest details")).to_contain_text("422")
    page.get_by_role("link", name="POST /v1/explain").click()
    expect(page.locator("section#explain")).to_be_in_viewport()
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert complaints == []


# --- tables and corrections ----------------------------------------------------------------------------------------


def label_table(page: Page, name: str, data: bytes) -> None:
    page.locator("#to-table").click()
    page.locator("#table-file").set_input_files({"name": name, "mimeType": "text/csv", "buffer": data})
    page.locator("#table-start").click()


def test_a_table_comes_back_with_labels(page, served_models, tmp_path):
    rows = "".join(f"{i};wine tax or “cod” number {i}\r\n" for i in range(1000))
    data = f"id;text\r\n{rows}".encode("cp1252")
    label_table(page, "new.csv", data)
    button = page.get_by_role("button", name="Download new-labelled.csv")
    button.wait_for()
    expect(page.locator("#table-outcome")).to_contain_text("1,000 rows got")
    with page.expect_download() as got:
        button.click()
    got.value.save_as(tmp_path / "got.csv")
    assert got.value.suggested_filename == "new-labelled.csv"
    (tmp_path / "in.csv").write_bytes(data)
    umpteen.label_file(umpteen.load(served_models["tags"]), tmp_path / "in.csv", tmp_path / "out.csv")
    assert (tmp_path / "got.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()


def test_an_empty_header_only_or_long_table(page):
    label_table(page, "head.csv", b"id,text\n")
    expect(page.locator("#table-outcome")).to_contain_text("0 rows got 0 labels")
    text = b'"' + b"wine\n" * 30_000 + b'"\n'  # a row of 150,000 characters, longer than a piece
    label_table(page, "long.csv", b"text\n" + text * 3)
    expect(page.locator("#table-outcome")).to_contain_text("3 rows got")


def test_errors_of_a_table_name_its_line_and_the_nearest_column(browser, address):
    page = browser.new_page()  # the browser logs refusals as errors
    page.goto(address)
    page.locator("body[data-ready]").wait_for()
    label_table(page, "bad.csv", b"id,text\n1,wine\n2,a,b\n")
    expect(page.locator("#table-outcome.error")).to_contain_text("bad.csv:3: there must be 2 columns")
    label_table(page, "new.xlsx", b"PK\x03\x04\x14\x00\x06\x00")
    expect(page.locator("#table-outcome.error")).to_contain_text(
        "this is an Excel file, or another archive; save it as CSV"
    )
    label_table(page, "other.csv", b"id,texts\n1,wine\n")
    expect(page.locator("#table-outcome")).to_contain_text("did you mean 'texts'")
    page.locator("#table-fields").fill("texts")
    page.locator("#table-start").click()
    expect(page.locator("#table-outcome")).to_contain_text("1 row got")
    page.close()


def test_corrections_are_collected_and_downloaded(page, tmp_path):
    write(page, "wine tax")
    page.get_by_label("Right: wine").click()
    expect(page.get_by_label("Right: wine")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Wrong: fish").click()
    page.locator("#filter summary").click()
    page.locator("#find").fill("customs")
    page.get_by_label("add customs").click()
    expect(page.locator("li.added .name")).to_have_text("customs")
    expect(page.locator("#corrections")).to_contain_text("1 text corrected.")
    page.reload()
    expect(page.locator("#corrections")).to_contain_text("1 text corrected.")
    with page.expect_download() as got:
        page.get_by_role("button", name="Download").click()
    path = tmp_path / "corrections.jsonl"
    got.value.save_as(path)
    (found,) = read_corrections(path)
    assert (found.text, set(found.right), list(found.wrong)) == ("wine tax", {"wine", "customs"}, ["fish"])
    page.locator("#top-k").select_option("10")
    page.get_by_label("Right: wine").click()  # taken back
    expect(page.get_by_label("Right: wine")).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("#corrections")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_table_view_fits_a_phone(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 740})
    write(page, "wine tax")
    page.get_by_label("Right: wine").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    label_table(page, "a.csv", b"text\nwine\n")
    expect(page.locator("#table-outcome")).to_contain_text("1 row got")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for selector in ("#table-outcome", ".card p", ".card label"):
        assert contrast(page, selector) >= 4.5, selector


def test_corrections_improve_the_servers_model(browser, served_models, tmp_path):
    """A server of its own: what the page sends changes the model, and the page then asks the new one."""
    model = shutil.copytree(served_models["tags"], tmp_path / "tags.model")
    with serving(str(model), "--learn", "--watch", "0.3", UMPTEEN_TOKEN="open-sesame") as server:
        page = browser.new_page()
        page.goto(server.address)
        page.locator("#token").fill("open-sesame")
        page.get_by_role("button", name="Continue").click()
        page.locator("body[data-ready]").wait_for()
        write(page, "customs duties on cider")
        assert "customs" not in labels(page)
        page.locator("#filter summary").click()
        page.locator("#find").fill("customs")
        page.get_by_label("add customs").click()
        page.get_by_label("Wrong: fish").click()
        expect(page.locator("#corrections")).to_contain_text("They change the model for everyone")
        page.get_by_role("button", name="Improve the model").click()
        expect(page.locator("#corrections")).to_have_text("1 text learnt.", timeout=60_000)
        expect(page.locator(".name").first).to_have_text("customs")
        expect(page.locator("li.added")).to_have_count(0)
        expect(page.locator("#hits .count").first).to_have_text("1")  # no longer new
        page.close()
    assert "customs" in umpteen.load(model).classes_
