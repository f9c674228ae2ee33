/* Makes an entry from what sot/codegen/entry.py passes, and defines its type. */

#include "hook/entry.h"

void entry_died(PyObject *object)
{
    PyObject *callable = Py_XNewRef(((Entry *)object)->at_death);
    if (callable == NULL || closed) {
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

static PyObject *entry_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
        PyErr_SetString(PyExc_TypeError, "an entry takes no keyword arguments");
        return NULL;
    }
    return entry_ask(self, seen_callback(), args, PyVectorcall_NARGS(nargsf));
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
    Py_XDECREF(self->clock);
    Py_XDECREF(self->name);
    Py_XDECREF(self->file);
    PyObject_GC_Del(object);
    Py_TRASHCAN_END
}

/* ---- making --------------------------------------------------------------------------------------------- */

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

/* Which inputs are arguments, for refresh_inputs(). NULL without memory. */
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

/* ---- the type ------------------------------------------------------------------------------------------- */

static PyObject *entry_is_dead(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(program_is_dead(((Entry *)self)->program));
}

static PyObject *entry_clock(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *clock = ((Entry *)self)->clock;
    return Py_NewRef(clock != NULL ? clock : Py_None);
}

static int entry_set_clock(PyObject *self, PyObject *clock, void *Py_UNUSED(closure))
{
    if (clock == NULL || !Py_IS_TYPE(clock, &ClockType)) {
        PyErr_SetString(PyExc_TypeError, "the clock of an entry is a Clock");
        return -1;
    }
    Py_XSETREF(((Entry *)self)->clock, Py_NewRef(clock));
    return 0;
}

static PyGetSetDef entry_getters[] = {
    {"clock", entry_clock, entry_set_clock, "what measures its calls and guards, and what Python runs after it", NULL},
    {"is_dead", entry_is_dead, NULL, "whether a function or class of its guards has been freed", NULL},
    {0},
};

static PyMemberDef entry_members[] = {
    {"at_death", T_OBJECT, offsetof(Entry, at_death), 0, "called when a function or class of its guards is freed"},
    {"function", T_OBJECT, offsetof(Entry, function), READONLY, "the function that is called after the graph, or None"},
    {"graph", T_OBJECT, offsetof(Entry, graph), READONLY, "the graph that the entry itself calls, or None"},
    {0},
};

static PyMethodDef entry_methods[] = {
    {"holds", entry_holds, METH_O, "Whether all guards of the program hold for a tuple of arguments."},
    {"statistics", entry_statistics, METH_NOARGS, "The size of the guard program, and how often nodes were checked."},
    {0},
};

PyTypeObject EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Entry",
    .tp_doc = "Takes the place of a frame while its guards hold; see sot/csrc/hook/entry.c.",
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
