/* Counts the operations that torch runs, for reports: those inside graphs and those that Python called.

   In: start(callable) and stop(), and around each graph or capture: enter(where) and leave(previous).
   Out: leave() returns the number of operations since enter(). The callable is called, with the name of
        the operation, before each operation that Python runs outside graphs and captures.

   Only direct calls count, not the operations that an operation is made of, and not those of the autograd
   engine. An observer of torch does not change the program's results, as a mode would. The observer runs
   without the GIL, as operations do; only the callable needs it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/record_function.h>

namespace {

enum Where : long { PYTHON = 0, GRAPH = 1, CAPTURE = 2 };

thread_local int depth = 0;
thread_local long where = PYTHON;
thread_local long long count = 0;

PyObject *callable = nullptr; /* owned; set and cleared under the GIL */
at::CallbackHandle handle = 0;

/* Call Python. An exception there is reported and dropped: the operation continues. */
void tell(const char *name)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    if (callable != nullptr && !PyErr_Occurred()) {
        PyObject *fn = Py_NewRef(callable);
        PyObject *answer = PyObject_CallFunction(fn, "s", name);
        if (answer == nullptr) {
            PyErr_WriteUnraisable(fn);
        }
        Py_XDECREF(answer);
        Py_DECREF(fn);
    }
    PyGILState_Release(gil);
}

std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction &fn)
{
    if (depth++ == 0 && fn.scope() == at::RecordScope::FUNCTION && !fn.isAsync()) {
        count++;
        if (where == PYTHON) {
            long before = where;
            where = CAPTURE; /* the work of the callable is not the program's */
            tell(fn.name());
            where = before;
        }
    }
    return nullptr;
}

void ends(const at::RecordFunction &, at::ObserverContext *)
{
    depth--;
}

PyObject *stop(PyObject *, PyObject *)
{
    if (handle != 0) {
        at::removeCallback(handle);
        handle = 0;
    }
    Py_CLEAR(callable);
    Py_RETURN_NONE;
}

PyObject *start(PyObject *module, PyObject *fn)
{
    if (!PyCallable_Check(fn)) {
        return PyErr_Format(PyExc_TypeError, "start needs a callable, not %R", fn);
    }
    Py_XDECREF(stop(module, nullptr));
    callable = Py_NewRef(fn);
    handle = at::addGlobalCallback(at::RecordFunctionCallback(begins, ends).scopes(
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    Py_RETURN_NONE;
}

PyObject *enter(PyObject *, PyObject *arg)
{
    long next = PyLong_AsLong(arg);
    if (next == -1 && PyErr_Occurred()) {
        return nullptr;
    }
    PyObject *before = Py_BuildValue("lL", where, count);
    where = next;
    count = 0;
    return before;
}

PyObject *leave(PyObject *, PyObject *before)
{
    long long ran = count;
    if (!PyArg_ParseTuple(before, "lL", &where, &count)) {
        return nullptr;
    }
    return PyLong_FromLongLong(ran);
}

PyMethodDef methods[] = {
    {"start", start, METH_O, "Calls fn(name) before each operation that Python runs, until stop()."},
    {"stop", stop, METH_NOARGS, "Stops counting."},
    {"enter", enter, METH_O, "This thread is now in a graph (GRAPH) or a capture (CAPTURE). For leave()."},
    {"leave", leave, METH_O, "Restores the state before enter(); returns the number of operations."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_tally", "Counts operations, for reports.", -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit__tally(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != nullptr && (PyModule_AddIntConstant(module, "GRAPH", GRAPH) < 0 ||
                              PyModule_AddIntConstant(module, "CAPTURE", CAPTURE) < 0)) {
        Py_CLEAR(module);
    }
    return module;
}
