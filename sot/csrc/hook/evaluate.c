/* sot._hook: sees Python frames before they run (PEP 523), and can run something else instead.

   In: a callback per thread, one for all other threads, and per code object a tuple of entries, set from Python.
   Out: for each frame that a thread with a callback is about to run, one of
     - the result of an entry. Entries are called in order with the frame's arguments (positional, keyword
       only, *args, **kwargs: the locals at the start) followed by the cells of its closure. An entry returns
       MISS (call the next one) or PLAIN (run the frame unchanged), or it returns the frame's result or
       raises. Then the frame itself never runs and is only released. If the result is a Tail
       (hook/tail.c), the frame's result is that of the Tail. The exception is code that passes Tails on,
       such as the code that a Tail calls.
     - without a result of an entry, the callback is called with (function, arguments). It returns None (run
       the frame unchanged), PLAIN_INSIDE (the same, and leave alone what the frame calls), a callable that is
       then called like an entry, or it raises for the frame.
     - default evaluation, by the evaluator that was installed before.

   Invariants:
   - A frame is taken before its first instruction, or left alone. It is never linked into the
     frame stack while entries and callback run, so no frame object of it can exist (hook/compat.h).
   - Generators, coroutines, class and module bodies, skipped code, and everything that a debugger, a
     tracer or a profiler watches is left alone.
   - The callback and the callees of plain() run with the callback hidden. Entries run with it visible.
   - The evaluator is installed only while some thread has a callback. It is not installed while all callbacks only
     observe and there is no tensor work (fall_asleep()).
   - The GIL protects everything here; only `view` is per thread.
   - Entries belong to their code object, which the garbage collector does not traverse. An entry that holds
     its own code object, even indirectly, keeps both alive until reset(). */

#include "hook/hook.h"

struct Statistics statistics;
#ifdef SOT_HOOK_DEBUG
struct Owned owned;
#endif

#define FEW_ARGUMENTS 12

/* The evaluator that was installed before ours may call ours in turn, as torch.compile's does. If a frame comes back,
   Python evaluates it. */
static PyObject *pass_on_frame(PyThreadState *tstate, Frame *frame, int throwflag)
{
    if (evaluate_before == _PyEval_EvalFrameDefault) {
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    view.passed_on = frame;
    PyObject *result = evaluate_before(tstate, frame, throwflag);
    view.passed_on = NULL;
    return result;
}

/* Python's own limit on recursion is meant for frames that share an evaluator's C stack. Where every frame has its
   own, and we watch the C stack ourselves, only sys.setrecursionlimit() should count. */
PyObject *evaluate_plainly(PyThreadState *tstate, Frame *frame, int throwflag)
{
    int units = view.stack_reserve != 0 ? C_RECURSION_UNITS_PER_FRAME : 0;
    credit_c_recursion(tstate, units);
    PyObject *result = pass_on_frame(tstate, frame, throwflag);
    credit_c_recursion(tstate, -units);
    return result;
}

static inline Py_ssize_t count_locals(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS)
        + !!(code->co_flags & CO_VARKEYWORDS);
}

/* ---- entries and callback ----------------------------------------------------------------------- */

/* An entry that is ordinary Python code and is never taken is counted by its own evaluation, as the frame would have
   been. Any other entry might come back here without being counted. */
static PyObject *ask(PyObject *entry, Arguments arguments)
{
    if (Py_IS_TYPE(entry, &EntryType)) { /* its callees are counted */
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

/* The entry that has answered is called first next time; one that returns PLAIN may be a last resort. No other code
   has the tuple, see get_entries(). */
void move_to_front(PyObject *entries, Py_ssize_t index)
{
    PyObject *entry = PyTuple_GET_ITEM(entries, index);
    for (; index > 0; index--) {
        PyTuple_SET_ITEM(entries, index, PyTuple_GET_ITEM(entries, index - 1));
    }
    PyTuple_SET_ITEM(entries, 0, entry);
}

/* The first result that is not MISS, else MISS. An entry may replace the entries meanwhile. */
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
    if (entry == PLAIN_INSIDE) {
        return entry;
    }
    PyObject *answer = Py_IsNone(entry) ? Py_NewRef(PLAIN) : ask(entry, arguments);
    Py_DECREF(entry);
    return answer;
}

/* A new reference: the frame's result, PLAIN, PLAIN_INSIDE, or NULL with an exception. */
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
    if (slot != NULL && slot->entries != NULL && observes(seen_callback()) && !is_due(slot)) {
        return Py_NewRef(PLAIN); /* it has declined such calls, and asks to be called later */
    }
    answer = ask_callback(function, arguments);
    if (answer == MISS) {
        Py_SETREF(answer, Py_NewRef(PLAIN));
    }
    return answer;
}

/* ---- the frame ---------------------------------------------------------------------------------- */

/* The frame's arguments followed by its cells, in `few` or in new memory. */
static PyObject **join_arguments(PyObject **few, Frame *frame, Py_ssize_t count, PyObject *cells)
{
    Py_ssize_t cell_count = cells != NULL ? PyTuple_GET_SIZE(cells) : 0, total = count + cell_count;
    PyObject **items = total <= FEW_ARGUMENTS ? few : PyMem_New(PyObject *, total);
    if (items != NULL) {
        copy_locals(frame, items, count);
        for (Py_ssize_t i = 0; i < cell_count; i++) {
            items[count + i] = PyTuple_GET_ITEM(cells, i);
        }
    }
    return items;
}

