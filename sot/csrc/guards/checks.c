/* Checks of the value of a node. */

#include "guards/program.h"

static Py_ssize_t length_of(PyObject *value)
{
    if (PyList_Check(value) || PyTuple_Check(value)) {
        return Py_SIZE(value);
    }
    if (PyDict_Check(value)) {
        return PyDict_GET_SIZE(value);
    }
    return PyAnySet_Check(value) ? PySet_GET_SIZE(value) : -1;
}

static int has_keys(PyObject *dict, PyObject *keys)
{
    PyObject *key;
    Py_ssize_t position = 0, i = 0;
    if (!PyDict_CheckExact(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) {
        return 0;
    }
    while (PyDict_Next(dict, &position, &key, NULL)) {
        if (!same_constant(PyTuple_GET_ITEM(keys, i++), key)) {
            return 0;
        }
    }
    return 1;
}

static int has_code(PyObject *value, PyObject *code_and_defaults)
{
    if (!PyFunction_Check(value)) {
        return 0;
    }
    PyFunctionObject *f = (PyFunctionObject *)value;
    PyObject *found[] = {f->func_code, f->func_defaults, f->func_kwdefaults};
    for (int i = 0; i < 3; i++) {
        if ((found[i] != NULL ? found[i] : Py_None) != PyTuple_GET_ITEM(code_and_defaults, i)) {
            return 0;
        }
    }
    return 1;
}

/* A class makes its own descriptors once, so address, kind and owner identify a descriptor. */
static int is_found(const Check *check, PyObject *found)
{
    return found == check->second
        && (check->owner_of_second == NULL
            || (Py_IS_TYPE(found, check->kind_of_second) && PyDescr_TYPE(found) == check->owner_of_second));
}

int check_holds(const Check *check, PyObject *value)
{
    switch (check->kind) {
    case TYPE:
    case ANY_TENSOR: /* of a class; its metadata has not been used */
        return (PyObject *)Py_TYPE(value) == check->operand;
    case IS:
        return value == check->operand;
    case EQUALS:
        return same_constant(check->operand, value);
    case LENGTH:
        return length_of(value) == check->number;
    case KEYS:
        return has_keys(value, check->operand);
    case HAS:
    case LACKS:
        return PyDict_Check(value)
            && (dict_item(value, check->operand, check->number) != NULL) == (check->kind == HAS);
    case EMPTY:
        return PyDict_Check(value) && PyDict_GET_SIZE(value) == 0;
    case CODE:
        return has_code(value, check->operand);
    case LOOKUP:
        return PyType_Check(value) && is_found(check, _PyType_Lookup((PyTypeObject *)value, check->operand));
    case TENSOR: /* one call checks all tensors */
        return 1;
    }
    Py_UNREACHABLE();
}
