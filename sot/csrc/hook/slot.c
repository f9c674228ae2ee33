/* The state of a code object: its entries, and the callbacks that leave it alone.

   A Callback is what a translator sets as a thread's callback. One translator may leave a code object alone while
   another does not. So its slot keeps the tokens of those that do. A token outlives its Callback, and is one word of
   memory that keeps nothing else alive. */

#include "hook/hook.h"

/* ---- callbacks and their tokens ----------------------------------------------------------------- */

static void release_token(Token *token)
{
    if (--token->users == 0) {
        PyMem_Free(token);
    }
}

static PyObject *callback_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *function = Py_NewRef(((Callback *)self)->function);
    PyObject *result = PyObject_Vectorcall(function, args, nargsf, kwnames);
    Py_DECREF(function);
    return result;
}

static PyObject *callback_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *function;
    int observes = 0;
    if (!PyArg_ParseTuple(args, "O|p:Callback", &function, &observes)) {
        return NULL;
    }
    if (!PyCallable_Check(function)) {
        return PyErr_Format(PyExc_TypeError, "a Callback needs a callable, not %R", function);
    }
    Token *token = PyMem_Malloc(sizeof(Token));
    Callback *self = token != NULL ? (Callback *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        PyMem_Free(token);
        return PyErr_NoMemory();
    }
    *token = (Token){1, 1};
    self->token = token;
    self->function = Py_NewRef(function);
    self->vectorcall = callback_vectorcall;
    self->observes = observes;
    return (PyObject *)self;
}

static int callback_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Callback *)self)->function);
    return 0;
}

static int callback_clear(PyObject *self)
{
    Py_SETREF(((Callback *)self)->function, Py_NewRef(Py_None)); /* a finalizer may still call it */
    return 0;
}

static void callback_dealloc(PyObject *object)
{
    Callback *self = (Callback *)object;
    PyObject_GC_UnTrack(object);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    self->token->alive = 0;
    release_token(self->token);
    Py_CLEAR(self->function);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef callback_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Callback, function), READONLY, "the wrapped callable"},
    {0},
};

PyTypeObject CallbackType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Callback",
    .tp_doc = "Callback(function, observes=False): a callback that code objects can be left alone for. One that "
              "observes is called only for code that has done tensor work.",
    .tp_basicsize = sizeof(Callback),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = callback_new,
    .tp_dealloc = callback_dealloc,
    .tp_traverse = callback_traverse,
    .tp_clear = callback_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Callback, vectorcall),
    .tp_weaklistoffset = offsetof(Callback, weakrefs),
    .tp_members = callback_members,
};

/* ---- slots -------------------------------------------------------------------------------------- */

Py_ssize_t slot_index;

Slot *make_slot(PyCodeObject *code)
{
    Slot *slot = find_slot(code);
    if (slot != NULL) {
        return slot;
    }
    slot = PyMem_Calloc(1, sizeof(Slot));
    if (slot == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (PyUnstable_Code_SetExtra((PyObject *)code, slot_index, slot) < 0) {
        PyMem_Free(slot);
        return NULL;
    }
    COUNT(slots, 1);
    return slot;
}

/* Takes over the reference; an empty tuple counts as none. */
void replace_entries(Slot *slot, PyObject *entries)
{
    if (entries != NULL && PyTuple_GET_SIZE(entries) == 0) {
        Py_CLEAR(entries);
    }
    PyObject *before = slot->entries;
    slot->entries = entries;
    COUNT(entries, entries ? PyTuple_GET_SIZE(entries) : 0);
    COUNT(entries, before ? -PyTuple_GET_SIZE(before) : 0);
    Py_XDECREF(before);
}

void forget_tokens(Slot *slot)
{
    for (Py_ssize_t i = 0; i < slot->token_count; i++) {
        release_token(slot->tokens[i]);
    }
    PyMem_Free(slot->tokens);
    slot->tokens = NULL;
    slot->token_count = 0;
}

void free_slot(void *memory)
{
    Slot *slot = memory;
    if (slot != NULL) {
        replace_entries(slot, NULL);
        forget_tokens(slot);
        PyMem_Free(slot);
        COUNT(slots, -1);
    }
}

/* ---- leaving code alone ------------------------------------------------------------------------- */

/* Tokens of freed Callbacks make room first. -1 with an exception. */
int leave_alone_for(Slot *slot, PyObject *callback)
{
    if (is_left_alone(slot, callback)) {
        return 0;
    }
    Py_ssize_t kept = 0;
    for (Py_ssize_t i = 0; i < slot->token_count; i++) {
        if (slot->tokens[i]->alive) {
            slot->tokens[kept++] = slot->tokens[i];
        } else {
            release_token(slot->tokens[i]);
        }
    }
    slot->token_count = kept;
    Token **tokens = PyMem_Realloc(slot->tokens, (kept + 1) * sizeof(Token *));
    if (tokens == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Token *token = ((Callback *)callback)->token;
    token->users++;
    tokens[kept] = token;
    slot->tokens = tokens;
    slot->token_count = kept + 1;
    return 0;
}
