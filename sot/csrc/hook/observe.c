/* Observes frames that Python runs: how much tensor work they do.

   A translator of a whole program has to decide which code is worth a capture before it captures any. The facts for
   that are counted here while Python runs the code, at almost no cost: the tensors that torch hands to Python (an
   operation makes one or a few), and the frames that run meanwhile. torch.Tensor allocates its objects by a slot of
   the type, tp_alloc. Our function replaces it, counts, and calls it. A code object gets a Slot only when a frame of
   it has done tensor work. Code without tensors has no record and causes no calls.

   Operations that a graph runs in place of a frame are not counted, because they are captured already. Operations in a
   module's forward() count for the module that the program calls, not for its callers. */

#include "hook/hook.h"

#include <time.h>

PER_THREAD struct Observed observed;
unsigned long long captured_operations;
static unsigned long long all_operations;
static PER_THREAD Activation *innermost;
static PyTypeObject *tensor_type, *module_type;
static allocfunc allocate_before;
static PyObject *forward_name;

/* Frames since the last operation of this thread. */
static PER_THREAD unsigned long long quiet;

static PyObject *count_and_allocate(PyTypeObject *type, Py_ssize_t count)
{
    observed.operations++;
    all_operations++;
    quiet = 0;
    if (asleep && wake_up()) {
        observed.frames += patience; /* a lower bound: frames that have already run were not counted */
    }
    return allocate_before(type, count);
}

/* observe(tensor, module): torch's classes. */
PyObject *observe_types(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyTypeObject *tensor, *module;
    if (!PyArg_ParseTuple(args, "O!O!:observe", &PyType_Type, &tensor, &PyType_Type, &module)) {
        return NULL;
    }
    if (tensor_type == NULL) {
        forward_name = PyUnicode_InternFromString("forward");
        if (forward_name == NULL) {
            return NULL;
        }
        tensor_type = (PyTypeObject *)Py_NewRef(tensor);
        module_type = (PyTypeObject *)Py_NewRef(module);
        allocate_before = tensor->tp_alloc;
        tensor->tp_alloc = count_and_allocate;
    }
    Py_RETURN_NONE;
}

static int is_forward_of_module(Frame *frame, PyCodeObject *code)
{
    if (code->co_argcount == 0 || code->co_name != forward_name || module_type == NULL) {
        return 0;
    }
    PyObject *self;
    copy_locals(frame, &self, 1);
    return self != NULL && PyObject_TypeCheck(self, module_type);
}

/* ---- times -------------------------------------------------------------------------------------- */

unsigned long long nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

static void add_time(struct Times *times, unsigned long long start)
{
    unsigned long long passed = nanoseconds() - start;
    times->least = times->calls == 0 ? passed : Py_MIN(times->least, passed);
    times->total += passed;
    times->calls++;
}

/* Python runs a few calls that an entry would answer, between others that it answers. Calls before the capture would be
   no fair comparison: evaluation takes less time than training, and it often comes first. */
#define FIRST_CONTROL 4
#define CAPTURED_PER_CONTROL 2
#define CONTROLS 4
#define CALLS_TO_JUDGE 16
#define TIMED 64 /* later calls are only counted */

int control_is_due(const struct Work *work)
{
    return work->control.calls < CONTROLS
        && work->captured.calls >= FIRST_CONTROL + CAPTURED_PER_CONTROL * work->control.calls;
}

/* With a margin for errors of measurement. What gains nothing may stay: the capture is paid. */
static int loses(const struct Work *work)
{
    return work->captured.calls >= CALLS_TO_JUDGE && (work->captured.calls & (work->captured.calls - 1)) == 0
        && work->control.calls >= CONTROLS && work->captured.least > work->control.least + work->control.least / 64;
}

/* An entry has answered for a frame. Code that was faster without goes back to Python. -1 with an exception. */
int note_answer(PyObject *callback, Slot *slot, unsigned long long start)
{
    add_time(&slot->work.captured, start);
    return loses(&slot->work) ? leave_alone_for(slot, callback) : 0;
}

/* ---- observing --------------------------------------------------------------------------------- */

