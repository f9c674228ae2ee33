"""Damaged and forged files: load refuses them with a LoadError, runs nothing of theirs, and imports nothing."""
import json
import random
import sys
import zipfile

import damaged_archives
import pytest
import torch

import sot
from sot.deploy.errors import LoadError
from sot.deploy.program_text import is_guard, problem_of_program


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return damaged_archives.saved(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def forge(original, tmp_path):
    """``forge(ending, change)``: the archive with one text changed, and with the hashes that belong to it."""
    def make(ending, change):
        parts = damaged_archives.parts_of(original)
        name = next(name for name in parts if name.endswith(ending))
        data = json.loads(parts[name])
        change(data)
        parts[name] = json.dumps(data).encode()
        damaged_archives.write_sealed(tmp_path / "forged.pt2", parts)
        return tmp_path / "forged.pt2"
    return make


@pytest.mark.parametrize("number", range(24))
def test_a_mutated_archive_is_refused_or_a_model(original, tmp_path, number):
    damaged_archives.mutate(original, tmp_path / "m.pt2", random.Random(f"7 {number}"))
    assert not damaged_archives.outcome(tmp_path / "m.pt2").startswith("COMPLAINT")


def signature(model):
    return model["graph_module"]["module_call_graph"][0]["signature"]


@pytest.mark.parametrize("change", [
    lambda m: m.update(guards_code=["[__import__('os').system('true')]"]),
    lambda m: signature(m).update(forward_arg_names=["x", "how=print(1)"]),
    lambda m: signature(m).update(in_spec=json.dumps([1, {"type": "builtins.dict", "children_spec": [], "context":
        json.dumps([{"__enum__": True, "fqn": "antigravity:x", "name": "y"}])}])),
    lambda m: m["range_constraints"].update(u99999999999={"min_val": 0, "max_val": None}),
    lambda m: m["graph_module"]["graph"]["inputs"][-1].update(as_string="' or print(1) or '"),
    lambda m: m["graph_module"]["graph"]["nodes"][1].update(target="torch.ops.prim.rpc_async.default"),
    lambda m: m["graph_module"]["graph"]["nodes"][1]["inputs"].append(
        {"name": "x", "arg": {"as_operator": "torch.hub.load"}, "kind": 1}),
    lambda m: m["graph_module"]["graph"]["nodes"][1]["outputs"][0].update(as_tensor={"name": "y=print(1)"}),
], ids=["guard", "argument", "import", "symbol", "constant", "operator", "operator as argument", "name of a value"])
def test_a_forged_program_is_refused_by_name(forge, change):
    with pytest.raises(LoadError, match=r"is not loaded: models/model.json (has|calls|names)"):
        sot.load(forge("models/model.json", change))
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("change", [
    lambda c: c["head.weight"].update(use_pickle=True),
    lambda c: c["head.weight"].update(path_name="../../x"),
    lambda c: c["head.weight"].update(path_name="weight_77"),
    lambda c: c["head.weight"]["tensor_meta"].update(sizes=[{"as_int": -3}, {"as_int": 4}]),
    lambda c: c["head.weight"]["tensor_meta"].update(sizes=[{"as_int": 300}, {"as_int": 4}]),
], ids=["pickle", "path", "missing", "negative", "too large"])
def test_a_forged_weight_is_refused(forge, change):
    with pytest.raises(LoadError):
        sot.load(forge("weights_config.json", lambda data: change(data["config"])))


@pytest.mark.parametrize("change", [
    lambda m: m.update(methods={}),
    lambda m: m.update(methods={"__class__": m["methods"]["forward"]}),
    lambda m: m.update(methods={"state_dict": m["methods"]["forward"]}),
    lambda m: m["methods"]["forward"].update(result=["named", "x y", ["a"], [None]]),
    lambda m: m["methods"]["forward"].update(conditions=[[["<<", 1, 1 << 39], "", ""]]),
    lambda m: m["methods"]["forward"].update(program="other"),
    lambda m: m["methods"]["forward"].pop("sizes"),
    lambda m: m["methods"]["forward"]["sizes"][0].update(ranges=[["2", None]]),
    lambda m: m["methods"]["forward"]["sizes"][0].update(ranges=[[2]]),
    lambda m: m.update(provenance=None),
], ids=["no method", "class", "method of modules", "name", "shift", "program", "sizes", "range", "ranges",
        "provenance"])
def test_a_forged_description_is_refused(forge, change):
    with pytest.raises(LoadError):
        sot.load(forge("sot.json", change))


@pytest.mark.parametrize("edit", [
    lambda z, root: z.writestr(f"{root}/DATA/weights/weight_0", b"x"),
    lambda z, root: z.writestr("other/extra/x", b"x"),
    lambda z, root: z.writestr(f"{root}/extra/x", b"x" * 1000, zipfile.ZIP_DEFLATED),
    lambda z, root: setattr(z, "comment", b"more"),
], ids=["another case", "another folder", "compressed", "comment"])
def test_an_archive_that_readers_take_differently_is_refused(original, tmp_path, edit):
    file = tmp_path / "m.pt2"
    file.write_bytes(original.read_bytes())
    with zipfile.ZipFile(file, "a") as archive:
        edit(archive, archive.namelist()[0].partition("/")[0])
    with pytest.raises(LoadError, match="is not loaded"):
        sot.load(file)


@pytest.mark.parametrize("guard", ["L['x'].size()[0] >= 2", "Eq(Mod(L['x'].size()[0], 2), 0)",
                                   "L['x'].size()[0] == 2*L['y z'][1].size()[0] and L['n'] <= 9"])
def test_comparisons_of_sizes_are_guards(guard):
    assert is_guard(guard)


@pytest.mark.parametrize("guard", ["L['x'].__class__", "L['x'].size.__func__()", "print(1)", "L[print]()", "L['\"']",
                                   "[1]", "(lambda: 1)()", "L['x'].tolist()"])
def test_other_expressions_are_none(guard):
    assert not is_guard(guard)


def test_what_an_operator_is_given_may_be_any_text():
    assert problem_of_program({"nodes": [{"target": "torch.ops.aten._assert_async.msg", "inputs": [
        {"name": "msg", "arg": {"as_string": "it's \"s0\" > 2\n"}}]}]}) is None


def test_a_model_that_loads_computes_what_it_did(original):
    got = sot.load(original)(torch.ones(2, 4), "floor")
    assert got["n"] == 2 and got["y"].shape == (2, 3) and got["more"][1:] == [None, 3]
