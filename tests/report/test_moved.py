"""A finished run of a sweep stays finished when what it was made from is moved, not when that has changed."""

import json

import pytest
from conftest import run_script

from coin.report.sweep import check_same


def test_a_sweep_over_moved_data_is_done_already(digits_run, tmp_path):
    command = ["-m", f"hydra.sweep.dir={tmp_path}", "logger=csv", "save_coded=false", "code=average", "samples=20"]
    assert run_script("encode.py", *command, f"data.root={tmp_path / 'here'}").code == 0
    again = run_script("encode.py", *command, f"data.root={tmp_path / 'there'}")
    assert again.code == 0 and "done already" in again.out, again.out
    (results,) = tmp_path.glob("*/results.json")
    contents = json.loads(results.read_text())["contents"]
    assert {"experts.split1.data.root", "experts.split2.data.root", "pretraining.data.root"} < set(contents)
    contents["experts.split1.data.root"] = "other images"
    results.write_text(json.dumps({**json.loads(results.read_text()), "contents": contents}))
    refused = run_script("encode.py", *command, f"data.root={tmp_path / 'there'}")
    assert refused.code == 1 and "experts.split1.data.root" in refused.out


def config(root, weights, **more):
    data = {"root": root}
    return {"root": root, "data": data, "model": {"weights": weights}, "experts": {"a": {"data": data}}, **more}


def test_only_contents_that_are_known_to_be_the_same_excuse_another_path(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config("/old", "/old/w.pth")))
    lay = {"experts.a.data.root": "1", "model.weights": "sha256:2"}
    (tmp_path / "results.json").write_text(json.dumps({"contents": lay}))
    check_same(tmp_path, config("/new", "/new/w.pth"), lambda: lay)
    check_same(tmp_path, config("/old", "/old/w.pth"), lambda: pytest.fail("nothing was moved: nothing is read"))
    for key in lay:
        with pytest.raises(ValueError, match=f"another config .{key}"):
            check_same(tmp_path, config("/new", "/new/w.pth"), lambda key=key: {**lay, key: "changed"})
    with pytest.raises(ValueError, match="samples"):
        check_same(tmp_path, config("/new", "/old/w.pth", samples=3), lambda: lay)
    (tmp_path / "results.json").write_text("{}")  # of before contents were written down
    with pytest.raises(ValueError, match="another config"):
        check_same(tmp_path, config("/new", "/new/w.pth"), lambda: lay)
