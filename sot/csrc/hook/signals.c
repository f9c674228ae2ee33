/* Signals while a capture lasts. torch's C++ calls Python in places where no exception may come out: one that a handler
   of a signal raises there (KeyboardInterrupt, a limit of time) ends the process. So what arrives is remembered, and
   Python's handlers run where the interpreter allows it: between two instructions that it executes.

   A signal is not blocked, for the system would hand it to another thread, and Python's own handler in C would run
   there. For as long as it takes that handler is exchanged for `remember`. */

#include "hook/hook.h"

#include <signal.h>
#include <stdatomic.h>

#ifndef NSIG
#define NSIG 65
#endif

static atomic_int arrived[NSIG], any_arrived;
static atomic_int holding;      /* are Python's handlers exchanged? */
static struct sigaction before[NSIG];
static char held[NSIG];
static int depth;               /* of captures within captures */
static unsigned long owner;     /* the thread: Python's main thread */
static struct Raised { PyObject *type, *value, *traceback; } raised; /* by a handler, which has ended the capture */

static void remember(int number)
{
    if (!atomic_load(&holding)) { /* set back at this moment */
        before[number].sa_handler(number);
        return;
    }
    atomic_store(&arrived[number], 1);
    atomic_store(&any_arrived, 1);
}

/* Whether a Python function handles the signal. 0 for a signal number that the system does not know. */
static int python_handles(PyObject *module, int number)
{
    PyObject *handler = PyObject_CallMethod(module, "getsignal", "i", number);
    if (handler == NULL) {
        PyErr_Clear();
        return 0;
    }
    int answer = PyCallable_Check(handler);
    Py_DECREF(handler);
    return answer;
}

static int hold(void)
{
    PyObject *module = PyImport_ImportModule("_signal");
    if (module == NULL) {
        return -1;
    }
    atomic_store(&holding, 1);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        held[number] = 0;
        if (sigaction(number, NULL, &action) != 0 || action.sa_flags & SA_SIGINFO || action.sa_handler == SIG_DFL
            || action.sa_handler == SIG_IGN || action.sa_handler == remember || !python_handles(module, number)) {
            continue;
        }
        before[number] = action;
        action.sa_handler = remember;
        held[number] = sigaction(number, &action, NULL) == 0;
    }
    Py_DECREF(module);
    return 0;
}

/* Tell Python's handlers in C what has arrived. */
static void pass_on(void)
{
    atomic_store(&any_arrived, 0);
    for (int number = 1; number < NSIG; number++) {
        if (atomic_exchange(&arrived[number], 0)) {
            before[number].sa_handler(number);
        }
    }
}

static void let_go(void)
{
    atomic_store(&holding, 0);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        if (held[number] && sigaction(number, NULL, &now) == 0 && now.sa_handler == remember) {
            sigaction(number, &before[number], NULL);
        }
    }
    pass_on();
}

/* A result, or what a handler has raised or raises now: that is what the user has asked for. */
static PyObject *after_handlers(PyObject *result)
{
    struct Raised of_call, of_handler = raised;
    PyErr_Fetch(&of_call.type, &of_call.value, &of_call.traceback);
    raised = (struct Raised){0};
    if (of_handler.type == NULL && PyErr_CheckSignals() < 0) {
        PyErr_Fetch(&of_handler.type, &of_handler.value, &of_handler.traceback);
    }
    if (of_handler.type == NULL) {
        PyErr_Restore(of_call.type, of_call.value, of_call.traceback);
        return result;
    }
    Py_XDECREF(of_call.type);
    Py_XDECREF(of_call.value);
    Py_XDECREF(of_call.traceback);
    Py_XDECREF(result);
    PyErr_Restore(of_handler.type, of_handler.value, of_handler.traceback);
    return NULL;
}

static int need_callable(Py_ssize_t count, const char *name)
{
    if (count < 1) {
        PyErr_Format(PyExc_TypeError, "%s() needs a callable", name);
        return -1;
    }
    return 0;
}

PyObject *without_signals(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (need_callable(count, "without_signals") < 0 || (depth == 0 && hold() < 0)) {
        return NULL;
    }
    owner = PyThread_get_thread_ident();
    depth++;
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, count - 1, NULL);
    if (--depth > 0) {
        return result;
    }
    let_go();
    return after_handlers(result);
}

PyObject *with_signals(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (need_callable(count, "with_signals") < 0) {
        return NULL;
    }
    if (depth == 0 || owner != PyThread_get_thread_ident()) {
        return PyObject_Vectorcall(args[0], args + 1, count - 1, NULL);
    }
    int outer = depth;
    depth = 0;
    let_go();
    PyObject *result = PyErr_CheckSignals() == 0 ? PyObject_Vectorcall(args[0], args + 1, count - 1, NULL) : NULL;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (hold() < 0) {
        PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
    depth = outer;
    return result;
}

/* A handler may raise an exception of any class, and capture catches some classes. So the exception is stored, and
   KeyboardInterrupt, which capture never catches, ends the capture. */
PyObject *handle_signals(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    if (atomic_load_explicit(&any_arrived, memory_order_relaxed) && depth == 1 && raised.type == NULL
        && owner == PyThread_get_thread_ident()) {
        pass_on();
        if (PyErr_CheckSignals() < 0) {
            PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
            PyErr_SetNone(PyExc_KeyboardInterrupt);
            return NULL;
        }
    }
    Py_RETURN_NONE;
}
