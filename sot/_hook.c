/* sot._hook: looks at Python frames before they run (PEP 523), and runs something else instead.

   In: a callback per thread, one for all other threads, and per code object a tuple of entries, set from Python.
   Out: for each frame that a thread with a callback is about to run, one of
     - an entry's answer. Entries are tried in order with the frame's arguments (positional, keyword
       only, *args, **kwargs: the locals as they are at the start) followed by the cells of its
       closure. An entry says MISS (try the next one), PLAIN (run the frame as it is), or answers for
       the frame by returning or raising: then the frame itself never runs, it is only released. If
       the answer is a Tail (_hook_tail.h), the frame's result is the Tail's; unless the frame's code
       passes Tails on, as the code of what a Tail calls does.
     - with no answer, what the callback makes of (function, arguments): None (run the frame as it
       is), a callable to be asked like an entry, or an exception, which becomes the frame's.
     - default evaluation, by whoever evaluated frames before us.

   Invariants:
   - A frame is taken whole, before its first instruction, or left alone. It is never linked into the
     frame stack while entries and callback run, so no frame object of it can exist (_hook_compat.h).
   - Generators, coroutines, class and module bodies, skipped code, and everything that a debugger, a
     tracer or a profiler watches is left alone.
   - The callback and whatever plain() calls run with the callback hidden; entries run in its view.
   - The evaluator is installed only while some thread has a callback.
   - Everything here is protected by the GIL; only `view` is per thread.
   - Entries belong to their code object, out of the garbage collector's sight: an entry which holds
     its own code object, even indirectly, keeps both alive until reset(). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "_guards.h"
#include "_guards_compat.h"
#include "_hook_compat.h"

#ifdef __GLIBC__
#include <pthread.h>
#endif

/* On glibc a small variable of a loaded library fits into the static block: no call to find it. */
#ifdef __GLIBC__
#define PER_THREAD static _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define PER_THREAD static _Thread_local
#endif

#ifdef SOT_HOOK_DEBUG
static struct { Py_ssize_t slots, entries, plains, threads; } owned;
#define COUNT(what, change) (owned.what += (change))
#else
#define COUNT(what, change) ((void)0)
#endif

static struct { unsigned long long hooked, hits, misses, plain; } statistics;

/* ---- the sentinels an entry answers with -------------------------------------------------------- */

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

static PyObject *MISS;
static PyObject *PLAIN;

static PyObject *new_sentinel(const char *name)
{
    Sentinel *self = PyObject_New(Sentinel, &SentinelType);
    if (self != NULL) {
        self->name = name;
    }
    return (PyObject *)self;
}

#include "_hook_slot.h"

/* ---- what a thread carries ---------------------------------------------------------------------- */

PER_THREAD struct {
    PyObject *callback; /* borrowed from the thread's Registration; NULL: as `everywhere`; PLAIN: none */
    PyObject *registration;
    int hidden;
    char *stack_end; /* lowest address of this thread's C stack; NULL: not asked yet */
    size_t stack_reserve;
} view;

static PyObject *everywhere; /* the callback of the threads that have none of their own, or NULL */
static int closed;           /* the interpreter is about to end: no callback is asked any more */

/* Borrowed: this thread's callback, or NULL. */
static inline PyObject *seen_callback(void)
{
    PyObject *callback = view.callback != NULL ? view.callback : everywhere;
    return callback != PLAIN ? callback : NULL;
}

/* When less C stack than the reserve is left, a frame raises RecursionError instead of running: under
   PEP 523 each Python call takes C stack, whatever sys.setrecursionlimit() allows. */
#define STACK_RESERVE ((size_t)256 * 1024)
#define STACK_UNKNOWN ((char *)UINTPTR_MAX)

static void find_stack(void)
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

static inline int stack_is_low(void)
{
    if (view.stack_end == NULL) {
        find_stack();
    }
    return (size_t)((char *)__builtin_frame_address(0) - view.stack_end) < view.stack_reserve;
}

#include "_hook_tail.h"

/* ---- installing the evaluator ------------------------------------------------------------------- */

static PyObject *evaluate(PyThreadState *tstate, Frame *frame, int throwflag);

