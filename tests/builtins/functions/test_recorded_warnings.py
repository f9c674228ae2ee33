"""``catch_warnings(record=True)``: the list has the warnings that Python puts into it."""
import warnings

import torch
from harness import Programs, check_by

import sot

captured, left = Programs(), Programs()


class Own(UserWarning):
    pass


def warns_for_its_caller():
    warnings.warn("inner", Own, stacklevel=2)


@captured
def one(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("careful", UserWarning, stacklevel=1)
        y = x * 2
    return y, [str(w.message) for w in seen]


@captured
def several_by_categories_and_levels(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)
        warns_for_its_caller()
        warns_for_its_caller()
        warnings.warn("old", DeprecationWarning)
        warnings.warn(Own("instance", 3))
        warnings.warn(f"text {x.sum().item()}")
    first = seen[0]
    return (x + 1, [(w.lineno, w.category, w.filename, w.file, w.line, w.source, w.message.args) for w in seen],
            seen[0] is first, first._category_name, str(first))


@captured
def nested(x):
    with warnings.catch_warnings(record=True) as outer:
        warnings.simplefilter("always")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("hidden")
            with warnings.catch_warnings(record=True, action="always") as inner:
                warnings.warn("deep")
            warnings.warn("hidden again")
        warnings.warn("shown")
    return x + 1, [str(w.message) for w in outer], [str(w.message) for w in inner]


@captured
def left_by_an_exception(x):
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("one")
            raise ValueError
    except ValueError:
        pass
    return len(seen), x + 1


@captured
def an_operation_that_warns_when_it_runs(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = torch.std(x[0, :1])
    return x + 1, y, len(seen)


@left
def a_break_inside(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("one")
        sot.graph_break()
        warnings.warn("two")
        y = x + 1
    return y, [str(w.message) for w in seen]


@left
def filters_that_are_not_known(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.warn("one")
    return x + 1, [str(w.message) for w in seen]


@left
def a_filter_for_some_texts(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="one")
        warnings.warn("one")
        warnings.warn("two")
    return x + 1, [str(w.message) for w in seen]


@left
def an_argument_changed_before_an_operation_that_warns(x):
    x.add_(1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = torch.std(x[0, :1])
    return x + 1, y, len(seen)


def x():
    return torch.arange(6.0).reshape(2, 3)


@captured.each
def test_warnings_are_recorded_in_a_graph(fn):
    check_by("eager", fn, x(), breaks=0)


@left.each
def test_python_records_what_is_not_known(fn):
    check_by("eager", fn, x())


def test_a_backend_that_compiles_records_between_operations():
    def recorded(x):
        y = x + 1
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("one")
        return y * 2, [str(w.message) for w in seen]
    check_by("aot_eager", recorded, x(), breaks=0)


def test_a_backend_that_compiles_leaves_operations_inside_to_python():
    check_by("aot_eager", one, x())


def test_what_an_operation_warns_once_in_a_process_is_recorded():
    """Python runs the call whose graph has warned. It gets the warning, although torch gives it once."""
    def recorded(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = torch.std(x)
        return y, len(seen)
    translated = sot.to_static(recorded, backend="eager")
    for _ in range(3):
        filters, always = [*warnings.filters], torch.is_warn_always_enabled()
        assert translated(torch.ones(1))[1] == 1
        assert [*warnings.filters] == filters and torch.is_warn_always_enabled() is always
