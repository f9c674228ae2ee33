/* The module sot._hook: its functions, its sentinels, and how it is made. */

#include "hook/hook.h"

/* ---- the sentinels that an entry returns -------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    const char *name;
} Sentinel;

static PyObject *sentinel_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<sot.%s>", ((Sentinel *)self)->name);
}

static PyTypeObject SentinelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Sentinel",
    .tp_basicsize = sizeof(Sentinel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_repr = sentinel_repr,
};

PyObject *MISS;
PyObject *PLAIN;
PyObject *PLAIN_INSIDE;

static PyObject *new_sentinel(const char *name)
{
    Sentinel *self = PyObject_New(Sentinel, &SentinelType);
    if (self != NULL) {
        self->name = name;
    }
    return (PyObject *)self;
}

/* ---- callbacks ---------------------------------------------------------------------------------- */

static PyObject *or_none(PyObject *object)
{
    return Py_NewRef(object != NULL ? object : Py_None);
}

static PyCodeObject *need_code(PyObject *object)
{
    if (!PyCode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "expected a code object, not %R", object);
        return NULL;
    }
    return (PyCodeObject *)object;
}

static int check_callback(PyObject *callback)
{
    if (!Py_IsNone(callback) && !PyCallable_Check(callback)) {
        PyErr_Format(PyExc_TypeError, "the callback must be callable or None, not %R", callback);
        return -1;
    }
    return 0;
}

static PyObject *set_callback(PyObject *Py_UNUSED(module), PyObject *callback)
{
    if (callback != PLAIN && check_callback(callback) < 0) {
        return NULL;
    }
    Registration *self = this_thread();
    if (self == NULL) {
        return NULL;
    }
    PyObject *before = or_none(self->callback);
    register_callback(self, Py_IsNone(callback) ? NULL : callback);
    return before;
}

static PyObject *get_callback(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return or_none(seen_callback());
}

static PyObject *set_default(PyObject *Py_UNUSED(module), PyObject *callback)
{
    if (check_callback(callback) < 0) {
        return NULL;
    }
    PyObject *before = everywhere;
    everywhere = Py_IsNone(callback) ? NULL : Py_NewRef(callback);
    count_callback(before, everywhere);
    return before != NULL ? before : Py_NewRef(Py_None);
}

static PyObject *close_hook(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    closed = 1;
    dicts_close();
    setters_close();
    uninstall(PyInterpreterState_Main());
    Py_RETURN_NONE;
}

/* ---- code objects ------------------------------------------------------------------------------- */

/* A code object, and a Callback or NULL: the arguments of skip() and is_skipped(). */
static PyCodeObject *read_skip(PyObject *const *args, Py_ssize_t count, PyObject **callback)
{
    if (count < 1 || count > 2) {
        PyErr_SetString(PyExc_TypeError, "expected a code object, and a Callback or None");
        return NULL;
    }
    *callback = count == 2 && !Py_IsNone(args[1]) ? args[1] : NULL;
    if (*callback != NULL && !Py_IS_TYPE(*callback, &CallbackType)) {
        PyErr_Format(PyExc_TypeError, "expected a Callback or None, not %R", *callback);
        return NULL;
    }
    return need_code(args[0]);
}

static PyObject *skip(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    PyObject *callback;
    PyCodeObject *code = read_skip(args, count, &callback);
    Slot *slot = code != NULL ? make_slot(code) : NULL;
    if (slot == NULL || (callback != NULL && leave_alone_for(slot, callback) < 0)) {
        return NULL;
    }
    slot->skipped = callback == NULL ? Py_MAX(slot->skipped, 1) : slot->skipped;
    Py_RETURN_NONE;
}

static PyObject *leave_alone(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyCodeObject *code = need_code(object);
    Slot *slot = code != NULL ? make_slot(code) : NULL;
    if (slot == NULL) {
        return NULL;
    }
    slot->skipped = ALONE;
    Py_RETURN_NONE;
}

static PyObject *pass_tails(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyCodeObject *code = need_code(object);
    Slot *slot = code != NULL ? make_slot(code) : NULL;
    if (slot == NULL) {
        return NULL;
    }
    slot->passes_tails = 1;
    Py_RETURN_NONE;
}

static PyObject *is_skipped(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    PyObject *callback;
    PyCodeObject *code = read_skip(args, count, &callback);
    if (code == NULL) {
        return NULL;
    }
    Slot *slot = find_slot(code);
    return PyBool_FromLong(slot != NULL && is_left_alone(slot, callback));
}

static int check_entries(PyObject *entries)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++) {
        if (!PyCallable_Check(PyTuple_GET_ITEM(entries, i))) {
            PyErr_Format(PyExc_TypeError, "entries must be callable, not %R",
                         PyTuple_GET_ITEM(entries, i));
            return -1;
        }
    }
    return 0;
}

