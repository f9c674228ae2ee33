/* An entry: it takes the place of a frame while its guards hold.

   In: a guard program, the graph with the nodes that are its inputs, and a Python function for the rest.
   Out: MISS if a guard does not hold. Otherwise the result of the graph (for an entry without a function), or the
   result of the function for the frame's arguments, the nodes that it needs and the graph's result.

   Values of nodes are borrowed. No Python code runs between the guards and the code that takes the values over. A
   Python function takes its arguments over at once. For any other callable they are held here.

   Most inputs of a graph with many inputs are weights of a model, which are the same in each call. So the items of
   such a call are kept, with the generation of the program's values that they belong to, and only the arguments are
   replaced. A call that comes while the items are in use (from within the graph, or from another thread) collects its
   own. */

#include "hook/entry.h"

#define FEW 48

/* Is the rest of the state unchanged, according to torch's C functions for modes and switches? */
int world_is_the_same(const Entry *self)
{
    for (Py_ssize_t i = 0; i < self->question_count; i++) {
        const Question *question = self->questions + i;
        PyObject *answer = question->function != NULL ? question->function(question->self, NULL)
                                                      : PyObject_CallNoArgs(question->callable);
        if (answer == NULL) {
            PyErr_Clear();
            return 0;
        }
        Py_DECREF(answer); /* these are singletons, so they may be compared after this */
        if (answer != question->expected) {
            return 0;
        }
    }
    return 1;
}

static int takes_over(PyObject *callable)
{
    return PyFunction_Check(callable) || (PyMethod_Check(callable) && PyFunction_Check(PyMethod_GET_FUNCTION(callable)));
}

/* Calls with values that may be freed as soon as Python code runs. `items` has a free element in front. */
static PyObject *call_graph(const Entry *self, PyObject **items)
{
    Py_ssize_t count = self->input_count;
    int held = !takes_over(self->graph);
    for (Py_ssize_t i = 0; held && i < count; i++) {
        Py_INCREF(items[i]);
    }
    PyObject *result = call_hidden(self->graph, items, count | PY_VECTORCALL_ARGUMENTS_OFFSET);
    for (Py_ssize_t i = 0; held && i < count; i++) {
        Py_DECREF(items[i]);
    }
    return result;
}

/* Whether this is a result of the entry itself, in place of the graph's results. */
static int is_answer(PyObject *result)
{
    return result == NULL || result == PLAIN || Py_IS_TYPE(result, &TailType);
}

/* The graph has raised. A new reference: PLAIN if Python can run the frame from its start; a Tail that raises the
   exception in the program's frames; NULL if it is none of the program. */
