"""Objects with attributes, and containers. Containers may be instances of subclasses and have attributes as well.

An object exists before the frame runs (``real`` and ``origin``), or the frame makes it. Reads from an existing object
are guarded. Writes go into an overlay, and ``replay`` repeats them in emitted code. ``snapshot`` returns the undo of
the next mutation. Every mutator calls ``m.touch(self)`` first.
"""
from sot.values.objects.exceptions import ExceptionValue
from sot.values.objects.instances import DELETED, DictValue, ObjectValue, guard_key, written_by
from sot.values.objects.sequences import ListValue, TupleValue, make_tuple, takes_a_sequence
from sot.values.objects.sets import SetValue
from sot.values.objects.views import MappingProxy, ReadOnlyDict, view_of

__all__ = ["DELETED", "DictValue", "ExceptionValue", "ListValue", "MappingProxy", "ObjectValue",
           "ReadOnlyDict", "SetValue", "TupleValue", "guard_key", "make_tuple", "takes_a_sequence", "view_of",
           "written_by"]
