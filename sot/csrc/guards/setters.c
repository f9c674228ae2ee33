/* Assignments to the class of an object, and of another dict to be its __dict__: CPython tells nobody of them, so they
   are counted.

   In: nothing. Each of the two goes by one C function, that which `object.__class__` or the `__dict__` of instances of
   Python classes has for assignments; no other code of CPython calls them. Ours take their places, count and call them.
   Out: a number that is another one when there may have been an assignment meanwhile.

   What else makes another dict an object's __dict__: from 3.12 on CPython takes a dict that nobody else holds apart, so
   that its values are the object's own again, and the collector takes the dict from an object that is garbage. The first
   ends the dict, which tells (guards/dicts.c); the second nobody is left to see. Classes with a dict that is not of Python's making (of
   exceptions, functions, extensions) may have ways of their own: setters_tell_of_dict() says no for them.

   The number rises before the assignment and after it: Python code may run in between, of an audit hook before all is
   changed, and at the end of the dict that was there before when all is. */

#define PY_SSIZE_T_CLEAN
#include "guards/guards.h"

#include "guards/compat.h"

static struct {
    enum { UNTRIED, TELLING, UNAVAILABLE } state;
    PyObject *dict_name;
    PyGetSetDef *of_class, *of_dict[2]; /* a class may have added weak references, too: CPython has two of them */
    setter set_class, set_dict; /* CPython's own */
    _Atomic unsigned long long count; /* interpreters with a lock of their own share the setters */
} all;

/* ---- in place of CPython's --------------------------------------------------------------------------------- */

static int count_and_set(setter original, PyObject *object, PyObject *value, void *closure)
{
    all.count++;
    int result = original(object, value, closure);
    all.count++;
    return result;
}

static int set_class(PyObject *object, PyObject *value, void *closure)
{
    return count_and_set(all.set_class, object, value, closure);
}

static int set_dict(PyObject *object, PyObject *value, void *closure)
{
    return count_and_set(all.set_dict, object, value, closure);
}

/* What a class itself has under a name, if CPython made it of such a definition; else NULL. */
static PyGetSetDef *definition(PyTypeObject *type, PyObject *name)
{
    PyObject *dict = dict_of_type(type);
    PyObject *found = dict != NULL ? PyDict_GetItemWithError(dict, name) : NULL;
    PyErr_Clear();
    return found != NULL && Py_IS_TYPE(found, &PyGetSetDescr_Type) ? ((PyGetSetDescrObject *)found)->d_getset : NULL;
}

static PyGetSetDef *definition_of_class(void)
{
    PyObject *name = PyUnicode_InternFromString("__class__");
    PyGetSetDef *found = name != NULL ? definition(&PyBaseObject_Type, name) : NULL;
    Py_XDECREF(name);
    return found;
}

/* That of a class made for the purpose. The definitions themselves are CPython's, and stay. */
static PyGetSetDef *definition_of_dict(PyObject *base)
{
    PyObject *probe = base != NULL ? PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){}", "probe", base) : NULL;
    PyGetSetDef *found = probe != NULL ? definition((PyTypeObject *)probe, all.dict_name) : NULL;
    Py_XDECREF(probe);
    return found;
}

static int find_definitions(void)
{
    PyObject *with_references = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){s(s)}", "probe", "__slots__",
                                                      "__weakref__");
    all.dict_name = PyUnicode_InternFromString("__dict__");
    if (all.dict_name != NULL && with_references != NULL) {
        all.of_class = definition_of_class();
        all.of_dict[0] = definition_of_dict((PyObject *)&PyBaseObject_Type);
        all.of_dict[1] = definition_of_dict(with_references);
    }
    Py_XDECREF(with_references);
    PyErr_Clear();
    return all.of_class != NULL && all.of_class->set != NULL && all.of_dict[0] != NULL && all.of_dict[0]->set != NULL
        && all.of_dict[1] != NULL && all.of_dict[1]->set == all.of_dict[0]->set;
}

/* ---- who asks ---------------------------------------------------------------------------------------------- */

int setters_tell(void)
{
    if (all.state == UNTRIED) {
        all.state = find_definitions() ? TELLING : UNAVAILABLE;
        if (all.state == TELLING) {
            all.set_class = all.of_class->set;
            all.set_dict = all.of_dict[0]->set;
            all.of_class->set = set_class;
            all.of_dict[0]->set = all.of_dict[1]->set = set_dict;
        }
    }
    return all.state == TELLING;
}

int setters_tell_of_dict(PyTypeObject *type)
{
    int found = 0;
    for (Py_ssize_t i = 0; type->tp_mro != NULL && i < PyTuple_GET_SIZE(type->tp_mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
        PyObject *dict = dict_of_type(base);
        int has = dict != NULL ? PyDict_Contains(dict, all.dict_name) : 0;
        PyGetSetDef *own = has ? definition(base, all.dict_name) : NULL;
        if (has && (own == NULL || own->set != set_dict)) {
            PyErr_Clear();
            return 0;
        }
        found |= has;
    }
    return found;
}

unsigned long long setters_count(void)
{
    return all.state == TELLING ? all.count : ++all.count;
}

void setters_close(void)
{
    if (all.state == TELLING && all.of_class->set == set_class) {
        all.of_class->set = all.set_class;
    }
    for (int i = 0; all.state == TELLING && i < 2; i++) {
        if (all.of_dict[i]->set == set_dict) {
            all.of_dict[i]->set = all.set_dict;
        }
    }
    all.state = UNAVAILABLE; /* whoever relies on the number finds another one from now on */
}
