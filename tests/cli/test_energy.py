"""The verb energy: what it refuses, in one line and before the long part."""

import pytest

REFUSED = {
    "unknown": (("energy", "nope"), "nope"),
    "without RTL": (("energy", "cdm-qta-kv260"), "preset 'cdm-qta-kv260': has no RTL yet"),
    "parameter": (("energy", "digits-ulx3s", "--set", "rowz=3"), "rowz: no such parameter"),
    "value": (("energy", "digits-ulx3s", "--set", "rows=many"), "rows=many: must be an integer"),
    "samples": (("energy", "digits-ulx3s", "--samples", "0"), "samples=0: must be at least 1"),
    "suffix": (("energy", "digits-ulx3s", "--saif", "out.txt"), "saif=out.txt: must name a file that ends in .saif"),
    "folder": (("energy", "digits-ulx3s", "--saif", "folder.saif"), "saif=folder.saif: is a directory"),
    "both": (
        ("energy", "digits-ulx3s", "--design", "folder.saif", "--set", "rows=2"),
        "design=folder.saif: must be left",
    ),
    "no design": (("energy", "digits-ulx3s", "--design", "folder.saif"), "design=folder.saif: has no report.json"),
    "activity": (("build", "kv260", "folder.saif", "--saif", "none.saif"), "folder.saif: has no rtl/*.v"),
}


@pytest.mark.parametrize("line, said", REFUSED.values(), ids=REFUSED)
def test_a_bad_request_is_one_line(run, tmp_path, monkeypatch, line, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.saif").mkdir()
    code, out, err = run(*line)
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err
    assert [path.name for path in tmp_path.rglob("*")] == ["folder.saif"]