/* The hook reorders the tuple that it keeps. */
static PyObject *copy_entries(PyObject *entries)
{
    PyObject *copy = PyTuple_New(PyTuple_GET_SIZE(entries));
    for (Py_ssize_t i = 0; copy != NULL && i < PyTuple_GET_SIZE(entries); i++) {
        PyTuple_SET_ITEM(copy, i, Py_NewRef(PyTuple_GET_ITEM(entries, i)));
    }
    return copy;
}

static PyObject *set_entries(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *code, *entries;
    if (!PyArg_ParseTuple(args, "O!O!:set_entries", &PyCode_Type, &code, &PyTuple_Type, &entries)
        || check_entries(entries) < 0) {
        return NULL;
    }
    Slot *slot = make_slot((PyCodeObject *)code);
    if (slot == NULL) {
        return NULL;
    }
    PyObject *own = copy_entries(entries);
    if (own == NULL) {
        return NULL;
    }
    replace_entries(slot, own);
    Py_RETURN_NONE;
}

static PyObject *get_entries(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyCodeObject *code = need_code(object);
    if (code == NULL) {
        return NULL;
    }
    Slot *slot = find_slot(code);
    return slot != NULL && slot->entries != NULL ? copy_entries(slot->entries) : PyTuple_New(0);
}

static PyObject *reset(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyCodeObject *code = need_code(object);
    if (code == NULL) {
        return NULL;
    }
    Slot *slot = find_slot(code);
    if (slot != NULL) {
        slot->skipped = 0;
        forget_tokens(slot);
        replace_entries(slot, NULL);
        slot->work = (struct Work){0};
    }
    Py_RETURN_NONE;
}

/* ---- what guards ask once ----------------------------------------------------------------------- */

/* Where the getters of functions read it; a missing value is shown as None. */
static Py_ssize_t function_field(PyObject *descriptor)
{
    static const struct { const char *name; Py_ssize_t offset; } fields[] = {
        {"__code__", offsetof(PyFunctionObject, func_code)},
        {"__defaults__", offsetof(PyFunctionObject, func_defaults)},
        {"__kwdefaults__", offsetof(PyFunctionObject, func_kwdefaults)},
    };
    for (size_t i = 0; PyDescr_TYPE(descriptor) == &PyFunction_Type && i < sizeof(fields) / sizeof(*fields); i++) {
        if (PyUnicode_CompareWithASCIIString(PyDescr_NAME(descriptor), fields[i].name) == 0) {
            return fields[i].offset;
        }
    }
    return -1;
}

/* Of a field with an object: (offset, whether an empty one reads as None). None for other kinds of fields. */
static PyObject *member_offset(PyObject *Py_UNUSED(module), PyObject *object)
{
    if (Py_IS_TYPE(object, &PyGetSetDescr_Type)) {
        Py_ssize_t offset = function_field(object);
        return offset >= 0 ? Py_BuildValue("(nO)", offset, Py_True) : Py_NewRef(Py_None);
    }
    if (!Py_IS_TYPE(object, &PyMemberDescr_Type)) {
        return PyErr_Format(PyExc_TypeError, "expected a descriptor of a field, not %R", object);
    }
    PyMemberDef *member = ((PyMemberDescrObject *)object)->d_member;
    if ((member->type != T_OBJECT && member->type != T_OBJECT_EX) || member->offset < 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(nO)", member->offset, member->type == T_OBJECT ? Py_True : Py_False);
}

static PyObject *is_generic_lookup(PyObject *Py_UNUSED(module), PyObject *object)
{
    return PyBool_FromLong(Py_IS_TYPE(object, &PyWrapperDescr_Type)
                           && ((PyWrapperDescrObject *)object)->d_wrapped == (void *)PyObject_GenericGetAttr);
}

/* ---- the module --------------------------------------------------------------------------------- */

/* Whether the class of a manager has both methods of the other kind of `with`, which CPython then suggests. */
static int has_both(PyTypeObject *type, const char *enter, const char *leave)
{
    const char *names[] = {enter, leave};
    for (int i = 0; i < 2; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (name == NULL) {
            return -1;
        }
        int found = _PyType_Lookup(type, name) != NULL;
        Py_DECREF(name);
        if (!found) {
            return 0;
        }
    }
    return 1;
}

/* CPython 3.14's exception for a manager without this method; %T is known since 3.13. */
static PyObject *no_such_manager(PyObject *manager, PyObject *name)
{
    int is_async = PyUnicode_CompareWithASCIIString(name, "__aenter__") == 0
                   || PyUnicode_CompareWithASCIIString(name, "__aexit__") == 0;
    int other = is_async ? has_both(Py_TYPE(manager), "__enter__", "__exit__")
                         : has_both(Py_TYPE(manager), "__aenter__", "__aexit__");
    if (other < 0) {
        return NULL;
    }
    return PyErr_Format(
        PyExc_TypeError, "'%T' object does not support the %scontext manager protocol (missed %U method)%s", manager,
        is_async ? "asynchronous " : "", name,
        !other     ? ""
        : is_async ? " but it supports the context manager protocol. Did you mean to use 'with'?"
                   : " but it supports the asynchronous context manager protocol. Did you mean to use 'async with'?");
}

/* A bound method of an object's class, looked up as by `with` of CPython 3.14. */
static PyObject *special_method(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "expected an object and a name");
        return NULL;
    }
    PyTypeObject *type = Py_TYPE(args[0]);
    PyObject *found = Py_XNewRef(_PyType_Lookup(type, args[1]));
    if (found == NULL) {
        return no_such_manager(args[0], args[1]);
    }
    descrgetfunc bind = Py_TYPE(found)->tp_descr_get;
    PyObject *bound = bind != NULL ? bind(found, args[0], (PyObject *)type) : Py_NewRef(found);
    Py_DECREF(found);
    return bound;
}

