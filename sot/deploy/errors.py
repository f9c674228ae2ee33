"""The errors and warnings of saving and loading."""
from sot.support.errors import SotError


class SaveError(SotError, ValueError):
    """The function or model cannot be saved as a graph."""


class FewSizesError(SaveError):
    """The graph is right for few of the sizes that should differ. Examples of other sizes may give a better one."""


class LoadError(SotError, ValueError):
    """The file is not a model, is damaged, has an unknown version, or could run code."""


class SaveWarning(UserWarning):
    """Effects of the program that a saved model does not have."""
