"""The page of a fine-tune shows what ``metrics.json`` holds, by itself, and none of it as markup."""

import base64
import copy
import json
import re
from html.parser import HTMLParser

import pytest

from gradloom.systems.report import report_page


class Page(HTMLParser):
    """Rows of all tables, pictures, and whether all elements are closed."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.pictures, self.open, self.links = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.links += [values[name] for name in ("src", "href") if name in values]
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "img":
            self.pictures.append(base64.b64decode(values["src"].removeprefix("data:image/png;base64,")))
        elif tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    import gradloom

    folder = tmp_path_factory.mktemp("report") / "run"
    gradloom.finetune("digits", engine="reference", limit=64, epochs=2, output=folder)
    return folder


def test_a_page_has_the_figures_and_needs_no_other_file(ran):
    metrics = json.loads((ran / "metrics.json").read_text())
    page = Page((ran / "report.html").read_text())
    assert not page.open and page.pictures == [(ran / "loss.png").read_bytes()]
    assert all(link.startswith("data:") for link in page.links)
    before, after = (f"{metrics[f'accuracy_{when}']:.6g}" for when in ("before", "after"))
    assert ["accuracy", before, after, "share of what is held out; of text, of its learnt tokens"] in page.rows
    assert ["total", f"{metrics['forecast']['total']:,}", "–"] in page.rows
    # The machine's parameters come after the request, some under the same name.
    shown = {row[0]: row[1] for row in reversed(page.rows) if len(row) == 2}
    for name, value in metrics["request"].items():
        if isinstance(value, float):
            assert float(shown[name]) == value
        else:
            assert shown[name] == ("–" if value is None else str(value))


def test_markup_in_a_name_is_text(ran):
    metrics = copy.deepcopy(json.loads((ran / "metrics.json").read_text()))
    metrics["samples"], metrics["diverged"] = "<script>a</script>", ["the loss is 3 < 4"]
    text = report_page(ran, metrics, "images & more")
    assert ["samples", "<script>a</script>", ""] in Page(text).rows
    assert "<script" not in text and "3 &lt; 4" in text and re.search("<h1>images &amp; more: digits</h1>", text)
