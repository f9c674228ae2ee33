/* An entry: what takes the place of a frame while its guards hold.

   In: a guard program, the graph with the nodes that are its inputs, and a Python function for what is left.
   Out: MISS if a guard does not hold. Else what the graph gives (an entry without a function), or what the function
   gives for the frame's arguments, the nodes it asks for and the graph's result.

   Values of nodes are borrowed: between the guards and whoever takes them over no Python code runs. A Python
   function takes its arguments over at once; for any other callable they are held here.

   Of a graph with many inputs, most are the weights of a model, the same ones in each call. So the items of such a call
   are kept, with the generation of the program's values that they are of, and only the arguments are put in anew. A call
   that comes while the items are lent out (from within the graph, or of another thread) collects its own. */

#define PY_SSIZE_T_CLEAN
#include "_guards.h"

#include <structmember.h>

#include "_guards_compat.h"

typedef struct {
    PyCFunction function; /* NULL: not a C function without arguments */
    PyObject *callable;
    PyObject *self;
    PyObject *expected;
} Question;

typedef struct {
    PyObject_HEAD
    Program *program;
    vectorcallfunc vectorcall;
    PyObject *parts; /* what was given, so that it lives as long */
    PyObject *callback; /* a weak reference to what the thread's has to be, or NULL */
    PyObject *function; /* NULL: the result is `answer`, or an item of the graph's */
    PyObject *graph;    /* NULL: the function calls it, if there is one */
    PyObject *recover;  /* asked when the graph raises; NULL: nobody */
    PyObject *answer;
    PyObject *name, *file; /* of the user's code, for tracebacks: who holds the code itself is never freed with it */
    int line;
    Question *questions;
    int *outputs, *inputs;
    Py_ssize_t question_count, output_count, input_count, result_count, result_index;
    PyObject **items; /* of the graph's last call, borrowed, with room for one more in front; NULL: there was none */
    unsigned long long generation; /* of the program's values when all of them were put in */
    int lent;
    int *arguments; /* which of the inputs are */
    Py_ssize_t argument_count;
    int needs_callback;
    PyObject *at_death; /* called when the program works no more; NULL: nobody */
    PyObject *weakrefs;
} Entry;

static PyObject *MISS;
static PyObject *PLAIN;

#define FEW 48

/* ---- asking --------------------------------------------------------------------------------------------- */

