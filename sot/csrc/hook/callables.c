/* Callables around another callable, without a frame: plain(fn) hides the callback while fn runs; Rescued calls
   another function if the first one raises; Choice calls the function that another one chooses. */

#include "hook/hook.h"

/* ---- plain(fn) ---------------------------------------------------------------------------------- */
typedef struct {
    PyObject_HEAD
    PyObject *wrapped;
    PyObject *weakrefs;
    vectorcallfunc vectorcall;
} Plain;

static PyObject *plain_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                  PyObject *kwnames)
{
    int before = view.hidden;
    view.hidden = 1;
    PyObject *result = PyObject_Vectorcall(((Plain *)self)->wrapped, args, nargsf, kwnames);
    view.hidden = before;
    return result;
}

static int plain_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Plain *)self)->wrapped);
    return 0;
}

static int plain_clear(PyObject *self)
{
    Py_SETREF(((Plain *)self)->wrapped, Py_NewRef(Py_None)); /* a finalizer may still call it */
    return 0;
}

static void plain_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, plain_dealloc)
    if (((Plain *)self)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    Py_CLEAR(((Plain *)self)->wrapped);
    COUNT(plains, -1);
    PyObject_GC_Del(self);
    Py_TRASHCAN_END
}

static PyObject *plain_repr(PyObject *self)
{
    return PyUnicode_FromFormat("sot._hook.plain(%R)", ((Plain *)self)->wrapped);
}

static PyMemberDef plain_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Plain, wrapped), READONLY, "the wrapped callable"},
    {0},
};

PyTypeObject PlainType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Plain",
    .tp_doc = "Calls the wrapped callable with this thread's callback hidden.",
    .tp_basicsize = sizeof(Plain),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
        | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = plain_dealloc,
    .tp_traverse = plain_traverse,
    .tp_clear = plain_clear,
    .tp_repr = plain_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Plain, vectorcall),
    .tp_weaklistoffset = offsetof(Plain, weakrefs),
    .tp_members = plain_members,
};

PyObject *plain(PyObject *Py_UNUSED(module), PyObject *fn)
{
    if (!PyCallable_Check(fn)) {
        return PyErr_Format(PyExc_TypeError, "plain() needs a callable, not %R", fn);
    }
    Plain *self = PyObject_GC_New(Plain, &PlainType);
    if (self == NULL) {
        return NULL;
    }
    self->wrapped = Py_NewRef(fn);
    self->weakrefs = NULL;
    self->vectorcall = plain_vectorcall;
    COUNT(plains, 1);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* ---- Rescued(run, rescue) ----------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *run;    /* may be replaced */
    /* called with the exception and the arguments: its result counts; PLAIN propagates the exception */
    PyObject *rescue;
    PyObject *weakrefs;
    vectorcallfunc vectorcall;
} Rescued;

/* There is an exception. A new reference to what counts as the result, or NULL. */
static PyObject *ask_rescue(Rescued *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    PyObject *given = PyTuple_New(count);
    for (Py_ssize_t i = 0; given != NULL && i < count; i++) {
        PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    }
    PyObject *result = given != NULL ? PyObject_CallFunctionObjArgs(self->rescue, value, given, NULL) : NULL;
    Py_XDECREF(given);
    if (result == PLAIN) {
        Py_CLEAR(result);
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return result;
}

static PyObject *rescued_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Rescued *self = (Rescued *)object;
    Py_INCREF(self);
    PyObject *run = Py_NewRef(self->run);
    PyObject *result = PyObject_Vectorcall(run, args, nargsf, kwnames);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        result = ask_rescue(self, args, PyVectorcall_NARGS(nargsf));
    }
    Py_DECREF(run);
    Py_DECREF(self);
    return result;
}

static int rescued_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Rescued *)self)->run);
    Py_VISIT(((Rescued *)self)->rescue);
    return 0;
}

static int rescued_clear(PyObject *self)
{
    Py_SETREF(((Rescued *)self)->run, Py_NewRef(Py_None)); /* a finalizer may still call it */
    Py_SETREF(((Rescued *)self)->rescue, Py_NewRef(Py_None));
    return 0;
}

static void rescued_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, rescued_dealloc)
    if (((Rescued *)self)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    Py_CLEAR(((Rescued *)self)->run);
    Py_CLEAR(((Rescued *)self)->rescue);
    PyObject_GC_Del(self);
    Py_TRASHCAN_END
}

