/* Differences between CPython 3.11 and 3.14 in what guards read: dicts of types, version tags, watchers of dicts.

   Every change of a dict gives it a version tag that no dict has had before. A type has a tag that changes with it and
   its bases. On 3.12 and 3.13 the public header calls a dict's tag deprecated, but offers no replacement for reading
   it. 3.13 does not change the tag if the dict's values are inside the object that owns the dict. Such a dict gets a
   table of its own first, which programs cannot observe.

   3.14 has no version tags. Its dicts are watched from the first call, and the record of a watched dict
   (guards/dicts.c) has a number that changes with the dict. */

#ifndef SOT_GUARDS_COMPAT_H
#define SOT_GUARDS_COMPAT_H

#include <stddef.h>

/* Not in a header of 3.13. */
PyAPI_FUNC(void) _PyTraceback_Add(const char *name, const char *file, int line);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* A new reference, or NULL if the object is gone. */
static inline PyObject *referent(PyObject *reference)
{
    PyObject *object = PyWeakref_GET_OBJECT(reference);
    return Py_IsNone(object) ? NULL : Py_NewRef(object);
}

/* Borrowed. */
static inline PyObject *dict_of_type(PyTypeObject *type)
{
#if PY_VERSION_HEX < 0x030C0000
    return type->tp_dict;
#else
    PyObject *dict = PyType_GetDict(type);
    Py_XDECREF(dict);
    return dict;
#endif
}

#if PY_VERSION_HEX < 0x030E0000

#if PY_VERSION_HEX < 0x030D0000

static inline int has_version(PyDictObject *Py_UNUSED(dict)) { return 1; }

#else

/* Removing the last item gives the dict a table of its own, with room to put the item back. */
static inline int own_table(PyObject *dict)
{
    PyObject *item = PyObject_CallMethod(dict, "popitem", NULL);
    int done = item != NULL && PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1)) == 0;
    Py_XDECREF(item);
    if (!done) {
        PyErr_Clear();
    }
    return done;
}

static inline int has_version(PyDictObject *dict)
{
    return dict->ma_values == NULL || (dict->ma_used > 0 && own_table((PyObject *)dict) && dict->ma_values == NULL);
}

#endif

/* The word that changes with a dict; NULL if there is none. `held` keeps the memory of the word alive. */
static inline const void *word_of_dict_version(PyObject *dict, WatchedDict **Py_UNUSED(held))
{
    return has_version((PyDictObject *)dict) ? &((PyDictObject *)dict)->ma_version_tag : NULL;
}

/* The dict whose version this word is. */
static inline PyObject *dict_of_word(const void *word)
{
    return (PyObject *)((char *)word - offsetof(PyDictObject, ma_version_tag));
}

#endif

#if PY_VERSION_HEX < 0x030C0000

#define WATCHER_BITS 0

/* An object that has a dict keeps it. */
#define DICTS_END_BY_SETTERS_ONLY 1

/* Dicts cannot be watched. */
typedef enum { PyDict_EVENT_DEALLOCATED } PyDict_WatchEvent;
typedef int (*PyDict_WatchCallback)(PyDict_WatchEvent, PyObject *, PyObject *, PyObject *);
static inline int PyDict_AddWatcher(PyDict_WatchCallback Py_UNUSED(callback)) { return -1; }
static inline int PyDict_ClearWatcher(int Py_UNUSED(watcher)) { return -1; }
static inline int PyDict_Watch(int Py_UNUSED(watcher), PyObject *Py_UNUSED(dict)) { return -1; }
static inline int PyDict_Unwatch(int Py_UNUSED(watcher), PyObject *Py_UNUSED(dict)) { return -1; }

#else

#if PY_VERSION_HEX < 0x030E0000
/* The lowest bits of a version tag name the watchers of the dict. Their change is not a change of the dict. */
#define WATCHER_BITS ((uint64_t)0xff)
#else
#define WATCHER_BITS ((uint64_t)0)
#endif

/* The values of a dict without other references may move back into its object. */
#define DICTS_END_BY_SETTERS_ONLY 0

#endif

#if PY_VERSION_HEX < 0x030E0000

static inline uint64_t version_of_dict(PyObject *dict)
{
    return ((PyDictObject *)dict)->ma_version_tag & ~WATCHER_BITS;
}

#endif

/* The word that changes with a class; NULL if it has no version now. The rest of the tag never changes. */
static inline const void *word_of_type_version(PyTypeObject *type)
{
    return type->tp_version_tag != 0 ? &type->tp_version_tag : NULL;
}

#endif