static PyObject *recover(const Entry *self)
{
    if (self->recover == NULL || !PyErr_ExceptionMatches(PyExc_Exception)) {
        return NULL;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    PyObject *answer = PyObject_CallOneArg(self->recover, value);
    if (answer != NULL && is_answer(answer)) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return answer;
    }
    if (answer != NULL) {
        Py_DECREF(answer);
        PyErr_Restore(type, value, traceback);
    } else {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    return NULL;
}

static PyObject **collect_inputs(const Entry *self, PyObject **items)
{
    PyObject *const *values = program_values(self->program);
    for (Py_ssize_t i = 0; items != NULL && i < self->input_count; i++) {
        items[i + 1] = values[self->inputs[i]];
    }
    return items;
}

/* The kept items, updated. NULL without memory. */
static PyObject **refresh_inputs(Entry *self)
{
    unsigned long long generation = program_generation(self->program);
    if (self->items == NULL || self->generation != generation) {
        self->items = self->items != NULL ? self->items : PyMem_New(PyObject *, self->input_count + 1);
        self->generation = generation;
        return collect_inputs(self, self->items);
    }
    PyObject *const *values = program_values(self->program);
    for (Py_ssize_t i = 0; i < self->argument_count; i++) {
        int input = self->arguments[i];
        self->items[input + 1] = values[self->inputs[input]];
    }
    return self->items;
}

/* The graph's result for the current values of the program's nodes. NULL with an exception. */
static PyObject *call_with_inputs(Entry *self)
{
    PyObject *few[FEW + 1], *result = NULL;
    if (self->input_count <= FEW) {
        return call_graph(self, collect_inputs(self, few) + 1);
    }
    int lent = self->lent;
    PyObject **items = lent ? collect_inputs(self, PyMem_New(PyObject *, self->input_count + 1)) : refresh_inputs(self);
    if (items == NULL) {
        return PyErr_NoMemory();
    }
    self->lent = 1;
    result = call_graph(self, items + 1);
    if (lent) {
        PyMem_Free(items);
    } else {
        self->lent = 0;
    }
    return result;
}

static PyObject *run_graph(Entry *self)
{
    PyObject *result = call_with_inputs(self);
    if (result == NULL) {
        result = recover(self);
        if (result == NULL) {
            _PyTraceback_Add(PyUnicode_AsUTF8(self->name), PyUnicode_AsUTF8(self->file), self->line);
        }
    }
    return result;
}

/* An item of the graph's results, which are a tuple or list. Takes over the reference. */
static PyObject *pick(const Entry *self, PyObject *results)
{
    if (!PyTuple_Check(results) && !PyList_Check(results)) {
        PyErr_Format(PyExc_TypeError, "the graph that the backend has compiled returned %.100s instead of a tuple or list",
                     Py_TYPE(results)->tp_name);
        Py_DECREF(results);
        return NULL;
    }
    PyObject *fast = PySequence_Fast(results, "");
    Py_DECREF(results);
    if (fast == NULL) {
        return NULL;
    }
    PyObject *result = NULL;
    if (PySequence_Fast_GET_SIZE(fast) == self->result_count) {
        result = Py_NewRef(PySequence_Fast_GET_ITEM(fast, self->result_index));
    } else {
        PyErr_Format(PyExc_ValueError, "the graph returned %zd results instead of %zd", PySequence_Fast_GET_SIZE(fast),
                     self->result_count);
    }
    Py_DECREF(fast);
    return result;
}

/* The function's result for arguments, nodes and the graph's result. Takes over the reference to the result. */
static PyObject *run_function(const Entry *self, PyObject *const *args, Py_ssize_t count, PyObject *result,
                              PyObject *const *outputs)
{
    Py_ssize_t total = count + self->output_count + (result != NULL);
    PyObject *few[FEW + 1];
    PyObject **items = total <= FEW ? few : PyMem_New(PyObject *, total + 1);
    if (items == NULL) {
        Py_XDECREF(result);
        return PyErr_NoMemory();
    }
    memcpy(items + 1, args, count * sizeof(PyObject *));
    memcpy(items + 1 + count, outputs, self->output_count * sizeof(PyObject *));
    if (result != NULL) {
        items[total] = result;
    }
    PyObject *answer = PyObject_Vectorcall(self->function, items + 1, total | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (items != few) {
        PyMem_Free(items);
    }
    Py_XDECREF(result);
    return answer;
}

/* The graph first, then the function. The nodes that it needs are held meanwhile. */
static PyObject *run_both(Entry *self, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t held = self->output_count;
    PyObject *few[FEW];
    PyObject **outputs = held <= FEW ? few : PyMem_New(PyObject *, held);
    if (outputs == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *const *values = program_values(self->program);
    for (Py_ssize_t i = 0; i < held; i++) {
        outputs[i] = Py_NewRef(values[self->outputs[i]]);
    }
    PyObject *result = self->graph != NULL ? run_graph(self) : NULL;
    PyObject *answer = self->graph != NULL && is_answer(result)
        ? result : run_function(self, args, count, result, outputs);
    for (Py_ssize_t i = 0; i < held; i++) {
        Py_DECREF(outputs[i]);
    }
    if (outputs != few) {
        PyMem_Free(outputs);
    }
    return answer;
}

static int holds(const Entry *self, PyObject *const *args, Py_ssize_t count)
{
    unsigned weight = self->clock != NULL ? clock_weight(self->clock) : 0;
    unsigned long long start = weight != 0 ? nanoseconds() : 0;
    int answer = program_holds(self->program, args, count) && world_is_the_same(self);
    if (weight != 0) {
        ((Clock *)self->clock)->checking += weight * (nanoseconds() - start);
    }
    return answer;
}

int entry_fits(PyObject *object, PyObject *callback, PyObject *const *args, Py_ssize_t count)
{
    Entry *self = (Entry *)object;
    return (self->callback == NULL || callback == PyWeakref_GET_OBJECT(self->callback)) && holds(self, args, count);
}

PyObject *entry_ask(PyObject *object, PyObject *callback, PyObject *const *args, Py_ssize_t count)
{
    Entry *self = (Entry *)object;
    if (!entry_fits(object, callback, args, count)) {
        return Py_NewRef(MISS);
    }
    if (self->answer != NULL) {
        return Py_NewRef(self->answer);
    }
    Py_INCREF(self); /* the code that it runs may drop it */
    PyObject *answer;
    if (self->function != NULL) {
        answer = run_both(self, args, count);
    } else {
        answer = run_graph(self);
        answer = is_answer(answer) ? answer : pick(self, answer);
    }
    if (self->clock != NULL && answer != NULL && answer != PLAIN) {
        ((Clock *)self->clock)->calls++;
        if (Py_IS_TYPE(answer, &TailType)) {
            tail_set_clock(answer, self->clock);
        }
    }
    Py_DECREF(self);
    return answer;
}

int entry_program_holds(PyObject *entry, PyObject *const *args, Py_ssize_t count)
{
    return program_holds(((Entry *)entry)->program, args, count);
}

int entry_needs_callback(PyObject *entry)
{
    return ((Entry *)entry)->needs_callback;
}

PyObject *call_hidden(PyObject *callable, PyObject *const *args, size_t nargsf)
{
    int before = view.hidden;
    view.hidden = 1;
    PyObject *result = PyObject_Vectorcall(callable, args, nargsf, NULL);
    view.hidden = before;
    return result;
}
