/* The state of a thread: its callback, and the end of its C stack. The evaluator is installed only while some thread
   has a callback. */

#include "hook/hook.h"

#ifdef __GLIBC__
#include <pthread.h>
#endif

PER_THREAD struct View view;
PyObject *everywhere;
int closed;
Py_ssize_t callbacks_set;
_PyFrameEvalFunction evaluate_before = _PyEval_EvalFrameDefault;

/* ---- the C stack -------------------------------------------------------------------------------- */

/* If less C stack than the reserve is left, a frame raises RecursionError instead of running. Under PEP 523 each
   Python call takes C stack, whatever sys.setrecursionlimit() allows. */
#define STACK_RESERVE ((size_t)256 * 1024)
#define STACK_UNKNOWN ((char *)UINTPTR_MAX)

void find_stack(void)
{
    view.stack_end = STACK_UNKNOWN;
    view.stack_reserve = 0;
#ifdef __GLIBC__
    pthread_attr_t attributes;
    void *end;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &end, &size) == 0) {
            view.stack_end = end;
            view.stack_reserve = Py_MIN(STACK_RESERVE, size / 4);
        }
        pthread_attr_destroy(&attributes);
    }
#endif
}

/* ---- asleep ------------------------------------------------------------------------------------- */

/* While the evaluator is installed, the interpreter calls functions the slow way. If only tensor work is of interest
   and there has been none for long, we uninstall it. The next tensor that torch makes installs it again (observe.c).
   Frames that already run by then are missed. So the wait before leaving doubles each time, and few frames are missed.
   */
#define FIRST_PATIENCE 4096
int asleep;
unsigned long long patience = FIRST_PATIENCE;

/* Only where no other evaluator is installed above or below: the order of evaluators must not change. */
void fall_asleep(PyInterpreterState *interp)
{
    if (!asleep && _PyInterpreterState_GetEvalFrameFunc(interp) == evaluate
        && evaluate_before == _PyEval_EvalFrameDefault) {
        _PyInterpreterState_SetEvalFrameFunc(interp, evaluate_before);
        asleep = 1;
    }
}

/* Has it come back? */
int wake_up(void)
{
    PyInterpreterState *interp = PyInterpreterState_Main();
    if (!asleep || closed || _PyInterpreterState_GetEvalFrameFunc(interp) != evaluate_before) {
        return 0;
    }
    _PyInterpreterState_SetEvalFrameFunc(interp, evaluate);
    asleep = 0;
    patience *= 2;
    return 1;
}

/* ---- installing the evaluator ------------------------------------------------------------------- */

/* The evaluator below all, found when ours was in no chain. */
static _PyFrameEvalFunction evaluate_first = _PyEval_EvalFrameDefault;
static int in_chain;

/* Install ours above all others. Another evaluator may call ours already. That cannot be known, and then the chain is a
   cycle, which pass_on_frame() ends. */
static void install(PyInterpreterState *interp)
{
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (current != evaluate) {
        asleep = 0;
        evaluate_before = current;
        if (!in_chain || current == _PyEval_EvalFrameDefault) { /* another may have removed us */
            evaluate_first = current;
            in_chain = 1;
        }
        _PyInterpreterState_SetEvalFrameFunc(interp, evaluate);
    }
}

/* An evaluator above us keeps us from leaving. One that came after us and is below us now, as in a cycle, is installed
   again only while it works: it does not expect that, and nobody would remove it. */
void uninstall(PyInterpreterState *interp)
{
    if (_PyInterpreterState_GetEvalFrameFunc(interp) == evaluate) {
        in_chain = evaluate_before != evaluate_first && another_compiler_works(PyThreadState_Get());
        if (!in_chain) {
            evaluate_before = evaluate_first;
        }
        _PyInterpreterState_SetEvalFrameFunc(interp, evaluate_before);
    }
}

/* ---- another compiler --------------------------------------------------------------------------- */

static PyObject *other_compiler; /* a C function that returns None while no other compiler is active in this thread */

PyObject *step_aside_for(PyObject *Py_UNUSED(module), PyObject *question)
{
    Py_XSETREF(other_compiler, Py_NewRef(question));
    Py_RETURN_NONE;
}

/* An evaluator above us captures frames itself, or only calls us: a compiler's may stay installed after its work. */
int another_compiler_works(PyThreadState *tstate)
{
    int above = current_evaluator(tstate) != evaluate;
    if (above ? current_evaluator(tstate) == _PyEval_EvalFrameDefault : evaluate_before == _PyEval_EvalFrameDefault) {
        return 0;
    }
    if (other_compiler == NULL) {
        return above;
    }
    PyObject *answer = PyObject_CallNoArgs(other_compiler);
    int works = answer != Py_None;
    if (answer == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(answer);
    return works;
}

/* ---- the callback ------------------------------------------------------------------------------- */

/* A Registration holds a thread's callback. It is in the dict of the thread's state, which Python clears when the
   thread ends. After a fork another thread may clear it. */

static int counts(PyObject *callback)
{
    return callback != NULL && callback != PLAIN;
}

/* Installs the evaluator while it is needed. */
void count_callback(PyObject *before, PyObject *after)
{
    wake_up();
    callbacks_set += counts(after) - counts(before);
    if (counts(after) && !counts(before) && !closed) { /* an older evaluator may have removed us */
        install(PyInterpreterState_Main());
    } else if (counts(before) && !counts(after) && callbacks_set == 0) {
        uninstall(PyInterpreterState_Main());
    }
}

static void exchange_callback(Registration *self, PyObject *callback, int counted)
{
    PyObject *before = self->callback;
    self->callback = Py_XNewRef(callback);
    if (view.registration == (PyObject *)self) {
        view.callback = callback;
    }
    if (counted) {
        count_callback(before, callback);
    }
    Py_XDECREF(before);
}

void register_callback(Registration *self, PyObject *callback)
{
    exchange_callback(self, callback, 1);
}

/* As if the thread had no callback. The evaluator stays installed if there is another, which would take the one that it
   finds meanwhile for the one before it. */
PyObject *evaluate_without_callback(PyThreadState *tstate, Frame *frame, Registration *mine)
{
    int is_only_one = current_evaluator(tstate) == evaluate && evaluate_before == _PyEval_EvalFrameDefault;
    PyObject *callback = Py_XNewRef(mine->callback);
    Py_INCREF(mine);
    exchange_callback(mine, PLAIN, is_only_one);
    PyObject *result = evaluate_plainly(tstate, frame, 0);
    exchange_callback(mine, callback, is_only_one);
    Py_DECREF(mine);
    Py_XDECREF(callback);
    return result;
}

static void registration_dealloc(PyObject *self)
{
    if (view.registration == self) {
        view.registration = NULL;
        view.callback = NULL;
    }
    register_callback((Registration *)self, NULL);
    COUNT(threads, -1);
    PyObject_Free(self);
}

PyTypeObject RegistrationType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Registration",
    .tp_basicsize = sizeof(Registration),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = registration_dealloc,
};

Registration *this_thread(void)
{
    if (view.registration != NULL) {
        return (Registration *)view.registration;
    }
    PyObject *dict = PyThreadState_GetDict();
    if (dict == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this thread has no state to keep a callback in");
        return NULL;
    }
    Registration *self = PyObject_New(Registration, &RegistrationType);
    if (self == NULL) {
        return NULL;
    }
    self->callback = NULL;
    COUNT(threads, 1);
    int failed = PyDict_SetItemString(dict, "sot._hook", (PyObject *)self);
    Py_DECREF(self);
    if (failed) {
        return NULL;
    }
    view.registration = (PyObject *)self;
    return self;
}
