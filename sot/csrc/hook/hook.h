/* sot._hook, the frame hook: the interfaces between the files of this folder.

   In reading order:
     compat.h        differences between versions of CPython in a frame under evaluation
     frame.c         releasing such a frame
     thread.c        the state of a thread: its callback; installing the evaluator while there is one
     slot.c          the state of a code object: its entries, and the callbacks that leave it alone
     evaluate.c      evaluating a frame: entries are called, then the callback
     observe.c       counts the tensor work of frames that Python runs
     tail.c          results of the form "the result of another call"
     entry.c         calling an entry: guards, graph, Python function
     entry_type.c    making an entry
     direct_calls.c  calls that need no frame
     callables.c     callables around another callable
     signals.c       handlers of signals wait while a capture lasts
     module.c        the module's functions, and its initialization */

#ifndef SOT_HOOK_H
#define SOT_HOOK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "guards/guards.h"
#include "guards/compat.h"
#include "hook/compat.h"

/* On glibc a small variable of a loaded library fits into the static block, so access needs no call. */
#ifdef __GLIBC__
#define PER_THREAD _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define PER_THREAD _Thread_local
#endif

#ifdef SOT_HOOK_DEBUG
struct Owned { Py_ssize_t slots, entries, plains, threads; };
extern struct Owned owned;
#define COUNT(what, change) (owned.what += (change))
#else
#define COUNT(what, change) ((void)0)
#endif

struct Statistics { unsigned long long hooked, hits, misses, plain; };
extern struct Statistics statistics;

/* An entry returns these if its guards do not hold, and if Python must run the frame. */
extern PyObject *MISS, *PLAIN, *PLAIN_INSIDE;

typedef struct {
    PyObject *const *items; /* borrowed from the frame and its function */
    Py_ssize_t count;
} Arguments;

#define KIND_FLAGS (CO_OPTIMIZED | CO_NEWLOCALS | CO_GENERATOR | CO_COROUTINE \
                    | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE)
#define FUNCTION_FLAGS (CO_OPTIMIZED | CO_NEWLOCALS)

/* ---- thread.c ----------------------------------------------------------------------------------- */

struct View {
    PyObject *callback; /* borrowed from the thread's Registration; NULL: as `everywhere`; PLAIN: none */
    PyObject *registration;
    int hidden;
    PyObject *declined; /* the code whose entry has answered PLAIN before the call was made */
    Frame *passed_on; /* to the evaluator below, which has not called anything yet */
    char *stack_end; /* lowest address of this thread's C stack; NULL: not known yet */
    size_t stack_reserve;
};
extern PER_THREAD struct View view;

extern PyObject *everywhere; /* the callback of the threads without their own, or NULL */
extern int closed;           /* the interpreter is about to end: no callback is called any more */
extern Py_ssize_t callbacks_set; /* by threads, and for all of them */
extern _PyFrameEvalFunction evaluate_before;

typedef struct {
    PyObject_HEAD
    PyObject *callback;
} Registration;

extern PyTypeObject RegistrationType;

/* Borrowed: this thread's callback, or NULL. */
static inline PyObject *seen_callback(void)
{
    PyObject *callback = view.callback != NULL ? view.callback : everywhere;
    return callback != PLAIN ? callback : NULL;
}

void find_stack(void);

static inline int stack_is_low(void)
{
    if (view.stack_end == NULL) {
        find_stack();
    }
    return (size_t)((char *)__builtin_frame_address(0) - view.stack_end) < view.stack_reserve;
}

/* Borrowed. NULL with an exception. */
Registration *this_thread(void);
void register_callback(Registration *self, PyObject *callback);
PyObject *evaluate_without_callback(PyThreadState *tstate, Frame *frame, Registration *mine);
void count_callback(PyObject *before, PyObject *after);
void uninstall(PyInterpreterState *interp);

/* The evaluator is not installed although callbacks are set, because they only observe. The next tensor installs it
   again. `patience`: for how many frames without tensor work it then stays. */
extern int asleep;
extern unsigned long long patience;
void fall_asleep(PyInterpreterState *interp);
int wake_up(void);

/* Does torch.compile evaluate this thread's frames, above us or below? Then it captures them. */
int another_compiler_works(PyThreadState *tstate);
PyObject *step_aside_for(PyObject *module, PyObject *question);

/* ---- slot.c ------------------------------------------------------------------------------------- */

typedef struct {
    Py_ssize_t users; /* slots, and the Callback while it lives */
    int alive;
} Token;

typedef struct {
    PyObject_HEAD
    PyObject *function;
    Token *token;
    vectorcallfunc vectorcall;
    PyObject *weakrefs;
    int observes; /* is it called only for code that has done tensor work, which is observed first? */
} Callback;

extern PyTypeObject CallbackType;

/* Timed calls, in nanoseconds. */
struct Times { unsigned long long calls, total, least; };

/* The work of a code object's frames while Python ran them, and the times of calls: without an entry, with an entry
   that Python ran for comparison, and with an entry that answered. See observe.c. */
struct Work {
    unsigned long long calls, operations, in_modules, frames, frames_in_modules;
    unsigned long long next; /* the number of calls after which the callback is called again */
    int is_module;           /* the forward() of modules */
    struct Times plain, control, captured;
};

typedef struct {
    PyObject *entries; /* a tuple that is not empty, or NULL */
    Token **tokens;    /* of the Callbacks that leave the code object alone */
    Py_ssize_t token_count;
    int skipped; /* by everyone; ALONE: callees of the frame are left alone, too */
    int passes_tails;
    struct Work work;
} Slot;

#define ALONE 2

extern Py_ssize_t slot_index;

static inline Slot *find_slot(PyCodeObject *code)
{
    return code_extra(code, slot_index);
}

