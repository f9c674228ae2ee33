/* Clocks measure where a program's time goes while a report is recorded: graphs, captures, and what Python runs
   after a break. An entry without a clock costs nothing.

   Clocks nest. A clock that runs while another one of the same thread runs takes its time from the other's `own`
   time, so the own times of all clocks add up. A clock also counts the calls of its entry and estimates the time of
   guard checks: it measures the first checks and then one in CHECKS_PER_SAMPLE. Of a graph that takes only
   microseconds it measures the first RUNS_ALWAYS_MEASURED runs and then RUNS_MEASURED of RUNS_PER_SAMPLE, in a row; the
   other runs count with the mean of the last ones.

   sot/csrc/torch/tally.cpp counts tensor operations into the innermost clock of a thread, if that one counts. It
   counts all of them for a while, and then only samples. `counts_all` says which, so that a clock knows how many of its
   runs were counted.

   Runs of clocks are events. The last ones are kept in a ring, for timelines. The GIL protects everything; only
   `inner` is per thread. */

#include "hook/hook.h"

#define CHECKS_ALWAYS_MEASURED 8
#define CHECKS_PER_SAMPLE 32

#define RUNS_ALWAYS_MEASURED 256
#define RUNS_MEASURED 16
#define RUNS_PER_SAMPLE 64
#define SHORT_RUN 20000 /* nanoseconds */

typedef struct {
    long id;
    unsigned long thread;
    unsigned long long start, end;
} Event;

static Event *events;
static Py_ssize_t capacity, written;
static PER_THREAD Clock *innermost;
static int counts_all;
static PER_THREAD unsigned long long inner; /* time of the clocks that have ended within the one that runs */

static int measures_next_run(const Clock *clock)
{
    return !clock->counts || clock->mean >= SHORT_RUN || clock->runs < RUNS_ALWAYS_MEASURED
           || clock->runs % RUNS_PER_SAMPLE < RUNS_MEASURED;
}

void clock_begin(struct Running *running, PyObject *clock)
{
    running->clock = Py_NewRef(clock);
    running->outer = (PyObject *)innermost;
    innermost = (Clock *)clock;
    running->inner_before = inner;
    inner = 0;
    running->start = measures_next_run((Clock *)clock) ? nanoseconds() : 0;
}

void clock_end(struct Running *running)
{
    Clock *clock = (Clock *)running->clock;
    unsigned long long passed = clock->mean, own = clock->mean_own;
    innermost = (Clock *)running->outer;
    clock->runs++;
    clock->counted_runs += counts_all;
    if (running->start != 0) {
        unsigned long long end = nanoseconds();
        passed = end - running->start;
        own = passed > inner ? passed - inner : 0;
        unsigned long long before = clock->runs < 8 ? clock->runs - 1 : 7; /* so that a change is noticed */
        clock->mean = (before * clock->mean + passed) / (before + 1);
        clock->mean_own = (before * clock->mean_own + own) / (before + 1);
        if (capacity > 0) {
            events[written++ % capacity] = (Event){clock->id, PyThread_get_thread_ident(), running->start, end};
        }
    }
    clock->total += passed;
    clock->own += own;
    inner = running->inner_before + passed;
    Py_CLEAR(running->clock);
}

/* How many checks the next measured check stands for; 0: it is not measured. */
unsigned clock_weight(PyObject *object)
{
    Clock *clock = (Clock *)object;
    unsigned long long number = clock->checks++;
    return number < CHECKS_ALWAYS_MEASURED ? 1 : number % CHECKS_PER_SAMPLE == 0 ? CHECKS_PER_SAMPLE : 0;
}

/* ---- the type ----------------------------------------------------------------------------------- */

static PyObject *clock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"", "", NULL};
    long id;
    int counts = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "l|p:Clock", names, &id, &counts)) {
        return NULL;
    }
    Clock *self = (Clock *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->id = id;
        self->counts = counts;
    }
    return (PyObject *)self;
}

static void clock_dealloc(PyObject *self)
{
    Py_TYPE(self)->tp_free(self);
}