static PyObject *stats(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("{s:K,s:K,s:K,s:K}", "hooked", statistics.hooked, "hits", statistics.hits,
                         "misses", statistics.misses, "plain", statistics.plain);
}

#ifdef SOT_HOOK_DEBUG
static PyObject *debug_counts(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("{s:n,s:n,s:n,s:n}", "slots", owned.slots, "entries", owned.entries,
                         "plains", owned.plains, "threads", owned.threads);
}
#endif

static PyMethodDef methods[] = {
    {"set_callback", set_callback, METH_O,
     "Sets this thread's callback(function, arguments): None for that of set_default, PLAIN for none at all. Returns "
     "the previous one."},
    {"get_callback", get_callback, METH_NOARGS, "The callback of this thread, or None."},
    {"set_default", set_default, METH_O, "Sets the callback of the threads without their own, or None."},
    {"close", close_hook, METH_NOARGS, "From now on no callback and no entry is called: the interpreter ends."},
    {"skip", (PyCFunction)(void (*)(void))skip, METH_FASTCALL,
     "skip(code, callback=None): leaves frames of a code object alone from now on, where a Callback is set or always."},
    {"leave_alone", leave_alone, METH_O, "The same, and callees of the frames are left alone, too."},
    {"pass_tails", pass_tails, METH_O, "Leaves it to callers of this code object to follow its Tails."},
    {"run", (PyCFunction)(void (*)(void))run_tails, METH_FASTCALL,
     "run(function, *args): the result of the call, after following Tails."},
    {"is_skipped", (PyCFunction)(void (*)(void))is_skipped, METH_FASTCALL,
     "is_skipped(code, callback=None): whether frames of a code object are left alone, where a Callback is set or always."},
    {"set_entries", set_entries, METH_VARARGS, "Sets the callables asked for frames of a code object."},
    {"get_entries", get_entries, METH_O, "The callables asked for frames of a code object."},
    {"reset", reset, METH_O, "Forgets the entries of a code object, and that it is skipped."},
    {"plain", plain, METH_O, "A callable that calls fn with this thread's callback hidden."},
    {"member_offset", member_offset, METH_O, "Where a field is in its objects: (offset, is an empty one None), or None."},
    {"is_generic_lookup", is_generic_lookup, METH_O, "Whether it is object.__getattribute__, in any class."},
    {"special_method", (PyCFunction)(void (*)(void))special_method, METH_FASTCALL,
     "special_method(object, name): a bound method of its class, looked up as by `with`."},
    {"undisturbed", (PyCFunction)(void (*)(void))undisturbed, METH_FASTCALL,
     "undisturbed(restore, function, *args): calls the function, then restore() until it has finished."},
    {"without_signals", (PyCFunction)(void (*)(void))without_signals, METH_FASTCALL,
     "without_signals(function, *args): calls the function in the main thread; Python's handlers of signals run where it "
     "says handle_signals(), and at its end."},
    {"with_signals", (PyCFunction)(void (*)(void))with_signals, METH_FASTCALL,
     "with_signals(function, *args): calls the function within such a one, with signals handled as ever."},
    {"handle_signals", handle_signals, METH_NOARGS, "Runs the handlers of the signals that have arrived meanwhile."},
    {"step_aside_for", step_aside_for, METH_O,
     "Frames are left to another compiler while this function, written in C, returns anything but None."},
    {"use_tensor_api", use_tensor_api, METH_O, "Compares tensors with sot._tensors from now on; takes its `api`."},
    {"use_slow_tensors", use_slow_tensors, METH_VARARGS,
     "use_slow_tensors(include, exclude): functions for the dispatch keys that a thread adds and removes."},
    {"slow_tensor_spec", slow_tensor_spec, METH_O,
     "A specification that a tensor meets if a C function returns True."},
    {"observe", observe_types, METH_VARARGS, "observe(tensor, module): counts from now on the tensors that torch makes."},
    {"work_of", work_of, METH_O,
     "The work of a code object's frames that Python ran: (calls, operations, in modules, frames, in modules, is a forward)."},
    {"times_of", times_of, METH_O,
     "((calls, seconds of the fastest, seconds) of a code object run by Python, the same for its entries)."},
    {"operations", operations, METH_NOARGS, "The number of tensor operations, and the number in entries."},
    {"ask_again", ask_again, METH_VARARGS, "ask_again(code, calls): calls an observing callback after so many calls."},
    {"running", running, METH_NOARGS, "The code of this thread's observed frames, the innermost first."},
    {"keep_events", keep_events, METH_O, "keep_events(number): keeps the last events of clocks from now on; 0: none."},
    {"kept_events", kept_events, METH_NOARGS, "The last events: (id of the clock, thread, start, end), in seconds."},
    {"clock_now", clock_now, METH_NOARGS, "The time on the clocks of events, in seconds."},
    {"stats", stats, METH_NOARGS, "The numbers of frames that were seen, answered, missed and left plain."},
#ifdef SOT_HOOK_DEBUG
    {"debug_counts", debug_counts, METH_NOARGS, "The number of objects that this module keeps alive."},
#endif
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sot._hook",
    .m_doc = "Sees Python frames before they run, and can run something else instead.",
    .m_size = -1,
    .m_methods = methods,
};

