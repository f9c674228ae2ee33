/* Dicts that report when they change: CPython 3.12 and later.

   In: a dict, and a flag. The next change of the dict, or its end, clears the flag.
   Out: NULL if dicts cannot be watched: on 3.11, without a free watcher (a process has eight), without memory, or
   when the interpreter is about to end. The caller then compares the dict's version.

   CPython reports a change before it is made. Code that runs in between (another watcher's) finds the dict unchanged,
   and a flag that it sets then would miss the change. So before 3.14 a dict counts as unchanged only if its version
   differs from that at its last report. Nothing here keeps a dict alive, allocates within the callback, or raises. */

#define PY_SSIZE_T_CLEAN
#include "guards/guards.h"

#include "guards/compat.h"

struct WatchedDict {
    PyObject *dict; /* borrowed; NULL: gone */
    WatchedDict *next; /* in its bucket */
    uint64_t version; /* when it reported last; on 3.14, the number of its reports */
    int users; /* the number of users of the record for the sake of this number */
    int has_told; /* are all flags clear? */
    int count, room;
    int **flags;
};

static struct {
    int watcher; /* CPython's id of our watcher; -1: none */
    enum { UNTRIED, WATCHING, UNAVAILABLE } state;
    WatchedDict **buckets;
    size_t mask, count;
} all = {.watcher = -1};

/* ---- the table of all watched dicts ----------------------------------------------------------------------- */

static WatchedDict **bucket_of(PyObject *dict)
{
    return all.buckets + (((uintptr_t)dict >> 4) * (size_t)0x9E3779B97F4A7C15u >> 20 & all.mask);
}

static WatchedDict *find(PyObject *dict)
{
    WatchedDict *found = all.buckets != NULL ? *bucket_of(dict) : NULL;
    while (found != NULL && found->dict != dict) {
        found = found->next;
    }
    return found;
}

static void take_out(WatchedDict *watched)
{
    WatchedDict **link = bucket_of(watched->dict);
    while (*link != watched) {
        link = &(*link)->next;
    }
    *link = watched->next;
    all.count--;
}

static void put_in(WatchedDict *watched)
{
    WatchedDict **link = bucket_of(watched->dict);
    watched->next = *link;
    *link = watched;
}

/* Makes room for one more. 0 without memory. */
static int grow(void)
{
    if (all.buckets != NULL && all.count <= all.mask) {
        return 1;
    }
    size_t before = all.buckets != NULL ? all.mask + 1 : 0, size = before > 0 ? before * 2 : 256;
    WatchedDict **old = all.buckets, **buckets = PyMem_Calloc(size, sizeof(WatchedDict *));
    if (buckets == NULL) {
        return 0;
    }
    all.buckets = buckets;
    all.mask = size - 1;
    for (size_t i = 0; i < before; i++) {
        for (WatchedDict *watched = old[i], *next; watched != NULL; watched = next) {
            next = watched->next;
            put_in(watched);
        }
    }
    PyMem_Free(old);
    return 1;
}

/* ---- the callback of CPython ------------------------------------------------------------------------------------ */

static void tell(WatchedDict *watched)
{
    for (int i = 0; i < watched->count; i++) {
        *watched->flags[i] = 0;
    }
    watched->has_told = 1;
}

static int dict_changes(PyDict_WatchEvent event, PyObject *dict, PyObject *Py_UNUSED(key), PyObject *Py_UNUSED(value))
{
    WatchedDict *watched = find(dict);
    if (watched == NULL) {
        return 0;
    }
#if PY_VERSION_HEX < 0x030E0000
    watched->version = version_of_dict(dict);
#else
    watched->version++;
#endif
    if (!watched->has_told) {
        tell(watched);
    }
    if (event == PyDict_EVENT_DEALLOCATED) {
        take_out(watched);
        watched->dict = NULL;
    }
    return 0;
}

/* ---- interface ---------------------------------------------------------------------------------------------- */

int dicts_can_be_watched(void)
{
    if (all.state == UNTRIED) {
        all.watcher = PyDict_AddWatcher(dict_changes);
        all.state = all.watcher >= 0 ? WATCHING : UNAVAILABLE;
        PyErr_Clear();
    }
    return all.state == WATCHING;
}

