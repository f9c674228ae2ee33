/* Compares tensors without torch/tensors.cpp, with functions that torch offers to Python.

   In: functions of torch, written in C, that run no Python code. Each specification has one that tells whether a value
   meets it, and two that return the dispatch keys that this thread adds to and removes from those of every tensor.
   Out: the same results as torch/tensors.cpp, at 50 to 100 ns per tensor.

   The garbage collector is off meanwhile: its finalizers may run Python code, and the values of nodes are borrowed. */

#include "guards/program.h"

static PyObject *including, *excluding;

static int slow_all_match(const TensorCheck *checks, int count)
{
    int all = 1, collects = PyGC_Disable();
    for (int i = 0; all && i < count; i++) {
        PyObject *answer = PyObject_CallOneArg((PyObject *)checks[i].spec, checks[i].value);
        all = answer == Py_True;
        Py_XDECREF(answer);
    }
    PyErr_Clear(); /* the value is not a tensor */
    if (collects) {
        PyGC_Enable();
    }
    return all;
}

/* The bits of a function's result; none after an exception, a state in which no program is made. */
static unsigned long long keys_of(PyObject *function)
{
    PyObject *keys = function != NULL ? PyObject_CallNoArgs(function) : NULL;
    PyObject *bits = keys != NULL ? PyObject_CallMethod(keys, "raw_repr", NULL) : NULL;
    unsigned long long found = bits != NULL ? PyLong_AsUnsignedLongLong(bits) : 0;
    Py_XDECREF(keys);
    Py_XDECREF(bits);
    PyErr_Clear();
    return found;
}

static void slow_thread_keys(unsigned long long keys[2])
{
    int collects = PyGC_Disable();
    keys[0] = keys_of(including);
    keys[1] = keys_of(excluding);
    if (collects) {
        PyGC_Enable();
    }
}

static const TensorApi slow_api = {slow_all_match, slow_thread_keys};

const TensorApi *tensor_api = &slow_api;

/* ---- the functions of the module ------------------------------------------------------------------------ */

PyObject *use_tensor_api(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    const TensorApi *found = PyCapsule_GetPointer(capsule, TENSOR_API_NAME);
    if (found == NULL) {
        return NULL;
    }
    tensor_api = found;
    Py_RETURN_NONE;
}

PyObject *use_slow_tensors(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *include, *exclude;
    if (!PyArg_ParseTuple(args, "OO:use_slow_tensors", &include, &exclude)) {
        return NULL;
    }
    Py_XSETREF(including, Py_NewRef(include));
    Py_XSETREF(excluding, Py_NewRef(exclude));
    Py_RETURN_NONE;
}

static void release_check(PyObject *capsule)
{
    Py_DECREF((PyObject *)PyCapsule_GetPointer(capsule, TENSOR_SPEC_NAME));
}

PyObject *slow_tensor_spec(PyObject *Py_UNUSED(module), PyObject *check)
{
    PyObject *capsule = PyCapsule_New(check, TENSOR_SPEC_NAME, release_check);
    if (capsule != NULL) {
        Py_INCREF(check);
    }
    return capsule;
}