static int prepare(void)
{
    if (PyType_Ready(&SentinelType) < 0 || PyType_Ready(&RegistrationType) < 0
        || PyType_Ready(&PlainType) < 0 || PyType_Ready(&TailType) < 0
        || PyType_Ready(&BindingType) < 0 || PyType_Ready(&RescuedType) < 0 || PyType_Ready(&ChoiceType) < 0
        || PyType_Ready(&DirectType) < 0 || PyType_Ready(&CallbackType) < 0
        || PyType_Ready(&EntryType) < 0 || PyType_Ready(&ClockType) < 0) {
        return -1;
    }
    slot_index = PyUnstable_Eval_RequestCodeExtraIndex(free_slot);
    if (slot_index < 0) {
        PyErr_SetString(PyExc_ImportError, "no room in code objects: too many tools extend them");
        return -1;
    }
    MISS = new_sentinel("MISS");
    PLAIN = new_sentinel("PLAIN");
    PLAIN_INSIDE = new_sentinel("PLAIN_INSIDE");
    return MISS != NULL && PLAIN != NULL && PLAIN_INSIDE != NULL ? 0 : -1;
}

static int add_clock_api(PyObject *module)
{
    PyObject *api = clock_api();
    int status = api != NULL ? PyModule_AddObjectRef(module, "clock_api", api) : -1;
    Py_XDECREF(api);
    return status;
}

PyMODINIT_FUNC PyInit__hook(void)
{
    PyObject *module = prepare() == 0 ? PyModule_Create(&definition) : NULL;
    if (module != NULL && (PyModule_AddObjectRef(module, "MISS", MISS) < 0
                           || PyModule_AddObjectRef(module, "PLAIN", PLAIN) < 0
                           || PyModule_AddObjectRef(module, "PLAIN_INSIDE", PLAIN_INSIDE) < 0
                           || PyModule_AddObjectRef(module, "Tail", (PyObject *)&TailType) < 0
                           || PyModule_AddObjectRef(module, "Callback", (PyObject *)&CallbackType) < 0
                           || PyModule_AddObjectRef(module, "Direct", (PyObject *)&DirectType) < 0
                           || PyModule_AddObjectRef(module, "Rescued", (PyObject *)&RescuedType) < 0
                           || PyModule_AddObjectRef(module, "Choice", (PyObject *)&ChoiceType) < 0
                           || PyModule_AddObjectRef(module, "Binding", (PyObject *)&BindingType) < 0
                           || PyModule_AddObjectRef(module, "Clock", (PyObject *)&ClockType) < 0
                           || add_clock_api(module) < 0
                           || PyModule_AddObjectRef(module, "Entry", (PyObject *)&EntryType) < 0)) {
        Py_CLEAR(module);
    }
    return module;
}