static Py_ssize_t callbacks_set; /* by threads, and for all of them */
static _PyFrameEvalFunction evaluate_before = _PyEval_EvalFrameDefault;
static _PyFrameEvalFunction evaluate_above; /* who came on top of us and kept us from leaving */

static void install(PyInterpreterState *interp)
{
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (current == evaluate || (evaluate_above != NULL && current == evaluate_above)) {
        return; /* still there: adding ourselves again would make the chain a circle */
    }
    evaluate_above = NULL;
    evaluate_before = current;
    _PyInterpreterState_SetEvalFrameFunc(interp, evaluate);
}

static void uninstall(PyInterpreterState *interp)
{
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (current == evaluate) {
        _PyInterpreterState_SetEvalFrameFunc(interp, evaluate_before);
        evaluate_above = NULL;
    } else {
        evaluate_above = current;
    }
}

/* A Registration holds a thread's callback. It lives in the dict of the thread's state, which Python
   clears when the thread ends; after a fork, another thread may be the one that clears it. */
typedef struct {
    PyObject_HEAD
    PyObject *callback;
} Registration;

static int counts(PyObject *callback)
{
    return callback != NULL && callback != PLAIN;
}

/* The evaluator is there while somebody needs it. */
static void count_callback(PyObject *before, PyObject *after)
{
    callbacks_set += counts(after) - counts(before);
    if (counts(after) && !counts(before) && callbacks_set == 1 && !closed) {
        install(PyInterpreterState_Main());
    } else if (counts(before) && !counts(after) && callbacks_set == 0) {
        uninstall(PyInterpreterState_Main());
    }
}

static void register_callback(Registration *self, PyObject *callback)
{
    PyObject *before = self->callback;
    self->callback = Py_XNewRef(callback);
    if (view.registration == (PyObject *)self) {
        view.callback = callback;
    }
    count_callback(before, callback);
    Py_XDECREF(before);
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

static PyTypeObject RegistrationType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Registration",
    .tp_basicsize = sizeof(Registration),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = registration_dealloc,
};

static Registration *this_thread(void)
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

/* ---- evaluating a frame ------------------------------------------------------------------------- */

typedef struct {
    PyObject *const *items; /* borrowed from the frame and its function */
    Py_ssize_t count;
} Arguments;

#define FEW_ARGUMENTS 12

/* Python's own limit on recursion is meant for frames that share an evaluator's C stack. Where every
   frame has its own and we watch the C stack ourselves, only sys.setrecursionlimit() shall count. */
static inline PyObject *evaluate_plainly(PyThreadState *tstate, Frame *frame, int throwflag)
{
    int units = view.stack_reserve != 0 ? C_RECURSION_UNITS_PER_FRAME : 0;
    credit_c_recursion(tstate, units);
    PyObject *result = evaluate_before(tstate, frame, throwflag);
    credit_c_recursion(tstate, -units);
    return result;
}

static inline Py_ssize_t count_locals(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS)
        + !!(code->co_flags & CO_VARKEYWORDS);
}

/* An entry which is ordinary Python code that is never taken is counted by its own evaluation, just
   as the frame would have been. Anything else might come back here without being counted. */
static PyObject *ask(PyObject *entry, Arguments arguments)
{
    if (Py_IS_TYPE(entry, &EntryType)) { /* what it calls counts itself */
        return entry_ask(entry, seen_callback(), arguments.items, arguments.count);
    }
    if (PyFunction_Check(entry) && is_skipped_code((PyCodeObject *)PyFunction_GET_CODE(entry))) {
        return PyObject_Vectorcall(entry, arguments.items, arguments.count, NULL);
    }
    if (Py_EnterRecursiveCall(" while calling an entry of a translated function")) {
        return NULL;
    }
    PyObject *answer = PyObject_Vectorcall(entry, arguments.items, arguments.count, NULL);
    Py_LeaveRecursiveCall();
    return answer;
}