static void forget_dict(WatchedDict *watched)
{
    if (watched->dict != NULL) {
        take_out(watched);
        if (PyDict_Unwatch(all.watcher, watched->dict) < 0) {
            PyErr_Clear();
        }
        watched->dict = NULL;
    }
}

/* A dict that is not watched yet. NULL without memory. */
static WatchedDict *begin(PyObject *dict)
{
    WatchedDict *watched = grow() ? PyMem_Calloc(1, sizeof(WatchedDict)) : NULL;
    if (watched == NULL) {
        return NULL;
    }
    if (PyDict_Watch(all.watcher, dict) < 0) {
        PyErr_Clear();
        PyMem_Free(watched);
        return NULL;
    }
    watched->dict = dict;
    put_in(watched);
    all.count++;
    return watched;
}

static int add_flag(WatchedDict *watched, int *flag)
{
    if (watched->count == watched->room) {
        int room = watched->room > 0 ? watched->room * 2 : 1;
        int **flags = PyMem_Realloc(watched->flags, room * sizeof(int *));
        if (flags == NULL) {
            return 0;
        }
        watched->flags = flags;
        watched->room = room;
    }
    watched->flags[watched->count++] = flag;
    return 1;
}

static void end_if_unused(WatchedDict *watched)
{
    if (watched->count == 0 && watched->users == 0) {
        forget_dict(watched);
        PyMem_Free(watched->flags);
        PyMem_Free(watched);
    }
}

WatchedDict *dict_watch(PyObject *dict, int *flag)
{
    if (!dicts_can_be_watched()) {
        return NULL;
    }
    WatchedDict *watched = find(dict);
    watched = watched != NULL ? watched : begin(dict);
    if (watched != NULL && !add_flag(watched, flag)) {
        end_if_unused(watched);
        watched = NULL;
    }
    return watched;
}

void dict_unwatch(WatchedDict *watched, int *flag)
{
    int i = 0;
    while (watched->flags[i] != flag) {
        i++;
    }
    watched->flags[i] = watched->flags[--watched->count];
    end_if_unused(watched);
}

/* Has it reported a change that is still to be made? 3.14 has no version for this test. There, no watcher is assumed
   to run Python code. */
static int is_changing(const WatchedDict *watched)
{
#if PY_VERSION_HEX < 0x030E0000
    return watched->has_told && watched->version == version_of_dict(watched->dict);
#else
    (void)watched;
    return 0;
#endif
}

int dict_will_tell(WatchedDict *watched, PyObject *dict)
{
    if (watched->dict != dict || is_changing(watched)) {
        return 0;
    }
    watched->has_told = 0;
    return 1;
}

#if PY_VERSION_HEX >= 0x030E0000

const void *word_of_dict_version(PyObject *dict, WatchedDict **held)
{
    if (*held != NULL && (*held)->dict == dict) {
        return &(*held)->version;
    }
    dict_forget(held);
    WatchedDict *watched = dicts_can_be_watched() ? find(dict) : NULL;
    watched = watched != NULL || !dicts_can_be_watched() ? watched : begin(dict);
    if (watched == NULL) {
        return NULL;
    }
    watched->users++;
    *held = watched;
    return &watched->version;
}

PyObject *dict_of_word(const void *word)
{
    return ((const WatchedDict *)((const char *)word - offsetof(WatchedDict, version)))->dict;
}

#endif

void dict_forget(WatchedDict **held)
{
    if (*held != NULL) {
        (*held)->users--;
        end_if_unused(*held);
        *held = NULL;
    }
}

void dicts_close(void)
{
    for (size_t i = 0; all.buckets != NULL && i <= all.mask; i++) {
        while (all.buckets[i] != NULL) {
            all.buckets[i]->version++;
            tell(all.buckets[i]);
            forget_dict(all.buckets[i]);
        }
    }
    if (all.state == WATCHING && PyDict_ClearWatcher(all.watcher) < 0) {
        PyErr_Clear();
    }
    all.state = UNAVAILABLE;
}
