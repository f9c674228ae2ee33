"""What can be wrong with saving and loading."""
from sot.support.errors import SotError


class SaveError(SotError, ValueError):
    """The function or model cannot be saved as a graph."""


class LoadError(SotError, ValueError):
    """The file is no model, is damaged, is of an unknown version, or could run code of its own."""


class SaveWarning(UserWarning):
    """What a saved model does not do that the program does."""