static PyObject *answer_with_copies(Frame *frame, Slot *slot, Py_ssize_t count)
{
    PyFunctionObject *function = frame_function(frame);
    PyObject *cells = function->func_closure;
    PyObject *few[FEW_ARGUMENTS];
    PyObject **items = join_arguments(few, frame, count, cells);
    if (items == NULL) {
        return PyErr_NoMemory();
    }
    Arguments arguments = {items, count + (cells != NULL ? PyTuple_GET_SIZE(cells) : 0)};
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

/* Evaluate as if this thread had no callback. Then the interpreter calls functions in its own way, and releases their
   arguments as it does without us. */
static PyObject *evaluate_alone(PyThreadState *tstate, Frame *frame)
{
    Registration *mine = this_thread();
    if (mine != NULL) {
        return evaluate_without_callback(tstate, frame, mine);
    }
    release_frame(tstate, frame);
    return NULL;
}

static PyObject *evaluate_skipped(PyThreadState *tstate, Frame *frame, Slot *slot)
{
    observed.frames++; /* a graph of the caller would replace it, too */
    return slot != NULL && slot->skipped == ALONE ? evaluate_alone(tstate, frame) : evaluate_plainly(tstate, frame, 0);
}

/* Python runs a frame without a result. */
static PyObject *evaluate_unanswered(PyThreadState *tstate, Frame *frame, Slot *slot)
{
    PyObject *callback = seen_callback();
    if (callback == NULL || !observes(callback) || (slot != NULL && is_left_alone(slot, callback))) {
        return evaluate_skipped(tstate, frame, slot);
    }
    return evaluate_observed(tstate, frame);
}

/* Would the entry that has answered last answer this call? */
static int first_entry_fits(Frame *frame, Slot *slot, Py_ssize_t count, PyObject *callback)
{
    PyObject *cells = frame_function(frame)->func_closure, *entry = PyTuple_GET_ITEM(slot->entries, 0);
    PyObject *few[FEW_ARGUMENTS];
    PyObject **items = Py_IS_TYPE(entry, &EntryType) ? join_arguments(few, frame, count, cells) : NULL;
    if (items == NULL) {
        return 0;
    }
    Py_INCREF(entry);
    int fits = entry_fits(entry, callback, items, count + (cells != NULL ? PyTuple_GET_SIZE(cells) : 0));
    Py_DECREF(entry);
    if (items != few) {
        PyMem_Free(items);
    }
    return fits;
}

static PyObject *take(PyThreadState *tstate, Frame *frame, Slot *slot)
{
    PyFunctionObject *function = frame_function(frame);
    Py_ssize_t count = count_locals(frame_code(frame));
    PyObject **locals = frame_locals(frame);
    struct Observed before = observed;
    PyObject *callback = seen_callback();
    int timed = slot != NULL && slot->entries != NULL && observes(callback);
    if (timed && control_is_due(&slot->work) && first_entry_fits(frame, slot, count, callback)) {
        return evaluate_control(tstate, frame);
    }
    unsigned long long misses = statistics.misses, start = timed ? nanoseconds() : 0;
    statistics.hooked++;
    PyObject *answer = locals != NULL && function->func_closure == NULL
        ? answer_frame(function, slot, (Arguments){locals, count})
        : answer_with_copies(frame, slot, count);
    if (answer == PLAIN || answer == PLAIN_INSIDE) {
        int alone = answer == PLAIN_INSIDE;
        statistics.plain++;
        Py_DECREF(answer);
        observed = before; /* the work of a capture is not the program's */
        return alone ? evaluate_alone(tstate, frame) : evaluate_unanswered(tstate, frame, find_slot(frame_code(frame)));
    }
    captured_operations += observed.operations - before.operations;
    observed = before; /* work that is already captured */
    if (slot != NULL && slot->passes_tails) {
        release_frame(tstate, frame);
        return answer;
    }
    PyObject *code = Py_NewRef(frame_code(frame)), *asked = Py_XNewRef(callback);
    release_frame(tstate, frame);
    PyObject *result = follow_tails(answer);
    if (timed && misses == statistics.misses && result != NULL && note_answer(asked, slot, start) < 0) {
        Py_CLEAR(result);
    }
    Py_DECREF(code);
    Py_XDECREF(asked);
    return result;
}

/* Is it a function's frame that nothing else watches? */
static inline int is_ours_to_look_at(PyThreadState *tstate, PyCodeObject *code)
{
    return (code->co_flags & KIND_FLAGS) == FUNCTION_FLAGS && !is_watched(tstate) && !another_compiler_works(tstate);
}

PyObject *evaluate(PyThreadState *tstate, Frame *frame, int throwflag)
{
    if (view.passed_on == frame) {
        view.passed_on = NULL;
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    Py_CLEAR(handed);
    if (callbacks_set == 0) {
        uninstall(tstate->interp); /* the evaluator above us has gone since */
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
    if (view.declined == (PyObject *)code) { /* the entries have been asked */
        view.declined = NULL;
        statistics.hooked++;
        statistics.plain++;
        return evaluate_unanswered(tstate, frame, slot);
    }
    if (observes(callback) && (slot == NULL || slot->entries == NULL) && !is_due(slot)) {
        return evaluate_observed(tstate, frame);
    }
    return take(tstate, frame, slot);
}