/* A frame with tensor work has run. -1 with an exception. */
static int note_work(PyCodeObject *code, int is_module, struct Observed before, struct Observed after,
                     unsigned long long start)
{
    Slot *slot = make_slot(code);
    if (slot == NULL) {
        return -1;
    }
    if (start != 0) {
        add_time(&slot->work.plain, start);
    }
    slot->work.calls++;
    slot->work.is_module |= is_module;
    slot->work.operations += after.operations - before.operations;
    slot->work.in_modules += after.in_modules - before.in_modules;
    slot->work.frames += after.frames - before.frames;
    slot->work.frames_in_modules += after.frames_in_modules - before.frames_in_modules;
    return 0;
}

/* Does what evaluate_plainly() does. */
PyObject *evaluate_observed(PyThreadState *tstate, Frame *frame)
{
    PyCodeObject *code = (PyCodeObject *)Py_NewRef(frame_code(frame));
    int is_module = is_forward_of_module(frame, code);
    struct Observed before = observed;
    Slot *slot = find_slot(code);
    int timed = slot != NULL && slot->work.operations != 0 /* not the first call */ && slot->work.plain.calls < TIMED;
    unsigned long long start = timed ? nanoseconds() : 0;
    Activation here = {code, innermost};
    innermost = &here;
    observed.frames++;
    if (++quiet > patience) {
        quiet = 0;
        fall_asleep(tstate->interp);
    }
    PyObject *result = evaluate_plainly(tstate, frame, 0);
    innermost = here.caller;
    if (observed.operations != before.operations) {
        if (note_work(code, is_module, before, observed, start) < 0) {
            Py_CLEAR(result);
        }
        if (is_module) {
            observed.in_modules = before.in_modules + observed.operations - before.operations;
            observed.frames_in_modules = before.frames_in_modules + observed.frames - before.frames;
        }
    }
    Py_DECREF(code);
    return result;
}

PyObject *evaluate_control(PyThreadState *tstate, Frame *frame)
{
    PyCodeObject *code = (PyCodeObject *)Py_NewRef(frame_code(frame));
    unsigned long long start = nanoseconds();
    PyObject *result = evaluate_observed(tstate, frame);
    Slot *slot = find_slot(code);
    if (result != NULL && slot != NULL) {
        add_time(&slot->work.control, start);
    }
    Py_DECREF(code);
    return result;
}

/* ---- functions for Python ------------------------------------------------------------------ */

static Slot *slot_of(PyObject *object)
{
    if (!PyCode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "expected a code object, not %R", object);
        return NULL;
    }
    return make_slot((PyCodeObject *)object);
}

PyObject *work_of(PyObject *Py_UNUSED(module), PyObject *object)
{
    Slot *slot = slot_of(object);
    if (slot == NULL) {
        return NULL;
    }
    struct Work *work = &slot->work;
    return Py_BuildValue("(KKKKKO)", work->calls, work->operations, work->in_modules, work->frames,
                         work->frames_in_modules, work->is_module ? Py_True : Py_False);
}

/* ((calls, seconds of the fastest, of all) run by Python, the same by entries). Calls for comparison come first. */
PyObject *times_of(PyObject *Py_UNUSED(module), PyObject *object)
{
    Slot *slot = slot_of(object);
    if (slot == NULL) {
        return NULL;
    }
    struct Times *control = &slot->work.control, *captured = &slot->work.captured;
    struct Times *plain = control->calls ? control : &slot->work.plain;
    return Py_BuildValue("((Kdd)(Kdd))", plain->calls, plain->least * 1e-9, plain->total * 1e-9, captured->calls,
                         captured->least * 1e-9, captured->total * 1e-9);
}

PyObject *operations(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("(KK)", all_operations, captured_operations);
}

PyObject *ask_again(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *code;
    unsigned long long calls;
    if (!PyArg_ParseTuple(args, "OK:ask_again", &code, &calls)) {
        return NULL;
    }
    Slot *slot = slot_of(code);
    if (slot == NULL) {
        return NULL;
    }
    slot->work.next = calls;
    Py_RETURN_NONE;
}

/* The code of the frames that Python runs in this thread and the hook observes, the innermost first. */
PyObject *running(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *found = PyList_New(0);
    for (Activation *frame = innermost; found != NULL && frame != NULL; frame = frame->caller) {
        if (PyList_Append(found, (PyObject *)frame->code) < 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}
