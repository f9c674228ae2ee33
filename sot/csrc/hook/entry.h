/* What hook/entry.c and hook/entry_type.c know of an entry. */

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

/* Is the rest of the world as it was: what C functions of torch say of modes and switches? */
int world_is_the_same(const Entry *self);

#endif
