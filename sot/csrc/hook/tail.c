/* Tail(function, args): a result that means "the result of function(*args)". The receiver calls the function only
   after it has returned itself. So a chain of Tails needs no deeper stack. The loop is in C, so
   it adds no Python frame between the frames of the program.

   While a Python function of a Tail is called, only its frame keeps the arguments alive. `handed` holds them until
   the frame has its own references, which is when the evaluator (hook/evaluate.c) sees it. */

#include "hook/hook.h"

typedef struct {
    PyObject_HEAD
    PyObject *function;
    PyObject *args; /* a tuple */
    PyObject *clock; /* measures from here to the next clock or the end; or NULL */
} Tail;

PER_THREAD PyObject *handed;

static PyObject *tail_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *function, *values;
    static char *names[] = {"function", "args", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!:Tail", names, &function, &PyTuple_Type, &values)) {
        return NULL;
    }
    Tail *self = (Tail *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->function = Py_NewRef(function);
        self->args = Py_NewRef(values);
    }
    return (PyObject *)self;
}

static int tail_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Tail *)self)->function);
    Py_VISIT(((Tail *)self)->args);
    return 0;
}

static int tail_clear(PyObject *self)
{
    Py_CLEAR(((Tail *)self)->function);
    Py_CLEAR(((Tail *)self)->args);
    Py_CLEAR(((Tail *)self)->clock);
    return 0;
}

static void tail_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    tail_clear(self);
    Py_TYPE(self)->tp_free(self);
}

/* The arguments. Only the callee must keep them alive. */
static PyObject *tail_take(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *args = ((Tail *)self)->args;
    ((Tail *)self)->args = NULL;
    return args != NULL ? args : PyTuple_New(0);
}

static PyMethodDef tail_methods[] = {
    {"take", tail_take, METH_NOARGS, "The arguments, which the Tail holds no longer."},
    {0},
};

static PyMemberDef tail_members[] = {
    {"function", T_OBJECT, offsetof(Tail, function), READONLY, "the function that returns the result"},
    {"args", T_OBJECT, offsetof(Tail, args), READONLY, "the arguments of the function"},
    {0},
};

PyTypeObject TailType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Tail",
    .tp_doc = "Tail(function, args): the result is that of function(*args).",
    .tp_basicsize = sizeof(Tail),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = tail_new,
    .tp_dealloc = tail_dealloc,
    .tp_traverse = tail_traverse,
    .tp_clear = tail_clear,
    .tp_methods = tail_methods,
    .tp_members = tail_members,
};

void tail_set_clock(PyObject *tail, PyObject *clock)
{
    Py_XSETREF(((Tail *)tail)->clock, Py_NewRef(clock));
}

/* The clock of a Tail runs until the next one begins. */
static void change_clock(struct Running *running, PyObject *clock)
{
    if (clock == NULL) {
        return;
    }
    if (running->clock != NULL) {
        clock_end(running);
    }
    clock_begin(running, clock);
}

static PyObject *call_tail(PyObject *function, PyObject *args)
{
    PyObject *before = handed;
    handed = args;
    PyObject *result = PyObject_Vectorcall(function, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), NULL);
    Py_CLEAR(handed);
    handed = before;
    return result;
}

/* Follows Tails: the result of the last call. Takes over the reference; NULL stays NULL. */
PyObject *follow_tails(PyObject *answer)
{
    struct Running running = {0};
    while (answer != NULL && Py_IS_TYPE(answer, &TailType)) {
        change_clock(&running, ((Tail *)answer)->clock);
        PyObject *function = Py_NewRef(((Tail *)answer)->function);
        PyObject *args = tail_take(answer, NULL);
        Py_DECREF(answer);
        if (args == NULL) {
            answer = NULL;
        } else if (PyFunction_Check(function)) {
            answer = call_tail(function, args);
        } else {
            answer = PyObject_Call(function, args, NULL);
            Py_DECREF(args);
        }
        Py_DECREF(function);
    }
    if (running.clock != NULL) {
        clock_end(&running);
    }
    return answer;
}

PyObject *run_tails(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count == 0) {
        PyErr_SetString(PyExc_TypeError, "run() needs a function");
        return NULL;
    }
    return follow_tails(PyObject_Vectorcall(args[0], args + 1, count - 1, NULL));
}