static PyObject *clock_run(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count == 0) {
        PyErr_SetString(PyExc_TypeError, "run() needs a function");
        return NULL;
    }
    struct Running running;
    clock_begin(&running, self);
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, count - 1, NULL);
    clock_end(&running);
    return result;
}

static PyObject *clock_enter(PyObject *self, PyObject *Py_UNUSED(unused))
{
    struct Running *block = &((Clock *)self)->block;
    if (block->clock != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the clock runs already");
        return NULL;
    }
    clock_begin(block, self);
    return Py_NewRef(self);
}

static PyObject *clock_exit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    struct Running *block = &((Clock *)self)->block;
    if (block->clock != NULL) {
        clock_end(block);
    }
    Py_RETURN_NONE;
}

static PyMethodDef clock_methods[] = {
    {"__enter__", clock_enter, METH_NOARGS, "Starts to measure. A clock measures one block at a time."},
    {"__exit__", (PyCFunction)(void (*)(void))clock_exit, METH_FASTCALL, "Ends the measurement."},
    {"run", (PyCFunction)(void (*)(void))clock_run, METH_FASTCALL, "run(function, *args): calls it, and measures."},
    {0},
};

static PyMemberDef clock_members[] = {
    {"id", T_LONG, offsetof(Clock, id), READONLY, "the number that its events have"},
    {"runs", T_ULONGLONG, offsetof(Clock, runs), READONLY, "how often it ran"},
    {"total", T_ULONGLONG, offsetof(Clock, total), READONLY, "nanoseconds"},
    {"own", T_ULONGLONG, offsetof(Clock, own), READONLY, "nanoseconds without those of other clocks"},
    {"calls", T_ULONGLONG, offsetof(Clock, calls), READONLY, "how often its entry answered"},
    {"operations", T_ULONGLONG, offsetof(Clock, operations), READONLY, "tensor operations, in `counted_runs` of the runs"},
    {"counted_runs", T_ULONGLONG, offsetof(Clock, counted_runs), READONLY, "the runs whose operations were all counted"},
    {"checks", T_ULONGLONG, offsetof(Clock, checks), READONLY, "how often the guards of its entry were checked"},
    {"checking", T_ULONGLONG, offsetof(Clock, checking), READONLY, "nanoseconds of these checks, estimated"},
    {0},
};

PyTypeObject ClockType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Clock",
    .tp_doc = "Clock(id, counts=False): measures time for reports, and counts the operations that run meanwhile.",
    .tp_basicsize = sizeof(Clock),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = clock_new,
    .tp_dealloc = clock_dealloc,
    .tp_methods = clock_methods,
    .tp_members = clock_members,
};

/* ---- for tally.cpp ------------------------------------------------------------------------------ */

/* Where to count an operation of this thread; NULL: Python runs it. */
static unsigned long long *counter(void)
{
    return innermost != NULL && innermost->counts ? &innermost->operations : NULL;
}

PyObject *clock_api(void)
{
    static struct {
        unsigned long long *(*counter)(void);
        int *counts_all;
    } api = {counter, &counts_all};
    return PyCapsule_New(&api, "sot._hook.clock_api", NULL);
}

/* ---- events ------------------------------------------------------------------------------------- */

PyObject *keep_events(PyObject *Py_UNUSED(module), PyObject *number)
{
    Py_ssize_t wanted = PyLong_AsSsize_t(number);
    if (wanted == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Event *room = wanted > 0 ? PyMem_New(Event, wanted) : NULL;
    if (wanted > 0 && room == NULL) {
        return PyErr_NoMemory();
    }
    PyMem_Free(events);
    events = room;
    capacity = Py_MAX(wanted, 0);
    written = 0;
    Py_RETURN_NONE;
}

PyObject *kept_events(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = Py_MAX(written - capacity, 0); list != NULL && i < written; i++) {
        Event event = events[i % capacity]; /* making objects may add events */
        PyObject *item = Py_BuildValue("lkdd", event.id, event.thread, event.start / 1e9, event.end / 1e9);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

PyObject *clock_now(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyFloat_FromDouble(nanoseconds() / 1e9);
}