static inline int is_skipped_code(PyCodeObject *code)
{
    Slot *slot = find_slot(code);
    return slot != NULL && slot->skipped;
}

/* Does everyone, or the owner of this callback (NULL: no particular one), leave the code object alone? */
static inline int is_left_alone(const Slot *slot, PyObject *callback)
{
    if (slot->skipped || slot->token_count == 0 || callback == NULL || !Py_IS_TYPE(callback, &CallbackType)) {
        return slot->skipped;
    }
    const Token *token = ((Callback *)callback)->token;
    for (Py_ssize_t i = 0; i < slot->token_count; i++) {
        if (slot->tokens[i] == token) {
            return 1;
        }
    }
    return 0;
}

/* NULL with an exception. */
Slot *make_slot(PyCodeObject *code);

/* Takes over the reference; an empty tuple counts as none. */
void replace_entries(Slot *slot, PyObject *entries);
void forget_tokens(Slot *slot);
void free_slot(void *memory);

/* -1 with an exception. */
int leave_alone_for(Slot *slot, PyObject *callback);

/* ---- evaluate.c --------------------------------------------------------------------------------- */

PyObject *evaluate(PyThreadState *tstate, Frame *frame, int throwflag);
PyObject *evaluate_plainly(PyThreadState *tstate, Frame *frame, int throwflag);
void move_to_front(PyObject *entries, Py_ssize_t index);

/* ---- observe.c ---------------------------------------------------------------------------------- */

/* Of this thread, so far: tensor operations outside graphs, and frames; the part of both in forward() of modules. */
struct Observed { unsigned long long operations, in_modules, frames, frames_in_modules; };
extern PER_THREAD struct Observed observed;

/* Tensor operations of all threads, in frames that entries answered. */
extern unsigned long long captured_operations;
unsigned long long nanoseconds(void);
int note_answer(PyObject *callback, Slot *slot, unsigned long long start);

/* A frame that Python runs and the hook observes. */
typedef struct Activation {
    PyCodeObject *code;
    struct Activation *caller;
} Activation;

static inline int observes(PyObject *callback)
{
    return Py_IS_TYPE(callback, &CallbackType) && ((Callback *)callback)->observes;
}

/* Is the callback to be called for this code, which it observes and which has no entries? */
static inline int is_due(const Slot *slot)
{
    return slot != NULL && slot->work.operations != 0 && slot->work.calls >= slot->work.next;
}

PyObject *evaluate_observed(PyThreadState *tstate, Frame *frame);
int control_is_due(const struct Work *work);
PyObject *evaluate_control(PyThreadState *tstate, Frame *frame);
PyObject *observe_types(PyObject *module, PyObject *args);
PyObject *work_of(PyObject *module, PyObject *code);
PyObject *ask_again(PyObject *module, PyObject *args);
PyObject *running(PyObject *module, PyObject *unused);
PyObject *times_of(PyObject *module, PyObject *code);
PyObject *operations(PyObject *module, PyObject *unused);

/* ---- clock.c ------------------------------------------------------------------------------------ */

/* A clock that runs. */
struct Running {
    PyObject *clock; /* NULL: none runs */
    PyObject *outer; /* the clock that ran before, borrowed */
    unsigned long long start, inner_before; /* start 0: this run is not measured */
};

typedef struct {
    PyObject_HEAD
    long id;
    unsigned long long runs, total, own, calls, checks, checking;
    unsigned long long mean, mean_own; /* of the last runs that were measured */
    unsigned long long operations, counted_runs; /* tensor operations of so many of the runs */
    int counts; /* do operations that run now belong to it? Otherwise Python runs them. */
    struct Running block; /* of a with statement */
} Clock;

extern PyTypeObject ClockType;
void clock_begin(struct Running *running, PyObject *clock);
void clock_end(struct Running *running);
unsigned clock_weight(PyObject *clock);
PyObject *keep_events(PyObject *module, PyObject *number);
PyObject *kept_events(PyObject *module, PyObject *unused);
PyObject *clock_api(void);
PyObject *clock_now(PyObject *module, PyObject *unused);

/* ---- tail.c ------------------------------------------------------------------------------------- */

extern PyTypeObject TailType;
void tail_set_clock(PyObject *tail, PyObject *clock);
extern PER_THREAD PyObject *handed;

/* Follows Tails: the result of the last call. Takes over the reference; NULL stays NULL. */
PyObject *follow_tails(PyObject *answer);
PyObject *run_tails(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* ---- entry.c, entry_type.c ---------------------------------------------------------------------- */

extern PyTypeObject EntryType;

/* Would it answer this call, so far as C can tell? */
int entry_fits(PyObject *entry, PyObject *callback, PyObject *const *args, Py_ssize_t count);

/* A new reference: the result, MISS or PLAIN; NULL with an exception. */
PyObject *entry_ask(PyObject *entry, PyObject *callback, PyObject *const *args, Py_ssize_t count);

/* Must the callback of its translator be set while it runs? */
int entry_needs_callback(PyObject *entry);

/* Do the guards of its program hold? */
int entry_program_holds(PyObject *entry, PyObject *const *args, Py_ssize_t count);

/* Calls with this thread's callback hidden. */
PyObject *call_hidden(PyObject *callable, PyObject *const *args, size_t nargsf);

/* ---- direct_calls.c, callables.c ---------------------------------------------------------------- */

extern PyTypeObject DirectType, PlainType, RescuedType, ChoiceType, BindingType;
PyObject *plain(PyObject *module, PyObject *fn);
PyObject *undisturbed(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* ---- signals.c ---------------------------------------------------------------------------------- */

PyObject *without_signals(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *with_signals(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *handle_signals(PyObject *module, PyObject *none);

#endif
