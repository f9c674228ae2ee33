/* Direct: what a translated function or module is called through. It asks the entries itself when a call says all
   that a frame would: positional arguments, one for each parameter. Then nothing is installed and no frame is made.
   In any other case, and when an entry leaves the function in the middle, it calls the target under the callback. */

#ifndef SOT_HOOK_DIRECT_H
#define SOT_HOOK_DIRECT_H

typedef struct {
    PyObject_HEAD
    PyObject *target;   /* what is called; of a module, the name of its method */
    PyObject *callback; /* the translator's */
    PyObject *function; /* whose entries are asked; NULL: nobody's */
    PyObject *owner;    /* a weak reference to the module, or NULL */
    PyObject *prelude;  /* an entry that says whether a call of the module is one of the function, or NULL */
    vectorcallfunc vectorcall;
    PyObject *weakrefs;
} Direct;

#define FEW_DIRECT 16

static int takes_as_they_are(PyCodeObject *code, Py_ssize_t count)
{
    return code->co_argcount == count && code->co_kwonlyargcount == 0
        && (code->co_flags & (KIND_FLAGS | CO_VARARGS | CO_VARKEYWORDS)) == FUNCTION_FLAGS;
}

/* A new reference: an answer, or MISS if the call is to be made. `items` has arguments and cells. */
static PyObject *ask_directly(Direct *self, PyObject *entries, PyObject *const *items, Py_ssize_t count)
{
    PyObject *answer = Py_NewRef(MISS);
    Py_INCREF(entries);
    for (Py_ssize_t i = 0; answer == MISS && i < PyTuple_GET_SIZE(entries); i++) {
        PyObject *entry = PyTuple_GET_ITEM(entries, i);
        if (!Py_IS_TYPE(entry, &EntryType) || entry_needs_callback(entry)) {
            break;
        }
        Py_INCREF(entry);
        Py_DECREF(answer);
        answer = entry_ask(entry, self->callback, items, count);
        if (answer != MISS && answer != PLAIN && i > 0 && entry == PyTuple_GET_ITEM(entries, i)) {
            move_to_front(entries, i);
        }
        Py_DECREF(entry);
    }
    Py_DECREF(entries);
    if (answer == PLAIN) {
        Py_SETREF(answer, Py_NewRef(MISS));
    }
    return answer;
}

/* The entries of the function, for `count` arguments behind the module, if there is one. */
static PyObject *answer_directly(Direct *self, PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyFunctionObject *function = (PyFunctionObject *)self->function;
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    PyThreadState *tstate = PyThreadState_Get();
    Slot *slot = find_slot(code);
    Py_ssize_t cells = function->func_closure != NULL ? PyTuple_GET_SIZE(function->func_closure) : 0;
    Py_ssize_t own = module != NULL, total = own + count + cells;
    if (slot == NULL || slot->entries == NULL || slot->passes_tails || view.hidden || closed
        || is_left_alone(slot, self->callback)
        || total > FEW_DIRECT || !takes_as_they_are(code, own + count) || is_watched(tstate)
        || stack_is_low()) {
        return Py_NewRef(MISS);
    }
    PyObject *items[FEW_DIRECT];
    items[0] = module;
    memcpy(items + own, args, count * sizeof(PyObject *));
    for (Py_ssize_t i = 0; i < cells; i++) {
        items[own + count + i] = PyTuple_GET_ITEM(function->func_closure, i);
    }
    Py_INCREF(function); /* and so its closure */
    PyObject *answer = ask_directly(self, slot->entries, items, total);
    Py_DECREF(function);
    statistics.hooked += answer != MISS;
    statistics.hits += answer != MISS;
    return answer == MISS ? answer : follow_tails(answer);
}

static PyObject *call_target(Direct *self, PyObject *module, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *target = module != NULL ? PyObject_GetAttr(module, self->target) : Py_NewRef(self->target);
    Registration *registration = target != NULL ? this_thread() : NULL;
    if (registration == NULL) {
        Py_XDECREF(target);
        return NULL;
    }
    Py_INCREF(registration);
    PyObject *before = Py_XNewRef(registration->callback);
    register_callback(registration, self->callback);
    PyObject *result = PyObject_Vectorcall(target, args, nargsf, kwnames);
    register_callback(registration, before);
    Py_XDECREF(before);
    Py_DECREF(registration);
    Py_DECREF(target);
    return result;
}

