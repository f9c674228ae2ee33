/* Direct: the callable of a translated function or module. It binds the arguments and asks the entries itself, so
   nothing is installed and no frame is made. If the arguments do not fit, no entry answers, or an entry leaves the
   function in the middle, it calls the target under the callback. */

#include "hook/hook.h"

typedef struct {
    PyObject_HEAD
    PyObject *target;   /* the callable; for a module, the name of its method */
    PyObject *callback; /* the translator's callback */
    PyObject *function; /* the function whose entries are asked, or NULL */
    PyObject *owner;    /* a weak reference to the module, or NULL */
    PyObject *prelude;  /* an entry that tells whether a call of the module is a call of the function, or NULL */
    vectorcallfunc vectorcall;
    PyObject *weakrefs;
} Direct;

#define FEW_DIRECT 32

/* The locals that a frame of the function would begin with, and its cells. */
typedef struct {
    PyCodeObject *code;
    Py_ssize_t named, count; /* the named parameters; all parameters and the cells */
    PyObject *items[FEW_DIRECT];
} Bound;

static int can_be_bound(PyFunctionObject *function)
{
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    Py_ssize_t cells = function->func_closure != NULL ? PyTuple_GET_SIZE(function->func_closure) : 0;
    return (code->co_flags & KIND_FLAGS) == FUNCTION_FLAGS
        && code->co_argcount + code->co_kwonlyargcount + cells + 2 <= FEW_DIRECT;
}

/* The index of the parameter of this name, or -1. No Python code runs: names are exact strings. */
static Py_ssize_t parameter(const Bound *bound, PyObject *name)
{
    PyObject *names = bound->code->co_localsplusnames;
    for (Py_ssize_t i = bound->code->co_posonlyargcount; i < bound->named; i++) {
        if (PyTuple_GET_ITEM(names, i) == name) {
            return i;
        }
    }
    for (Py_ssize_t i = bound->code->co_posonlyargcount; i < bound->named; i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name) == 0) {
            return i;
        }
    }
    return -1;
}

static int bind_positional(Bound *bound, PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t own = module != NULL, taken = Py_MIN(own + count, bound->code->co_argcount);
    int takes_more = (bound->code->co_flags & CO_VARARGS) != 0;
    if (taken < own || (taken < own + count && !takes_more)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < taken; i++) {
        bound->items[i] = Py_NewRef(i < own ? module : args[i - own]);
    }
    if (takes_more) {
        PyObject *rest = PyTuple_New(own + count - taken);
        bound->items[bound->named] = rest;
        for (Py_ssize_t i = taken; rest != NULL && i < own + count; i++) {
            PyTuple_SET_ITEM(rest, i - taken, Py_NewRef(args[i - own]));
        }
    }
    return !takes_more || bound->items[bound->named] != NULL;
}

static int bind_keywords(Bound *bound, PyObject *const *args, PyObject *names)
{
    PyObject *rest = NULL;
    if (bound->code->co_flags & CO_VARKEYWORDS) {
        Py_ssize_t at = bound->named + ((bound->code->co_flags & CO_VARARGS) != 0);
        rest = bound->items[at] = PyDict_New();
        if (rest == NULL) {
            return 0;
        }
    }
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        Py_ssize_t at = PyUnicode_CheckExact(name) ? parameter(bound, name) : -1;
        if (at >= 0 && bound->items[at] == NULL) {
            bound->items[at] = Py_NewRef(args[i]);
        } else if (at >= 0 || rest == NULL || !PyUnicode_CheckExact(name) || PyDict_SetItem(rest, name, args[i]) < 0) {
            return 0;
        }
    }
    return 1;
}

