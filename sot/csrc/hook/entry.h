/* The structure of an entry, for hook/entry.c and hook/entry_type.c. */

#ifndef SOT_HOOK_ENTRY_H
#define SOT_HOOK_ENTRY_H

#include "hook/hook.h"

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
    PyObject *parts; /* the objects that it was made from, kept alive */
    PyObject *callback; /* a weak reference to the callback that the thread must have, or NULL */
    PyObject *function; /* NULL: the result is `answer`, or an item of the graph's result */
    PyObject *graph;    /* NULL: the function calls the graph, if there is one */
    PyObject *recover;  /* called when the graph raises, or NULL */
    PyObject *answer;
    /* Name, file and line of the code object, for tracebacks. A reference to the code object would be a cycle that
       the garbage collector does not see. */
    PyObject *name, *file;
    int line;
    Question *questions;
    int *outputs, *inputs;
    Py_ssize_t question_count, output_count, input_count, result_count, result_index;
    PyObject **items; /* of the graph's last call, borrowed, with a free element in front; NULL: there was none */
    unsigned long long generation; /* of the program's values when all items were stored */
    int lent;
    int *arguments; /* which inputs are arguments */
    Py_ssize_t argument_count;
    int needs_callback;
    PyObject *clock;    /* for reports, or NULL */
    PyObject *at_death; /* called when the program is no longer usable, or NULL */
    PyObject *weakrefs;
} Entry;

/* Is the rest of the state unchanged, according to torch's C functions for modes and switches? */
int world_is_the_same(const Entry *self);

#endif
