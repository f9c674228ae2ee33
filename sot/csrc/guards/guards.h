/* The guards of an entry, in C: the interface for the hook and for torch/tensors.cpp.

   The files of this folder, in reading order:
     program.h    the data of a guard program, and the interfaces of the files below
     loads.c      how values are loaded, and which constants are the same
     checks.c     the checks of a value
     run.c        running a program; its head comment explains how that works
     words.c      the words that a program compares instead of repeating its checks
     warm.c       comparing fewer words while nothing changes, with watched dicts
     make.c       making a program; lifetime.c: what it keeps alive, and how it ends
     slow_tensors.c  comparing tensors without torch/tensors.cpp
     dicts.c      dicts that report when they change
     setters.c    counts assignments to the class and the dict of objects
     compat.h     differences between versions of CPython */

#ifndef SOT_GUARDS_H
#define SOT_GUARDS_H

#include <Python.h>

/* ---- how tensors are compared: by torch/tensors.cpp, whose capsule use_tensor_api() takes, else by slow_tensors.c --
   All specifications of a process are made for one of the two. */

#define TENSOR_API_NAME "sot._tensors.api"
#define TENSOR_SPEC_NAME "sot._tensors.spec"

typedef struct {
    const void *spec; /* what _tensors.spec() or _hook.slow_tensor_spec() has made */
    int node;         /* the node whose value must meet it */
    PyObject *value;  /* the node's: borrowed */
} TensorCheck;

typedef struct {
    /* Are these values tensors with the metadata of the specifications? Runs no Python code. */
    int (*all_match)(const TensorCheck *checks, int count);
    /* The dispatch keys that this thread adds to and removes from those of every tensor. */
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

/* After dict_will_tell() has returned true, the flag is cleared when the dict changes or dies. NULL on failure. */
WatchedDict *dict_watch(PyObject *dict, int *flag);
void dict_unwatch(WatchedDict *watched, int *flag);

#if PY_VERSION_HEX >= 0x030E0000
/* The number that changes with a dict; NULL if it cannot be watched. `held` gets the record; release it by forgetting.
   */
const void *word_of_dict_version(PyObject *dict, WatchedDict **held);

/* The dict of this number; NULL if it is gone. */
PyObject *dict_of_word(const void *word);
#endif

void dict_forget(WatchedDict **held);

/* Is this dict watched, with no change under way? Then its next change clears the flags. */
int dict_will_tell(WatchedDict *watched, PyObject *dict);

/* The interpreter is about to end. */
void dicts_close(void);

/* ---- guards/setters.c ---------------------------------------------------------------------------------------- */

/* Are assignments to `__class__` counted from now on? */
int setters_tell(void);

/* Are assignments to the `__dict__` of instances of this class counted, too? */
int setters_tell_of_dict(PyTypeObject *type);

/* A number that differs if there may have been such an assignment. */
unsigned long long setters_count(void);

void setters_close(void);

/* ---- guards/run.c ------------------------------------------------------------------------------------- */

typedef struct Program Program;

/* NULL with an exception. guards/make.c describes the arguments. The owner is an Entry. */
Program *program_new(PyObject *owner, PyObject *nodes, PyObject *pairs, PyObject *groups);
void program_free(Program *program);
int program_traverse(Program *program, visitproc visit, void *arg);
int program_size(Program *program);

/* Has an object that it uses been freed? Then its guards no longer hold. */
int program_is_dead(const Program *program);

/* Do all guards hold for these arguments? Never raises. */
int program_holds(Program *program, PyObject *const *args, Py_ssize_t count);

/* The value of each node when program_holds() last returned true: borrowed. */
PyObject *const *program_values(Program *program);

/* Is a node itself an argument? And a number that changes when another node gets a different value. */
int program_is_argument(const Program *program, int node);
unsigned long long program_generation(const Program *program);

/* The words that stand for checks, and how often nodes were checked again: for tests and measurements. */
PyObject *program_statistics(Program *program);

/* ---- of the hook ----------------------------------------------------------------------------------------- */

/* An object that its program uses has been freed. */
void entry_died(PyObject *entry);

#endif
#endif