/* Is the rest of the world as it was: what C functions of torch say of modes and switches? */
static int world_is_the_same(const Entry *self)
{
    for (Py_ssize_t i = 0; i < self->question_count; i++) {
        const Question *question = self->questions + i;
        PyObject *answer = question->function != NULL ? question->function(question->self, NULL)
                                                      : PyObject_CallNoArgs(question->callable);
        if (answer == NULL) {
            PyErr_Clear();
            return 0;
        }
        Py_DECREF(answer); /* of singletons, which it is compared with */
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

/* Calls with values that may be freed as soon as Python code runs. `items` has room for one more in front. */
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

/* The graph has raised. A new reference: PLAIN if Python can run the frame from its start, else NULL. */
static PyObject *recover(const Entry *self)
{
    if (self->recover == NULL || !PyErr_ExceptionMatches(PyExc_Exception)) {
        return NULL;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *answer = PyObject_CallOneArg(self->recover, value);
    if (answer == PLAIN) {
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

/* The items that are kept, as they are now. NULL without memory. */
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

/* The graph's result for the values that the program's nodes have. NULL with an exception. */
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

/* One of the graph's results, which are in a tuple or list. Takes over the reference. */
static PyObject *pick(const Entry *self, PyObject *results)
{
    PyObject *fast = PySequence_Fast(results, "a graph returns a tuple or list");
    Py_DECREF(results);
    if (fast == NULL) {
        return NULL;
    }
    PyObject *result = NULL;
    if (PySequence_Fast_GET_SIZE(fast) == self->result_count) {
        result = Py_NewRef(PySequence_Fast_GET_ITEM(fast, self->result_index));
    } else {
        PyErr_Format(PyExc_ValueError, "the graph gave %zd results instead of %zd", PySequence_Fast_GET_SIZE(fast),
                     self->result_count);
    }
    Py_DECREF(fast);
    return result;
}

/* What the function makes of arguments, nodes and the graph's result. Takes over the reference to the result. */
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

/* The graph first, then the function, for which the nodes that it asks for are held meanwhile. */
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
    PyObject *answer = self->graph != NULL && (result == NULL || result == PLAIN)
        ? result : run_function(self, args, count, result, outputs);
    for (Py_ssize_t i = 0; i < held; i++) {
        Py_DECREF(outputs[i]);
    }
    if (outputs != few) {
        PyMem_Free(outputs);
    }
    return answer;
}

PyObject *entry_ask(PyObject *object, PyObject *callback, PyObject *const *args, Py_ssize_t count)
{
    Entry *self = (Entry *)object;
    if ((self->callback != NULL && callback != PyWeakref_GET_OBJECT(self->callback)) || !program_holds(self->program, args, count)
        || !world_is_the_same(self)) {
        return Py_NewRef(MISS);
    }
    if (self->answer != NULL) {
        return Py_NewRef(self->answer);
    }
    Py_INCREF(self); /* what it runs may drop it */
    PyObject *answer;
    if (self->function != NULL) {
        answer = run_both(self, args, count);
    } else {
        answer = run_graph(self);
        answer = answer == NULL || answer == PLAIN ? answer : pick(self, answer);
    }
    Py_DECREF(self);
    return answer;
}

int entry_program_holds(PyObject *entry, PyObject *const *args, Py_ssize_t count)
{
    return program_holds(((Entry *)entry)->program, args, count);
}

void entry_died(PyObject *object)
{
    PyObject *callable = Py_XNewRef(((Entry *)object)->at_death);
    if (callable == NULL || hook_is_closed()) {
        Py_XDECREF(callable);
        return;
    }
    PyObject *result = call_hidden(callable, NULL, 0);
    if (result == NULL) {
        PyErr_WriteUnraisable(callable);
    }
    Py_XDECREF(result);
    Py_DECREF(callable);
}

int entry_needs_callback(PyObject *entry)
{
    return ((Entry *)entry)->needs_callback;
}

/* ---- the type ------------------------------------------------------------------------------------------- */

static PyObject *entry_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
        PyErr_SetString(PyExc_TypeError, "an entry takes no keyword arguments");
        return NULL;
    }
    return entry_ask(self, visible_callback(), args, PyVectorcall_NARGS(nargsf));
}

static PyObject *entry_holds(PyObject *object, PyObject *args)
{
    Entry *self = (Entry *)object;
    if (!PyTuple_Check(args)) {
        return PyErr_Format(PyExc_TypeError, "holds() needs a tuple of arguments, not %R", args);
    }
    return PyBool_FromLong(program_holds(self->program, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args))
                           && world_is_the_same(self));
}

static PyObject *entry_statistics(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return program_statistics(((Entry *)self)->program);
}

static int entry_traverse(PyObject *object, visitproc visit, void *arg)
{
    Entry *self = (Entry *)object;
    Py_VISIT(self->parts);
    Py_VISIT(self->callback);
    Py_VISIT(self->at_death);
    return self->program != NULL ? program_traverse(self->program, visit, arg) : 0;
}

static void entry_dealloc(PyObject *object)
{
    Entry *self = (Entry *)object;
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(object, entry_dealloc)
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    program_free(self->program);
    PyMem_Free(self->questions);
    PyMem_Free(self->outputs);
    PyMem_Free(self->inputs);
    PyMem_Free(self->items);
    PyMem_Free(self->arguments);
    Py_XDECREF(self->parts);
    Py_XDECREF(self->callback);
    Py_XDECREF(self->at_death);
    Py_XDECREF(self->name);
    Py_XDECREF(self->file);
    PyObject_GC_Del(object);
    Py_TRASHCAN_END
}

static int *read_indices(PyObject *tuple, Py_ssize_t *count, int limit)
{
    *count = PyTuple_GET_SIZE(tuple);
    int *indices = PyMem_Calloc(*count + 1, sizeof(int));
    for (Py_ssize_t i = 0; indices != NULL && i < *count; i++) {
        indices[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(tuple, i));
        if (indices[i] < 0 || indices[i] >= limit) {
            PyErr_SetString(PyExc_ValueError, "an entry has no such node");
            PyMem_Free(indices);
            return NULL;
        }
    }
    return indices;
}

/* Which of the inputs are arguments, as refresh_inputs() asks. NULL without memory. */
static int *find_arguments(const Entry *self, Py_ssize_t *count)
{
    int *arguments = PyMem_Calloc(self->input_count + 1, sizeof(int));
    for (int i = 0; arguments != NULL && i < self->input_count; i++) {
        if (program_is_argument(self->program, self->inputs[i])) {
            arguments[(*count)++] = i;
        }
    }
    return arguments;
}

static Question *read_questions(PyObject *tuple, Py_ssize_t *count)
{
    *count = PyTuple_GET_SIZE(tuple);
    Question *questions = PyMem_Calloc(*count + 1, sizeof(Question));
    for (Py_ssize_t i = 0; questions != NULL && i < *count; i++) {
        Question *question = questions + i;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i), "OO:question", &question->callable, &question->expected)) {
            PyMem_Free(questions);
            return NULL;
        }
        if (PyCFunction_CheckExact(question->callable)
            && (PyCFunction_GET_FLAGS(question->callable) & ~METH_STATIC) == METH_NOARGS) {
            question->function = PyCFunction_GET_FUNCTION(question->callable);
            question->self = PyCFunction_GET_SELF(question->callable);
        }
    }
    return questions;
}