static PyObject *rescued_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"run", "rescue", NULL};
    PyObject *run, *rescue;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Rescued", names, &run, &rescue)) {
        return NULL;
    }
    Rescued *self = (Rescued *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->run = Py_NewRef(run);
        self->rescue = Py_NewRef(rescue);
        self->vectorcall = rescued_vectorcall;
    }
    return (PyObject *)self;
}

static PyMemberDef rescued_members[] = {
    {"run", T_OBJECT, offsetof(Rescued, run), 0, "the wrapped callable"},
    {"__wrapped__", T_OBJECT, offsetof(Rescued, run), READONLY, "the wrapped callable"},
    {0},
};

PyTypeObject RescuedType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Rescued",
    .tp_doc = "Rescued(run, rescue): calls `run`. If that raises, the result of rescue(exception, arguments) is the "
              "result; PLAIN propagates the exception.",
    .tp_basicsize = sizeof(Rescued),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = rescued_new,
    .tp_dealloc = rescued_dealloc,
    .tp_traverse = rescued_traverse,
    .tp_clear = rescued_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Rescued, vectorcall),
    .tp_weaklistoffset = offsetof(Rescued, weakrefs),
    .tp_members = rescued_members,
};

/* ---- Choice(choose) ------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    PyObject *choose;
    vectorcallfunc vectorcall;
} Choice;

static PyObject *choice_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t count = PyVectorcall_NARGS(nargsf); /* not PY_VECTORCALL_ARGUMENTS_OFFSET: args are used twice */
    PyObject *choose = Py_NewRef(((Choice *)self)->choose);
    PyObject *chosen = PyObject_Vectorcall(choose, args, (size_t)count, kwnames);
    Py_DECREF(choose);
    if (chosen == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(chosen, args, (size_t)count, kwnames);
    Py_DECREF(chosen);
    return result;
}

static int choice_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Choice *)self)->choose);
    return 0;
}

static int choice_clear(PyObject *self)
{
    Py_SETREF(((Choice *)self)->choose, Py_NewRef(Py_None)); /* a finalizer may still call it */
    return 0;
}

static void choice_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(((Choice *)self)->choose);
    PyObject_GC_Del(self);
}

static PyObject *choice_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *choose;
    if (!PyArg_ParseTuple(args, "O:Choice", &choose)) {
        return NULL;
    }
    Choice *self = (Choice *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->choose = Py_NewRef(choose);
        self->vectorcall = choice_vectorcall;
    }
    return (PyObject *)self;
}

PyTypeObject ChoiceType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Choice",
    .tp_doc = "Choice(choose): calls choose(...), then, with the same arguments, the function that it returns. There is "
              "no frame of Python between that function and the caller.",
    .tp_basicsize = sizeof(Choice),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = choice_new,
    .tp_dealloc = choice_dealloc,
    .tp_traverse = choice_traverse,
    .tp_clear = choice_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Choice, vectorcall),
};

/* ---- undisturbed: state that is restored in any case ----------------------------------------------------------- */

#define MANY_TRIES 1000

/* undisturbed(restore, function, *args): calls the function, then `restore`. This is done in C, where no signal is
   handled. If `restore` is interrupted (Ctrl-C, MemoryError), it is called again until it has finished; then that is
   raised. */
PyObject *undisturbed(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count < 2) {
        PyErr_SetString(PyExc_TypeError, "undisturbed() needs two callables");
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(args[1], args + 2, count - 2, NULL);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (int i = 0; i < MANY_TRIES; i++) {
        PyObject *done = PyObject_CallNoArgs(args[0]);
        if (done != NULL) {
            Py_DECREF(done);
            break;
        }
        if (type == NULL) {
            PyErr_Fetch(&type, &value, &traceback);
        } else {
            PyErr_Clear();
        }
    }
    if (type != NULL) {
        Py_CLEAR(result);
        PyErr_Restore(type, value, traceback);
    }
    return result;
}

/* ---- Binding: binds like a function, without a Python frame that torch.compile would capture ------- */

typedef struct {
    PyObject_HEAD
    char binds;
} Binding;

static PyObject *binding_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    if (instance == NULL || Py_IsNone(instance) || !((Binding *)self)->binds) {
        return Py_NewRef(self);
    }
    return PyMethod_New(self, instance);
}

static PyMemberDef binding_members[] = {
    {"_binds", T_BOOL, offsetof(Binding, binds), 0, "whether an instance gets a bound method"},
    {0},
};

PyTypeObject BindingType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Binding",
    .tp_doc = "Base of objects that a class body may hold in place of a function.",
    .tp_basicsize = sizeof(Binding),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_descr_get = binding_get,
    .tp_members = binding_members,
};