/* The entry that has answered is asked first next time; one that says PLAIN may be a last resort. Nobody else sees the tuple, see get_entries(). */
static void move_to_front(PyObject *entries, Py_ssize_t index)
{
    PyObject *entry = PyTuple_GET_ITEM(entries, index);
    for (; index > 0; index--) {
        PyTuple_SET_ITEM(entries, index, PyTuple_GET_ITEM(entries, index - 1));
    }
    PyTuple_SET_ITEM(entries, 0, entry);
}

/* The first answer that is not MISS, else MISS. An entry may replace the entries meanwhile. */
static PyObject *ask_entries(PyObject *entries, Arguments arguments)
{
    PyObject *answer = Py_NewRef(MISS);
    Py_INCREF(entries);
    for (Py_ssize_t i = 0; answer == MISS && i < PyTuple_GET_SIZE(entries); i++) {
        PyObject *entry = Py_NewRef(PyTuple_GET_ITEM(entries, i));
        Py_DECREF(answer);
        answer = ask(entry, arguments);
        if (answer != MISS && answer != PLAIN && i > 0 && entry == PyTuple_GET_ITEM(entries, i)) {
            move_to_front(entries, i);
        }
        Py_DECREF(entry);
    }
    Py_DECREF(entries);
    return answer;
}

static PyObject *call_callback(PyFunctionObject *function, Arguments arguments)
{
    PyObject *values = PyTuple_New(arguments.count);
    if (values == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < arguments.count; i++) {
        PyTuple_SET_ITEM(values, i, Py_NewRef(arguments.items[i]));
    }
    PyObject *callback = Py_NewRef(seen_callback());
    PyObject *pair[] = {(PyObject *)function, values};
    view.hidden = 1;
    PyObject *answer = PyObject_Vectorcall(callback, pair, 2, NULL);
    view.hidden = 0;
    Py_DECREF(callback);
    Py_DECREF(values);
    return answer;
}

static PyObject *ask_callback(PyFunctionObject *function, Arguments arguments)
{
    PyObject *entry = call_callback(function, arguments);
    if (entry == NULL) {
        return NULL;
    }
    PyObject *answer = Py_IsNone(entry) ? Py_NewRef(PLAIN) : ask(entry, arguments);
    Py_DECREF(entry);
    return answer;
}

/* A new reference: the frame's result, PLAIN, or NULL with an exception. */
static PyObject *answer_frame(PyFunctionObject *function, Slot *slot, Arguments arguments)
{
    PyObject *answer = NULL;
    if (slot != NULL && slot->entries != NULL) {
        answer = ask_entries(slot->entries, arguments);
        if (answer != MISS) {
            statistics.hits += answer != PLAIN;
            return answer;
        }
        Py_DECREF(answer);
    }
    if (seen_callback() == NULL) { /* an entry removed it */
        return Py_NewRef(PLAIN);
    }
    statistics.misses++;
    answer = ask_callback(function, arguments);
    if (answer == MISS) {
        Py_SETREF(answer, Py_NewRef(PLAIN));
    }
    return answer;
}

/* The frame's arguments and cells side by side, in `few` or in new memory. */
static PyObject **join_arguments(PyObject **few, PyObject **locals, Py_ssize_t count, PyObject *cells)
{
    Py_ssize_t total = count + PyTuple_GET_SIZE(cells);
    PyObject **items = total <= FEW_ARGUMENTS ? few : PyMem_New(PyObject *, total);
    if (items != NULL) {
        memcpy(items, locals, count * sizeof(PyObject *));
        memcpy(items + count, &PyTuple_GET_ITEM(cells, 0), (total - count) * sizeof(PyObject *));
    }
    return items;
}

static PyObject *answer_with_cells(Frame *frame, Slot *slot, Arguments locals)
{
    PyFunctionObject *function = frame_function(frame);
    PyObject *cells = function->func_closure;
    PyObject *few[FEW_ARGUMENTS];
    PyObject **items = join_arguments(few, (PyObject **)locals.items, locals.count, cells);
    if (items == NULL) {
        return PyErr_NoMemory();
    }
    Arguments arguments = {items, locals.count + PyTuple_GET_SIZE(cells)};
    PyObject *answer = answer_frame(function, slot, arguments);
    if (items != few) {
        PyMem_Free(items);
    }
    return answer;
}