static PyObject *none_is_null(PyObject *object)
{
    return Py_IsNone(object) ? NULL : object;
}

static int fill(Entry *self, PyObject *args)
{
    PyObject *nodes, *pairs, *groups, *questions, *outputs, *inputs, *callback;
    PyCodeObject *code;
    if (!PyArg_ParseTuple(args, "O!O!O!O!OOO!OO!OnnOO!p:Entry", &PyList_Type, &nodes, &PyList_Type, &pairs,
                          &PyList_Type, &groups, &PyTuple_Type, &questions, &callback, &self->function,
                          &PyTuple_Type, &outputs, &self->graph, &PyTuple_Type, &inputs, &self->recover,
                          &self->result_count, &self->result_index, &self->answer, &PyCode_Type, &code,
                          &self->needs_callback)) {
        return -1;
    }
    self->parts = PyTuple_Pack(5, questions, self->function, self->graph, self->recover, self->answer);
    self->callback = Py_IsNone(callback) ? NULL : PyWeakref_NewRef(callback, NULL);
    if (self->parts == NULL || (self->callback == NULL && !Py_IsNone(callback))) {
        return -1;
    }
    self->name = Py_NewRef(code->co_name);
    self->file = Py_NewRef(code->co_filename);
    self->line = code->co_firstlineno;
    self->function = none_is_null(self->function);
    self->graph = none_is_null(self->graph);
    self->recover = none_is_null(self->recover);
    self->answer = none_is_null(self->answer);
    if (self->function == NULL && self->answer == NULL
        && (self->graph == NULL || self->result_index < 0 || self->result_index >= self->result_count)) {
        PyErr_SetString(PyExc_ValueError, "an entry needs a function, an answer, or a result of a graph");
        return -1;
    }
    self->program = program_new((PyObject *)self, nodes, pairs, groups);
    if (self->program == NULL) {
        return -1;
    }
    int size = program_size(self->program);
    self->questions = read_questions(questions, &self->question_count);
    self->outputs = read_indices(outputs, &self->output_count, size);
    self->inputs = read_indices(inputs, &self->input_count, size);
    if (self->questions == NULL || self->outputs == NULL || self->inputs == NULL) {
        return -1;
    }
    self->arguments = find_arguments(self, &self->argument_count);
    return self->arguments != NULL ? 0 : -1;
}

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    Entry *self = (Entry *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = entry_vectorcall;
    if (fill(self, args) < 0) {
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *entry_is_dead(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(program_is_dead(((Entry *)self)->program));
}

static PyGetSetDef entry_getters[] = {
    {"is_dead", entry_is_dead, NULL, "whether a function or class that its guards name is gone", NULL},
    {NULL},
};

static PyMemberDef entry_members[] = {
    {"at_death", T_OBJECT, offsetof(Entry, at_death), 0, "called when a function or class is gone that its guards name"},
    {"function", T_OBJECT, offsetof(Entry, function), READONLY, "what is called after the graph, or None"},
    {"graph", T_OBJECT, offsetof(Entry, graph), READONLY, "the graph that the entry itself calls, or None"},
    {NULL},
};

static PyMethodDef entry_methods[] = {
    {"holds", entry_holds, METH_O, "Whether all guards of the program hold for a tuple of arguments."},
    {"statistics", entry_statistics, METH_NOARGS, "How large the guard program is, and how often it had to look."},
    {NULL},
};

PyTypeObject EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Entry",
    .tp_doc = "Takes the place of a frame while its guards hold; see sot/_entry.c.",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = entry_new,
    .tp_dealloc = entry_dealloc,
    .tp_traverse = entry_traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Entry, vectorcall),
    .tp_weaklistoffset = offsetof(Entry, weakrefs),
    .tp_members = entry_members,
    .tp_getset = entry_getters,
    .tp_methods = entry_methods,
};

int entry_prepare(PyObject *miss, PyObject *plain)
{
    MISS = miss;
    PLAIN = plain;
    return PyType_Ready(&EntryType);
}
