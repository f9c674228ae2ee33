/* An evaluator of frames that does nothing but hand them on: what PEP 523 itself costs, below which no hook gets. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *evaluate(PyThreadState *tstate, struct _PyInterpreterFrame *frame, int throwflag)
{
    return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
}

static PyObject *on(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluate);
    Py_RETURN_NONE;
}

static PyObject *off(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), _PyEval_EvalFrameDefault);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"on", on, METH_NOARGS, "Puts itself in place of the interpreter's evaluator."},
    {"off", off, METH_NOARGS, "Puts the interpreter's evaluator back."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "null_evaluator", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_null_evaluator(void) { return PyModule_Create(&definition); }
