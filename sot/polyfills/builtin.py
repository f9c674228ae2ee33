"""Builtins that call user code, in Python: making instances, attributes by name, hashing."""
from __future__ import annotations


def type_call(cls, /, *args, **kwargs):
    """``type.__call__``: what calling a class does."""
    obj = cls.__new__(cls, *args, **kwargs)
    if isinstance(obj, cls):
        result = type(obj).__init__(obj, *args, **kwargs)
        if result is not None:
            raise TypeError(f"__init__() should return None, not {type(result).__name__!r}")
    return obj


def cached_property_get(obj, name, func):
    """The action of functools.cached_property on an instance without a value."""
    value = func(obj)
    obj.__dict__[name] = value
    return value


def type_attribute(cls, name):
    """The class attribute of a name, unbound; None if there is none."""
    for owner in cls.__mro__:
        if name in owner.__dict__:
            return owner.__dict__[name]
    return None


def isinstance_of_any(obj, classes):
    """``isinstance`` by the metaclasses of classes."""
    for cls in classes:
        if type(obj) is cls or type(cls).__instancecheck__(cls, obj):
            return True
    return False


def issubclass_of_any(subclass, classes):
    """``issubclass`` by the metaclasses of classes."""
    for cls in classes:
        if type(cls).__subclasscheck__(cls, subclass):
            return True
    return False


def getattribute_or_getattr(obj, name, hook, fallback):
    """The attribute access of a class with ``__getattr__``, which is called after the exception is gone."""
    try:
        return hook(obj, name)
    except AttributeError:
        pass
    return fallback(obj, name)


def getattr_or_default(obj, name, default):
    """``getattr(obj, name, default)``"""
    try:
        return getattr(obj, name)
    except AttributeError:
        return default


def has_attribute(obj, name):
    """``hasattr(obj, name)``"""
    try:
        getattr(obj, name)
    except AttributeError:
        return False
    return True


def call_for_effect(function, *args):
    """A call whose result is dropped."""
    function(*args)


def hash_tuple(items):
    """The hash of a tuple, by the hashes of its elements."""
    return combined_hash([hash(item) for item in items])


def combined_hash(hashes):
    return hash(tuple([_Hashed(value) for value in hashes]))


class _Hashed:
    """Has the hash that it was made with."""

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return self.value


def dir_of(obj):
    """``dir(obj)`` by a ``__dir__`` of its class"""
    return sorted(type(obj).__dir__(obj))


# ---- class statements -------------------------------------------------------------------------------------------
def prepared(meta, name, bases, keywords):
    return meta.__prepare__(name, bases, **keywords)


def call_hooks(cls, named, keywords):
    """What ``type.__new__`` calls when the class exists."""
    for member, name in named:
        type(member).__set_name__(member, cls, name)
    super(cls, cls).__init_subclass__(**keywords)
    return cls
