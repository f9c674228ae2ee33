"""What libraries do behind the program's back: parts that are imported late, registries of subclasses."""
import subprocess
import sys
import textwrap

import pytest
import torch
from harness import check

import sot

LIBRARY = {
    "__init__.py": """
        class Base: pass
        class First(Base):
            def double(self, x): return x * 2
            def __init__(self):
                from . import late
                self.late = late
        made = {}
        def double(x):
            if type(x) not in made:
                for cls in Base.__subclasses__():
                    made[type(x)] = cls()
            return made[type(x)].double(x) + made[type(x)].late.ONE
        def broken(x):
            try:
                from . import fails
            except ValueError as e:
                return x + len(str(e))
        """,
    "late.py": "ONE = 1",
    "fails.py": "raise ValueError('no')",
}


@pytest.fixture
def library(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages" / "library_of_test"
    folder.mkdir(parents=True)
    for name, text in LIBRARY.items():
        (folder / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(folder.parent))
    import library_of_test
    yield library_of_test
    for name in [n for n in sys.modules if n.startswith("library_of_test")]:
        del sys.modules[name]


def test_a_library_that_imports_a_part_of_it_at_the_first_call(library):
    def fn(x):
        return library.double(x) + 1

    translated = sot.to_static(fn, backend="eager", full_graph=True)
    for _ in range(3):
        assert torch.equal(translated(torch.ones(2)), torch.full((2,), 4.0))
    assert "library_of_test.late" in sys.modules


def test_an_import_that_fails_is_pythons(library):
    check(lambda x: library.broken(x * 2), torch.ones(2))


def test_subclasses_are_guarded():
    class Base:
        pass

    class First(Base):
        value = 1

    class Second(First):
        value = 2

    def fn(x):
        return x * sum(cls.value for cls in Base.__subclasses__()), [c.__name__ for c in First.__subclasses__()]

    translated = sot.to_static(fn, backend="eager", full_graph=True)
    x = torch.ones(2)
    assert repr(translated(x)) == repr(fn(x))

    class Third(Base):
        value = 5

    assert repr(translated(x)) == repr(fn(x))

    class Fourth(First):
        value = 6

    assert repr(translated(x)) == repr(fn(x))


@pytest.mark.slow
@pytest.mark.parametrize("call", [
    'rearrange(x, "a b c -> c (a b)")', 'reduce(x, "a b (c d) -> a b c", "mean", d=2)',
    'repeat(x, "a b c -> a (b r) c", r=3)', 'einsum(x, x, "a b c, a d c -> a b d")',
    'pack([x, x.sum(-1)], "a *")[0]'], ids=lambda call: call.partition("(")[0])
def test_einops_is_in_the_graph_at_its_first_call_in_the_process(call):
    program = textwrap.dedent(f"""
        import einops, sot, torch
        f = lambda x: einops.{call} + 1
        x = torch.arange(24.0).reshape(2, 3, 4)
        assert torch.equal(sot.to_static(f, backend="eager", full_graph=True)(x), f(x))
        """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                          timeout=300)
    assert done.returncode == 0, done.stderr
