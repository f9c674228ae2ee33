/* The guards of an entry, in C: what the hook and torch/tensors.cpp know of them.

   The files of this folder, in the order in which they are best read:
     program.h    the data of a guard program, and what the files below know of each other
     loads.c      where values come from, and which constants are the same
     checks.c     what is checked of a value
     run.c        running a program: the description of how it works is there
     words.c      what a program compares in place of its checks
     warm.c       comparing less while nothing changes: dicts that are watched
     make.c       making a program; lifetime.c: what it keeps alive, and how it ends
     slow_tensors.c  comparing tensors without torch/tensors.cpp
     dicts.c      dicts that tell when they change
     setters.c    assignments to classes of objects and to their dicts, counted
     compat.h     what differs between versions of CPython */

#ifndef SOT_GUARDS_H
#define SOT_GUARDS_H

#include <Python.h>

/* ---- how tensors are compared: by torch/tensors.cpp, whose capsule use_tensor_api() takes, else by slow_tensors.c --
   All specifications of a process are made for one of the two. */

#define TENSOR_API_NAME "sot._tensors.api"
#define TENSOR_SPEC_NAME "sot._tensors.spec"

typedef struct {
    const void *spec; /* what _tensors.spec() or _hook.slow_tensor_spec() has made */
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

/* Functions of the module: see sot/_hook.pyi. */
PyObject *use_tensor_api(PyObject *module, PyObject *capsule);
PyObject *use_slow_tensors(PyObject *module, PyObject *args);
PyObject *slow_tensor_spec(PyObject *module, PyObject *check);

/* ---- guards/dicts.c ------------------------------------------------------------------------------------------ */

typedef struct WatchedDict WatchedDict;

int dicts_can_be_watched(void);

/* The flag is cleared when the dict changes or dies, once dict_will_tell() has said yes. NULL if it cannot be. */
WatchedDict *dict_watch(PyObject *dict, int *flag);
void dict_unwatch(WatchedDict *watched, int *flag);

#if PY_VERSION_HEX >= 0x030E0000
/* The number that changes with a dict, NULL if it cannot be watched. `held` has who keeps it: let go of by forgetting. */
const void *word_of_dict_version(PyObject *dict, WatchedDict **held);

/* The dict whose number it is; NULL: it is gone. */
PyObject *dict_of_word(const void *word);
#endif

void dict_forget(WatchedDict **held);

/* Is it this dict that is watched, and no change of it under way? Then the next one clears the flags. */
int dict_will_tell(WatchedDict *watched, PyObject *dict);

/* The interpreter is about to end. */
void dicts_close(void);

/* ---- guards/setters.c ---------------------------------------------------------------------------------------- */

/* Are assignments to `__class__` counted from now on? */
int setters_tell(void);

/* And those of another dict to be the `__dict__` of an instance of this class? */
int setters_tell_of_dict(PyTypeObject *type);

/* Another number if one of them may have been made meanwhile. */
unsigned long long setters_count(void);

void setters_close(void);

/* ---- guards/run.c ------------------------------------------------------------------------------------- */

typedef struct Program Program;

/* NULL with an exception. See guards/make.c for what the arguments hold. The owner is an Entry. */
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

/* ---- of the hook ----------------------------------------------------------------------------------------- */

/* Something that its program works with is gone. */
void entry_died(PyObject *entry);

#endif
#endif