/* A new reference to the module, NULL without an owner, and NULL with an exception if it is gone. */
static PyObject *module_of(Direct *self)
{
    if (self->owner == NULL) {
        return NULL;
    }
    PyObject *module = referent(self->owner);
    if (module == NULL) {
        PyErr_SetString(PyExc_ReferenceError, "the module that this belongs to is gone");
    }
    return module;
}

static PyObject *direct_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Direct *self = (Direct *)object;
    PyObject *module = module_of(self);
    if (module == NULL && self->owner != NULL) {
        return NULL;
    }
    Py_INCREF(self);
    PyObject *answer = NULL;
    if (self->function != NULL && (kwnames == NULL || PyTuple_GET_SIZE(kwnames) == 0)
        && (self->prelude == NULL || entry_program_holds(self->prelude, &module, 1))) {
        answer = answer_directly(self, module, args, PyVectorcall_NARGS(nargsf));
        if (answer == MISS) {
            Py_CLEAR(answer);
        } else if (answer == NULL) {
            goto done;
        }
    }
    if (answer == NULL) {
        answer = call_target(self, module, args, nargsf, kwnames);
    }
done:
    Py_XDECREF(module);
    Py_DECREF(self);
    return answer;
}

static int direct_traverse(PyObject *object, visitproc visit, void *arg)
{
    Direct *self = (Direct *)object;
    Py_VISIT(self->target);
    Py_VISIT(self->callback);
    Py_VISIT(self->function);
    Py_VISIT(self->owner);
    Py_VISIT(self->prelude);
    return 0;
}

static int direct_clear(PyObject *object)
{
    Direct *self = (Direct *)object;
    Py_SETREF(self->target, Py_NewRef(Py_None)); /* a finalizer may still call it */
    Py_SETREF(self->callback, Py_NewRef(Py_None));
    Py_CLEAR(self->function);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->prelude);
    return 0;
}

static void direct_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    Py_TRASHCAN_BEGIN(object, direct_dealloc)
    if (((Direct *)object)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    direct_clear(object);
    Py_CLEAR(((Direct *)object)->target);
    Py_CLEAR(((Direct *)object)->callback);
    PyObject_GC_Del(object);
    Py_TRASHCAN_END
}

static PyObject *direct_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"target", "callback", "function", "owner", "prelude", NULL};
    PyObject *target, *callback, *function = Py_None, *owner = Py_None, *prelude = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OOO:Direct", names, &target, &callback, &function, &owner,
                                     &prelude)) {
        return NULL;
    }
    if ((!Py_IsNone(function) && !PyFunction_Check(function)) || (!Py_IsNone(owner) && !PyWeakref_Check(owner))
        || (!Py_IsNone(prelude) && !Py_IS_TYPE(prelude, &EntryType))) {
        PyErr_SetString(PyExc_TypeError, "Direct needs a Python function, a weak reference and an Entry, or None");
        return NULL;
    }
    Direct *self = (Direct *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->target = Py_NewRef(target);
        self->callback = Py_NewRef(callback);
        self->function = Py_IsNone(function) ? NULL : Py_NewRef(function);
        self->owner = Py_IsNone(owner) ? NULL : Py_NewRef(owner);
        self->prelude = Py_IsNone(prelude) ? NULL : Py_NewRef(prelude);
        self->vectorcall = direct_vectorcall;
    }
    return (PyObject *)self;
}

static PyTypeObject DirectType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Direct",
    .tp_doc = "Direct(target, callback, function=None, owner=None, prelude=None): calls the target under the callback, "
              "or has an entry of the function answer.",
    .tp_basicsize = sizeof(Direct),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = direct_new,
    .tp_dealloc = direct_dealloc,
    .tp_traverse = direct_traverse,
    .tp_clear = direct_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Direct, vectorcall),
    .tp_weaklistoffset = offsetof(Direct, weakrefs),
};

#endif
