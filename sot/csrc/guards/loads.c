/* How values of nodes are loaded, and which constants are the same. Nothing here runs Python code. */

#include "guards/program.h"

/* ---- constants ------------------------------------------------------------------------------------------ */

static int same_float(double a, double b)
{
    return memcmp(&a, &b, sizeof(double)) == 0 || (a != a && b != b);
}

/* Type and value are the same: 1, 1.0 and True are three constants, and so are 0.0 and -0.0. */
int same_constant(PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    if (Py_TYPE(a) != Py_TYPE(b)) {
        return 0;
    }
    if (PyFloat_CheckExact(a)) {
        return same_float(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    }
    if (PyComplex_CheckExact(a)) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return same_float(x.real, y.real) && same_float(x.imag, y.imag);
    }
    if (PyTuple_Check(a)) {
        Py_ssize_t size = PyTuple_GET_SIZE(a);
        int same = size == PyTuple_GET_SIZE(b);
        for (Py_ssize_t i = 0; same && i < size; i++) {
            same = same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        }
        return same;
    }
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0) {
        PyErr_Clear();
    }
    return same == 1;
}

/* ---- loads ---------------------------------------------------------------------------------------------- */

PyObject *dict_item(PyObject *dict, PyObject *key, Py_hash_t hash)
{
    PyObject *found = _PyDict_GetItem_KnownHash(dict, key, hash);
    if (found == NULL && PyErr_Occurred()) {
        PyErr_Clear();
    }
    return found;
}

static PyObject *nth_key(PyObject *dict, Py_ssize_t index)
{
    PyObject *key;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, NULL)) {
        if (index-- == 0) {
            return key;
        }
    }
    return NULL;
}

PyObject **items_of(PyObject *value)
{
    return PyList_Check(value) ? ((PyListObject *)value)->ob_item : ((PyTupleObject *)value)->ob_item;
}

PyObject **field_of(PyObject *value, const Node *node)
{
    return (PyObject **)((char *)value + node->number);
}

/* Borrowed, or NULL. An object without a dict gets one, as when Python reads it. */
static PyObject *dict_of_object(PyObject *object)
{
    PyObject **slot = _PyObject_GetDictPtr(object);
    if (slot != NULL && *slot == NULL) {
        PyObject *made = PyObject_GenericGetDict(object, NULL);
        if (made == NULL) {
            PyErr_Clear();
        }
        Py_XDECREF(made);
        slot = _PyObject_GetDictPtr(object);
    }
    return slot != NULL ? *slot : NULL;
}

PyObject *load(const Node *node, PyObject *from)
{
    switch (node->step) {
    case HELD:
        return node->operand;
    case DICT:
        return dict_of_object(from);
    case TYPE_DICT:
        return PyType_Check(from) ? dict_of_type((PyTypeObject *)from) : NULL;
    case ITEM:
        return PyDict_Check(from) ? dict_item(from, node->operand, node->hash) : NULL;
    case KEY:
        return PyDict_CheckExact(from) ? nth_key(from, node->number) : NULL;
    case INDEX:
        return (PyList_Check(from) || PyTuple_Check(from)) && node->number < Py_SIZE(from)
            ? items_of(from)[node->number] : NULL;
    case CELL:
        return PyCell_Check(from) ? PyCell_GET(from) : NULL;
    case FIELD: /* its parent's type is checked; NULL is None in some fields, and missing in others */
        return *field_of(from, node) != NULL ? *field_of(from, node) : node->operand;
    case ARG: /* not loaded from a parent */
        return NULL;
    }
    Py_UNREACHABLE();
}
