"""Objects with attributes, and the containers, which may be instances of subclasses and carry attributes too.

An object exists before the frame runs (``real`` and ``origin``) or is made by it. What capture reads of an
existing object is guarded; what it writes goes into an overlay and is replayed by ``replay`` in emitted code.
``snapshot`` gives the undo of the next mutation; every mutator calls ``m.touch(self)`` first.
"""
from sot.values.objects.exceptions import ExceptionValue
from sot.values.objects.instances import DELETED, DictValue, ObjectValue, guard_key, written_by
from sot.values.objects.sequences import ListValue, TupleValue, make_tuple, takes_a_sequence
from sot.values.objects.sets import SetValue
from sot.values.objects.views import MappingProxy

__all__ = ["DELETED", "DictValue", "ExceptionValue", "ListValue", "MappingProxy", "ObjectValue", "SetValue",
           "TupleValue", "guard_key", "make_tuple", "takes_a_sequence", "written_by"]
