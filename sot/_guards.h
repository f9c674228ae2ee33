/* What _hook.c, _entry.c, _guards.c, _dicts.c, _setters.c and _tensors.cpp know of each other. */

#ifndef SOT_GUARDS_H
#define SOT_GUARDS_H

#include <Python.h>

/* ---- _tensors.cpp, by way of a capsule: this part of the package does not need torch --------------- */

#define TENSOR_API_NAME "sot._tensors.api"
#define TENSOR_SPEC_NAME "sot._tensors.spec"

typedef struct {
    const void *spec; /* what _tensors.spec() has made */
    int node;         /* whose value is to meet it */
    PyObject *value;  /* the node's: borrowed */
} TensorCheck;

typedef struct {
    /* Are these values tensors with the metadata that the specifications say? No Python code runs. */
    int (*all_match)(const TensorCheck *checks, int count);
    /* The dispatch keys that this thread adds to and takes from those of every tensor. */
    void (*thread_keys)(unsigned long long keys[2]);
} TensorApi;

#ifndef __cplusplus

/* ---- _dicts.c ------------------------------------------------------------------------------------------ */

typedef struct WatchedDict WatchedDict;

int dicts_can_be_watched(void);

/* The flag is cleared when the dict changes or dies, once dict_will_tell() has said yes. NULL if it cannot be. */
WatchedDict *dict_watch(PyObject *dict, int *flag);
void dict_unwatch(WatchedDict *watched, int *flag);

/* Is it this dict that is watched, and no change of it under way? Then the next one clears the flags. */
int dict_will_tell(WatchedDict *watched, PyObject *dict);

/* The interpreter is about to end. */
void dicts_close(void);

/* ---- _setters.c ---------------------------------------------------------------------------------------- */

/* Are assignments to `__class__` counted from now on? */
int setters_tell(void);

/* And those of another dict to be the `__dict__` of an instance of this class? */
int setters_tell_of_dict(PyTypeObject *type);

/* Another number if one of them may have been made meanwhile. */
unsigned long long setters_count(void);

void setters_close(void);

/* ---- _guards.c ------------------------------------------------------------------------------------- */

typedef struct Program Program;

/* NULL with an exception. See _guards.c for what the arguments hold. The owner is an Entry. */
Program *program_new(PyObject *owner, PyObject *nodes, PyObject *pairs, PyObject *groups);
void program_free(Program *program);
int program_traverse(Program *program, visitproc visit, void *arg);
int program_size(Program *program);

/* Is something gone that it works with? Then its guards hold no more. */
int program_is_dead(const Program *program);

/* Do all guards hold for these arguments? Never raises. */
int program_holds(Program *program, PyObject *const *args, Py_ssize_t count);

/* The value of each node when program_holds() last said yes: borrowed. */
PyObject *const *program_values(Program *program);

/* Is a node an argument itself? And a number that is another one when a node that is none has got another value. */
int program_is_argument(const Program *program, int node);
unsigned long long program_generation(const Program *program);

/* The words that stand for checks, and how often a node was looked at anew: for tests and measurements. */
PyObject *program_statistics(Program *program);

/* ---- _entry.c -------------------------------------------------------------------------------------- */

extern PyTypeObject EntryType;

/* Something that its program works with is gone. */
void entry_died(PyObject *entry);

int entry_prepare(PyObject *miss, PyObject *plain);

/* A new reference: the answer, MISS or PLAIN; NULL with an exception. */
PyObject *entry_ask(PyObject *entry, PyObject *callback, PyObject *const *args, Py_ssize_t count);

/* Does what it does need the callback of its translator to be set? */
int entry_needs_callback(PyObject *entry);

/* Do the guards of its program hold? */
int entry_program_holds(PyObject *entry, PyObject *const *args, Py_ssize_t count);

/* ---- _hook.c --------------------------------------------------------------------------------------- */

PyObject *visible_callback(void);
int hook_is_closed(void);
PyObject *call_hidden(PyObject *callable, PyObject *const *args, size_t nargsf);

#endif
#endif