static int bind_defaults(Bound *bound, const PyFunctionObject *function)
{
    Py_ssize_t positional = bound->code->co_argcount;
    PyObject *defaults = function->func_defaults;
    Py_ssize_t first = positional - (defaults != NULL ? PyTuple_GET_SIZE(defaults) : 0);
    for (Py_ssize_t i = 0; i < bound->named; i++) {
        if (bound->items[i] != NULL) {
            continue;
        }
        PyObject *found = NULL;
        if (i < positional) {
            found = i >= first ? PyTuple_GET_ITEM(defaults, i - first) : NULL;
        } else if (function->func_kwdefaults != NULL) {
            found = PyDict_GetItemWithError(function->func_kwdefaults,
                                            PyTuple_GET_ITEM(bound->code->co_localsplusnames, i));
        }
        if (found == NULL) {
            return 0;
        }
        bound->items[i] = Py_NewRef(found);
    }
    return 1;
}

/* False if Python must report an error in the arguments. Call `unbind` in either case. */
static int bind(Bound *bound, PyFunctionObject *function, PyObject *module, PyObject *const *args, Py_ssize_t count,
                PyObject *names)
{
    bound->code = (PyCodeObject *)function->func_code;
    bound->named = bound->code->co_argcount + bound->code->co_kwonlyargcount;
    bound->count = bound->named + ((bound->code->co_flags & CO_VARARGS) != 0)
        + ((bound->code->co_flags & CO_VARKEYWORDS) != 0);
    memset(bound->items, 0, bound->count * sizeof(PyObject *));
    int fits = bind_positional(bound, module, args, count) && bind_keywords(bound, args + count, names)
        && bind_defaults(bound, function);
    if (!fits) {
        PyErr_Clear();
        return 0;
    }
    for (Py_ssize_t i = 0; function->func_closure != NULL && i < PyTuple_GET_SIZE(function->func_closure); i++) {
        bound->items[bound->count++] = Py_NewRef(PyTuple_GET_ITEM(function->func_closure, i));
    }
    return 1;
}

static void unbind(Bound *bound)
{
    for (Py_ssize_t i = 0; i < bound->count; i++) {
        Py_XDECREF(bound->items[i]);
    }
}

/* A new reference: a result, or MISS or PLAIN if the call must be made. `items` has arguments and cells. */
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
    return answer;
}

/* The entries of the function; `module` is its first argument, if there is one. */
static PyObject *answer_directly(Direct *self, PyObject *module, PyObject *const *args, Py_ssize_t count,
                                 PyObject *names)
{
    PyFunctionObject *function = (PyFunctionObject *)self->function;
    Slot *slot = find_slot((PyCodeObject *)function->func_code);
    if (slot == NULL || slot->entries == NULL || slot->passes_tails || view.hidden || closed
        || is_left_alone(slot, self->callback) || !can_be_bound(function) || is_watched(PyThreadState_Get())
        || stack_is_low()) {
        return Py_NewRef(MISS);
    }
    Bound bound;
    Py_INCREF(function); /* the running code may drop it */
    PyObject *answer = bind(&bound, function, module, args, count, names)
        ? ask_directly(self, slot->entries, bound.items, bound.count) : Py_NewRef(MISS);
    unbind(&bound);
    view.declined = answer == PLAIN ? function->func_code : NULL;
    Py_DECREF(function);
    if (answer == MISS || answer == PLAIN) {
        return answer;
    }
    statistics.hooked++;
    statistics.hits++;
    return follow_tails(answer);
}

static PyObject *call_target(Direct *self, PyObject *module, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *target = module != NULL ? PyObject_GetAttr(module, self->target) : Py_NewRef(self->target);
    if (target != NULL && another_compiler_works(PyThreadState_Get())) {
        PyObject *result = PyObject_Vectorcall(target, args, nargsf, kwnames);
        Py_DECREF(target);
        return result;
    }
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
    if (self->function != NULL && !another_compiler_works(PyThreadState_Get())
        && (self->prelude == NULL || entry_program_holds(self->prelude, &module, 1))) {
        answer = answer_directly(self, module, args, PyVectorcall_NARGS(nargsf), kwnames);
        if (answer == MISS || answer == PLAIN) {
            Py_CLEAR(answer);
        } else if (answer == NULL) {
            goto done;
        }
    }
    if (answer == NULL) {
        answer = call_target(self, module, args, nargsf, kwnames);
        view.declined = NULL;
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

PyTypeObject DirectType = {
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