static PyObject *fail_for_lack_of_stack(PyThreadState *tstate, Frame *frame)
{
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded (C stack)");
    release_frame(tstate, frame);
    return NULL;
}

/* As if this thread had no callback: the interpreter calls functions its own way while the frame runs, and lets go of
   their arguments when it does without us. */
static PyObject *evaluate_alone(PyThreadState *tstate, Frame *frame)
{
    Registration *mine = this_thread();
    if (mine == NULL) {
        release_frame(tstate, frame);
        return NULL;
    }
    PyObject *callback = Py_XNewRef(mine->callback);
    Py_INCREF(mine);
    register_callback(mine, PLAIN);
    PyObject *result = evaluate_plainly(tstate, frame, 0);
    register_callback(mine, callback);
    Py_DECREF(mine);
    Py_XDECREF(callback);
    return result;
}

static PyObject *evaluate_skipped(PyThreadState *tstate, Frame *frame, Slot *slot)
{
    return slot != NULL && slot->skipped == ALONE ? evaluate_alone(tstate, frame) : evaluate_plainly(tstate, frame, 0);
}

static PyObject *take(PyThreadState *tstate, Frame *frame, Slot *slot)
{
    PyFunctionObject *function = frame_function(frame);
    Arguments arguments = {frame_locals(frame), count_locals(frame_code(frame))};
    statistics.hooked++;
    PyObject *answer = function->func_closure == NULL
        ? answer_frame(function, slot, arguments)
        : answer_with_cells(frame, slot, arguments);
    if (answer == PLAIN) {
        statistics.plain++;
        Py_DECREF(answer);
        return evaluate_skipped(tstate, frame, find_slot(frame_code(frame)));
    }
    int passes_tails = slot != NULL && slot->passes_tails;
    release_frame(tstate, frame);
    return passes_tails ? answer : follow_tails(answer);
}

#define KIND_FLAGS (CO_OPTIMIZED | CO_NEWLOCALS | CO_GENERATOR | CO_COROUTINE \
                    | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE)
#define FUNCTION_FLAGS (CO_OPTIMIZED | CO_NEWLOCALS)

/* Is it a function's frame, which nobody is to see but us? */
static inline int is_ours_to_look_at(PyThreadState *tstate, PyCodeObject *code)
{
    return (code->co_flags & KIND_FLAGS) == FUNCTION_FLAGS && !is_watched(tstate)
        && current_evaluator(tstate) == evaluate; /* else another compiler is at work, above us */
}

static PyObject *evaluate(PyThreadState *tstate, Frame *frame, int throwflag)
{
    Py_CLEAR(handed);
    if (callbacks_set == 0) {
        uninstall(tstate->interp); /* who came on top of us has gone since */
    }
    if (throwflag || !frame_is_untouched(frame)) {
        return evaluate_plainly(tstate, frame, throwflag);
    }
    if (stack_is_low()) {
        return fail_for_lack_of_stack(tstate, frame);
    }
    PyCodeObject *code = frame_code(frame);
    PyObject *callback = seen_callback();
    Slot *slot = find_slot(code);
    if (callback == NULL || view.hidden || closed) {
        return evaluate_plainly(tstate, frame, 0);
    }
    if (slot != NULL && is_left_alone(slot, callback)) {
        return evaluate_skipped(tstate, frame, slot);
    }
    if (!is_ours_to_look_at(tstate, code)) {
        return evaluate_plainly(tstate, frame, 0);
    }
    return take(tstate, frame, slot);
}

/* ---- for entries -------------------------------------------------------------------------------- */

PyObject *visible_callback(void)
{
    return seen_callback();
}

int hook_is_closed(void)
{
    return closed;
}

PyObject *call_hidden(PyObject *callable, PyObject *const *args, size_t nargsf)
{
    int before = view.hidden;
    view.hidden = 1;
    PyObject *result = PyObject_Vectorcall(callable, args, nargsf, NULL);
    view.hidden = before;
    return result;
}

#include "_hook_direct.h"

#include "_hook_callables.h"

/* ---- the module --------------------------------------------------------------------------------- */

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

