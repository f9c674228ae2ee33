"""Whole programs in tests: made with a policy, and enabled until the test ends."""
from contextlib import ExitStack

from sot.driver.translator import Translator
from sot.driver.whole_program import WholeProgram
from sot.frontend.switch import Switch


def enabled_program(backend, policy, until: ExitStack):
    """A whole program for a backend, which is enabled until the stack closes."""
    made = WholeProgram(lambda program: Translator(backend, program=program), policy)
    made.load()
    until.enter_context(Switch(made.callback))
    return made
