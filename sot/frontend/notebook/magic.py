"""The IPython extension: ``%load_ext sot``, then ``%sot f(x)`` explains a call, and ``%%sot`` reports on a cell."""
from __future__ import annotations

import ast
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from sot.driver.translator import reset
from sot.frontend.explanation import explain
from sot.frontend.global_mode import enable_all
from sot.frontend.inspection import Explanation
from sot.reports.model import Report
from sot.reports.recording import Recording, recorded


@magics_class
class SotMagics(Magics):
    """The magics of SOT."""

    shell: Any

    @no_var_expand
    @line_cell_magic
    def sot(self, line: str, cell: str | None = None) -> Explanation | Report:
        """%sot f(x) calls f with a fresh capture and explains the call. %%sot [backend] drops all captures, runs the
        cell with the translator on, and reports on it.
        """
        if cell is None:
            return self.explained(line)
        code = compile(cell, self.shell.compile.cache(cell), "exec")    # its lines are known to tracebacks and reports
        recording = Recording("the cell")
        reset()     # what was captured before would run without a record
        with enable_all(backend=line.strip() or "eager"), recorded(recording):
            exec(code, self.shell.user_ns)
        return recording.report

    def explained(self, line: str) -> Explanation:
        """The explanation of the call that a line is."""
        try:
            call = ast.parse(line.strip(), mode="eval").body
        except SyntaxError as e:
            raise UsageError(f"%sot needs a call, such as %sot model(batch): {e}") from e
        if not isinstance(call, ast.Call):
            raise UsageError(f"%sot needs a call, such as %sot model(batch), not {line.strip() or 'nothing'}")
        names = self.shell.user_ns | {"__sot_explain": explain}
        call.func = ast.Call(ast.Name("__sot_explain", ast.Load()), [call.func], [])
        found = eval(compile(ast.fix_missing_locations(ast.Expression(call)), "<%sot>", "eval"), names)
        assert isinstance(found, Explanation)
        return found


def load_ipython_extension(ipython: Any) -> None:
    """Called by ``%load_ext sot``."""
    ipython.register_magics(SotMagics)