/* A code object, and a Callback or NULL, as skip() and is_skipped() take them. */
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

/* The hook changes the order in the tuple that it keeps. */
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
    }
    Py_RETURN_NONE;
}

/* Where the getters of functions get it from; what is not there they show as None. */
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

/* Of a field of objects: (offset, whether an empty one reads as None), or None for other kinds of fields. */
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
     "what it was."},
    {"get_callback", get_callback, METH_NOARGS, "The callback that is asked in this thread, or None."},
    {"set_default", set_default, METH_O, "Sets the callback of the threads that have none of their own, or None."},
    {"close", close_hook, METH_NOARGS, "From now on no callback and no entry is asked: the interpreter ends."},
    {"skip", (PyCFunction)(void (*)(void))skip, METH_FASTCALL,
     "skip(code, callback=None): leaves frames of a code object alone from now on, where a Callback is set or always."},
    {"leave_alone", leave_alone, METH_O, "The same, and what the frames call is left alone, too."},
    {"pass_tails", pass_tails, METH_O, "Leaves it to whoever calls this code object to follow its Tails."},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL,
     "run(function, *args): the result of the call, and of what it leaves to others."},
    {"is_skipped", (PyCFunction)(void (*)(void))is_skipped, METH_FASTCALL,
     "is_skipped(code, callback=None): whether frames of a code object are left alone, where a Callback is set or always."},
    {"set_entries", set_entries, METH_VARARGS, "Sets the callables asked for frames of a code object."},
    {"get_entries", get_entries, METH_O, "The callables asked for frames of a code object."},
    {"reset", reset, METH_O, "Forgets the entries of a code object, and that it is skipped."},
    {"plain", plain, METH_O, "A callable that calls fn with this thread's callback hidden."},
    {"member_offset", member_offset, METH_O, "Where a field is in its objects: (offset, is an empty one None), or None."},
    {"is_generic_lookup", is_generic_lookup, METH_O, "Is it what object.__getattribute__ is, in whichever class?"},
    {"stats", stats, METH_NOARGS, "How many frames were looked at, answered, missed and left plain."},
#ifdef SOT_HOOK_DEBUG
    {"debug_counts", debug_counts, METH_NOARGS, "How many objects this module keeps alive."},
#endif
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sot._hook",
    .m_doc = "Looks at Python frames before they run, and runs something else instead.",
    .m_size = -1,
    .m_methods = methods,
};

static int prepare(void)
{
    if (PyType_Ready(&SentinelType) < 0 || PyType_Ready(&RegistrationType) < 0
        || PyType_Ready(&PlainType) < 0 || PyType_Ready(&TailType) < 0
        || PyType_Ready(&RescuedType) < 0 || PyType_Ready(&DirectType) < 0 || PyType_Ready(&CallbackType) < 0) {
        return -1;
    }
    slot_index = PyUnstable_Eval_RequestCodeExtraIndex(free_slot);
    if (slot_index < 0) {
        PyErr_SetString(PyExc_ImportError, "no room in code objects: too many tools extend them");
        return -1;
    }
    MISS = new_sentinel("MISS");
    PLAIN = new_sentinel("PLAIN");
    return MISS != NULL && PLAIN != NULL ? entry_prepare(MISS, PLAIN) : -1;
}

PyMODINIT_FUNC PyInit__hook(void)
{
    PyObject *module = prepare() == 0 ? PyModule_Create(&definition) : NULL;
    if (module != NULL && (PyModule_AddObjectRef(module, "MISS", MISS) < 0
                           || PyModule_AddObjectRef(module, "PLAIN", PLAIN) < 0
                           || PyModule_AddObjectRef(module, "Tail", (PyObject *)&TailType) < 0
                           || PyModule_AddObjectRef(module, "Callback", (PyObject *)&CallbackType) < 0
                           || PyModule_AddObjectRef(module, "Direct", (PyObject *)&DirectType) < 0
                           || PyModule_AddObjectRef(module, "Rescued", (PyObject *)&RescuedType) < 0
                           || PyModule_AddObjectRef(module, "Entry", (PyObject *)&EntryType) < 0)) {
        Py_CLEAR(module);
    }
    return module;
}
