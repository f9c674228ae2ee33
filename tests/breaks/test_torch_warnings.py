"""Warnings of torch's operations name the program's line, are shown as often as in plain Python, and never ours."""
import warnings

import pytest
import torch
import torch._inductor.config as inductor_config
from torch.nn import functional as F

import sot

W = torch.ones(3, requires_grad=True)
X = torch.arange(6.0).reshape(2, 3)


def softmax(x):
    y = x * 2
    return F.softmax(y)


def called(x):
    return softmax(x + 1) + softmax(x)


def shown_by(fn, calls=3, action="default"):
    """Where each warning is from, and its first words."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        for _ in range(calls):
            fn(X)
    return [(w.category, w.filename, w.lineno, str(w.message)[:40]) for w in found]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("action", ["default", "always"])
@pytest.mark.parametrize("fn", [softmax, called])
def test_a_warning_names_the_programs_line(fn, action, backend):
    if backend == "eager":
        assert shown_by(sot.to_static(fn, backend=backend), action=action) == shown_by(fn, action=action)
    else:       # what is compiled need not warn at each call
        assert {*shown_by(sot.to_static(fn, backend=backend), action=action)} == {*shown_by(fn, action=action)}


def broadcasts(x):
    y = x * 2
    return F.mse_loss(y, x[:, :1])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_warning_with_sizes_that_vary(backend):
    def shown(fn):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for n in (2, 3, 4, 1):
                fn(torch.ones(n, 3))
        return [(str(w.message), w.category, w.filename, w.lineno) for w in found]
    want = shown(broadcasts)
    if backend == "aot_eager":
        del want[2]     # the code for 3 has told it
    assert shown(sot.to_static(broadcasts, backend=backend)) == want


def test_a_warning_of_compiled_code_that_is_an_error():
    translated = sot.to_static(broadcasts, backend="aot_eager")
    for action in ("error", "error", "always"):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(action)
            if action == "error":
                with pytest.raises(UserWarning, match="target size"):
                    translated(X)
            else:
                translated(X)
    assert len(found) == 1 and found[0].filename == __file__


def test_what_torch_tells_only_once_in_a_process_names_the_programs_line():
    def transposes(x):
        return x[None].T + 1

    for _, file, _, _ in shown_by(sot.to_static(transposes, backend="eager")):
        assert file == __file__


def test_a_number_that_is_read_names_the_programs_line():
    def reads(x):
        y = (x * torch.ones((), requires_grad=True)).sum()
        return x + 1, float(y)

    for _, file, _, _ in shown_by(sot.to_static(reads, backend="eager"), action="always"):
        assert file == __file__


def test_a_warning_that_is_an_error_is_raised_at_the_programs_line():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning) as caught:
            sot.to_static(softmax, backend="eager")(X)
    assert caught.traceback[-1].path.name == "functional.py" and caught.traceback[-1].name == "_get_softmax_dim" or (
        str(caught.traceback[-2].path) == __file__)
    assert not any("/sot/" in str(entry.path) for entry in caught.traceback)


def test_capture_changes_no_filter_and_leaves_the_programs_function_for_warnings():
    before = warnings.showwarning, [*warnings.filters], torch.is_warn_always_enabled()
    sot.to_static(called, backend="eager")(X)
    assert (warnings.showwarning, [*warnings.filters], torch.is_warn_always_enabled()) == before


def test_a_recapture_shows_no_warning_again():
    """Explaining why a gradient's guard failed reads it, where torch may warn."""
    def fn(x, log):
        log.append(x.grad)
        return warns(x + 1)
    translated = sot.to_static(fn, backend="eager")
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for size in (4, 4, 4, 6):
            translated(torch.ones(size, requires_grad=True) * 2, [])
    assert [str(w.message) for w in found].count("of the program") == 1


def compiled_in_pieces(x):
    y = x * W
    torch.manual_seed(3)        # PyTorch runs it
    return (y + torch.rand(3)).exp().sum()


@pytest.mark.parametrize("step", [lambda x: (x * W).exp().sum(), compiled_in_pieces], ids=["whole", "in pieces"])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compilation_at_the_first_run_shows_no_warning_again(backend, step):
    """Pieces of a graph are compiled at their first run, backward graphs at the first backward pass."""
    translated = sot.to_static(step, backend=backend)
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as found, inductor_config.patch(force_disable_caches=True):
        warnings.simplefilter("default")
        for _ in range(3):
            loss = translated(warns(torch.ones(3)))
            warns(loss)
            loss.backward()
    assert [str(w.message) for w in found].count("of the program") == 1


def test_what_torch_says_about_its_own_code_while_a_backend_compiles_is_not_shown():
    def backend(module, examples):
        torchs = torch.__file__
        for category, file in (DeprecationWarning, torchs), (UserWarning, torchs), (FutureWarning, __file__):
            warnings.warn_explicit(category.__name__, category, file, 1)
        return lambda *args: module.forward(*args)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        sot.to_static(lambda x: x + 1, backend=backend)(X)
    assert sorted({str(w.message) for w in found}) == ["FutureWarning", "UserWarning"]


# ---- warnings that the program records and reads
def warns(x):
    warnings.warn("of the program")
    return x + 1


def reads_what_it_records(x, action):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        y = warns(warns(x))
        texts = [(str(w.message), w.category, w.lineno) for w in found]
    return y, texts, len(found)


def reads_a_list(x, found):
    return warns(x), len(found)


@pytest.mark.parametrize("action", ["always", "default", "once", "ignore"])
def test_a_warning_is_in_the_list_when_the_program_reads_it(action):
    translated = sot.to_static(reads_what_it_records, backend="eager")
    for _ in range(3):
        seen = []
        for run in (reads_what_it_records, translated):
            globals().pop("__warningregistry__", None)
            warnings.onceregistry.clear()
            seen.append(run(X, action)[1:])
        assert seen[0] == seen[1]


def test_a_list_that_gets_warnings_later_is_looked_at_again():
    translated = sot.to_static(reads_a_list, backend="eager")
    with pytest.warns(UserWarning, match="of the program"):
        assert translated(X, [])[1] == 0
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert translated(X, found)[1] == 1


def test_a_function_of_the_program_shows_each_warning_in_time(monkeypatch):
    shown = []

    def fn(x):
        y = warns(x)
        return y, len(shown)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *args: shown.append(args))
        assert [sot.to_static(fn, backend="eager")(X)[1] for _ in range(2)] == [1, 2]


def warns_between_graphs(x):
    for _ in range(3):
        warnings.warn("as before", stacklevel=1)
        x = x.sin()
        sot.graph_break()
    return x


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("action", ["default", "once", "always", "error"])
def test_a_warning_is_not_shown_again_after_a_compilation(action, backend):
    """torch's compiler changes the list of filters, after which Python forgets what it has shown."""
    def shown(fn):
        try:
            return shown_by(fn, action=action)
        except UserWarning as e:
            return str(e)
    assert shown(sot.to_static(warns_between_graphs, backend=backend)) == shown(warns_between_graphs)
