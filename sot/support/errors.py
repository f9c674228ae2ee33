"""Why capture stops: one table of reasons, and the exceptions that carry them.

Three outcomes end the symbolic execution of a frame early:

* ``Break(reason, detail)``: the instruction at hand is run by Python itself, between two graphs.
* ``Skip(reason, detail)``: the whole frame is run by Python.
* any other exception: a defect of this package. Python runs the frame, and the defect is recorded.

``PyRaise`` is not one of them: it is an exception *of the user's program*, followed symbolically.
"""
from __future__ import annotations

import enum
from dataclasses import dataclass

NOTHING = "nothing to do"     # a hint that begins so asks for no action


@dataclass(frozen=True)
class Text:
    """The texts of a reason for the user. ``message`` may have one ``{}`` for the detail."""

    message: str
    hint: str


class Reason(enum.Enum):
    """Every reason for a break or a skip. To add one, add a row."""

    # ---- values that only exist at run time
    TENSOR_TRUTH = Text("a branch depends on the value of a tensor{}",
                        "ask for control_flow=\"graph\", which puts both branches into the graph, use torch.where, or "
                        "accept the break")
    BRANCH = Text("a branch on a tensor cannot be part of the graph: {}",
                  "make both sides return tensors of the same shape and dtype and change nothing else, use "
                  "torch.where, or leave out full_graph and control_flow")
    TENSOR_VALUE = Text("a tensor's value is needed as a Python number: {}",
                        "keep the value in a tensor, or move the read out of the function")
    TENSOR_SHAPE = Text("the shape of a result depends on tensor values: {}",
                        "use a mask of fixed size in place of a selection")
    # ---- things we do not look into
    OPAQUE_CALL = Text("{} is not Python code and not a torch operation that capture knows",
                       "move the call out of the captured function if it is hot")
    OPAQUE_VALUE = Text("{} cannot be followed", "move the operation out of the captured function")
    OTHER_TENSOR = Text("{}: Python executes the operations on it",
                        "before captured code, make a plain tensor of it: torch.from_numpy(a), "
                        "x.as_subclass(torch.Tensor), x.to_dense(), x.dequantize()")
    OPAQUE_ITERATOR = Text("an iterator of type {} is stepped by Python", "nothing to do in most loops")
    VARYING_NUMBER = Text("the value of {}, which differs from call to call, is needed",
                          "pass it as a tensor to avoid the break, or ignore this")
    USER_BREAK = Text("sot.graph_break() was called{}", "remove the call")
    OBSERVED = Text("the report is looked at{}", "nothing to do: reports do not count this break")
    NOT_TO_STATIC = Text("{} is marked not_to_static", "remove the mark to capture it")
    IGNORED = Text("{} is of a module that is ignored", "remove the call of sot.ignore_module to capture it")
    NOT_COMPILED = Text("torch, or torch.compiler.disable, keeps {} from being compiled",
                        "call it outside of the captured function")
    OPTIMIZER = Text("Python runs {}",
                     "nothing to do: the code before and after it is captured")
    GRADIENT = Text("Python runs a backward pass: {}",
                    "remove the break between the forward pass and the gradient, or ignore this")
    FRAME = Text("{} reads the program's frames", "pass the value as an argument")
    WATCHES = Text("{} inspects the interpreter: frames, or the lifetime or size of objects",
                   "do it in a separate function that is not captured")
    SIDE_EFFECT = Text("{} reads or changes something outside of the program",
                       "do it before or after the captured function")
    RANDOM = Text("{} draws from a random generator of Python or NumPy", "use torch's random functions")
    OPERATION_FAILED = Text("the operation raises: {}", "see the exception")
    UNCAUGHT = Text("an exception leaves the function: {}", "see the exception")
    BAD_CALL = Text("the call does not fit the function's parameters: {}", "see the exception")
    # ---- Python that capture does not do (yet)
    OPCODE = Text("the instruction {} is not captured", "move the statement out of the captured function")
    SUSPENDS = Text("{} is a coroutine, which suspends; a graph runs without interruption",
                    "nothing to do: the functions that it calls are captured")
    CLASS_BODY = Text("a class is created{}", "define the class at module level")
    UNSUPPORTED = Text("{} is not supported by capture", "report it, or move it out of the captured function")
    DEPTH = Text("calls are nested deeper than capture follows: {}", "reduce the depth")
    IMPORT = Text("a module is imported: {}", "import it at module level")
    LOOP = Text("a loop runs {}", "nothing to do: its body is captured once and runs as a loop")
    # ---- whole frames
    DEBUGGER = Text("{} starts a debugger or a tracer, which must see the unchanged function", "remove it")
    TOO_LONG = Text("the capture exceeds {} instructions", "shorten the loop, or call the body as a function")
    FIRST_CALL = Text("the call makes what later calls find made: gradients, the state of an optimizer, a cache{}",
                      "nothing to do: a later call is captured")
    NOTHING_CAPTURED = Text("no tensor operation was met{}", "nothing to do")
    RECOMPILE_LIMIT = Text("the function was captured {} times with different guards",
                           "pass what changes as a tensor, or raise the limit with SOT_ENTRIES")
    INTERNAL = Text("capture failed: {}", "please report this")

    def describe(self, detail: str = "") -> str:
        """The sentence for a report; ``detail`` fills the template's hole."""
        return self.value.message.format(detail)

    @property
    def hint(self) -> str:
        return self.value.hint


def article(words: str) -> str:
    """The words with "a" or "an" before them."""
    return f"{'an' if words[:1] in tuple('aeioAEIO') else 'a'} {words}"


def described(error: BaseException) -> str:
    """The class and the text of an exception. The text may be that of a value of a capture that has ended."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - whatever its text raises
        return type(error).__name__


class CaptureStop(Exception):
    """Common to Break and Skip: a reason, a detail, and (filled in by the machine) where."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason.describe(detail))
        self.reason = reason
        self.detail = detail


class Break(CaptureStop):
    """The current instruction cannot be captured; Python runs it between two graphs; or the loop, of which ``loop`` is
    the index of the first instruction."""

    def __init__(self, reason: Reason, detail: str = "", loop: int | None = None) -> None:
        super().__init__(reason, detail)
        self.loop = loop


class Skip(CaptureStop):
    """The current root frame cannot be captured; Python runs all of it."""


class OnlyNow(Skip):
    """Leaves this call to Python, and no other."""


class LeftAlone(Skip):
    """Leaves the code, and all that it calls, to Python."""


class NotRebuildable(Exception):
    """A symbolic value has no expression in emitted code; a break must happen further out."""


class PyRaise(Exception):
    """An exception of the user's program, raised while it is followed symbolically; ``again`` says that it has
    been raised before, and keeps its context. ``chained`` is false if what is handled does not become its context."""

    def __init__(self, value, again: bool = False, chained: bool = True) -> None:
        super().__init__(repr(value))
        self.value = value
        self.again = again
        self.chained = chained and not again


class SotError(Exception):
    """Base of the errors that SOT raises for its users."""


class CaptureError(SotError):
    """Raised by ``full_graph=True`` where a break or fallback would have happened."""
