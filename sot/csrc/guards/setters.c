/* Counts assignments to the class of an object, and of another dict to its __dict__, because CPython does not report
   them.

   In: nothing. Each of the two assignments is made by one C function: the setter of `object.__class__`, and that of
   the `__dict__` of instances of Python classes. No other code of CPython calls these setters. Our functions replace
   them, count, and call them.
   Out: a number that differs if there may have been an assignment meanwhile.

   There are other ways to change an object's __dict__. From 3.12 on CPython takes apart a dict without other
   references, so that its values are the object's own again. That ends the dict, which is reported (guards/dicts.c).
   The garbage collector takes the dict from an object that is garbage, but then nothing can observe it. Classes whose
   dict does not come from Python (exceptions, functions, extensions) may have other ways. setters_tell_of_dict()
   returns false for them.

   The number rises before the assignment and after it, because Python code may run in between: an audit hook before
   the change, and a finalizer of the old dict after it. */

#define PY_SSIZE_T_CLEAN
#include "guards/guards.h"

#include "guards/compat.h"

static struct {
    enum { UNTRIED, TELLING, UNAVAILABLE } state;
    PyObject *dict_name;
    PyGetSetDef *of_class, *of_dict[2]; /* a class may also have added weak references, so CPython has two of them */
    setter set_class, set_dict; /* CPython's own */
    _Atomic unsigned long long count; /* interpreters with separate locks share the setters */
} all;

/* ---- the replaced setters --------------------------------------------------------------------------------- */

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

/* The class's own attribute of this name, if CPython made it from such a definition; else NULL. */
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

/* The setter of a class that is made for this purpose. CPython keeps the definitions. */
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

/* ---- interface ---------------------------------------------------------------------------------------------- */

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
    all.state = UNAVAILABLE; /* any user of the number finds a different one from now on */
}
