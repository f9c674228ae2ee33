/* The data structures of a guard program. */

#ifndef SOT_GUARDS_PROGRAM_H
#define SOT_GUARDS_PROGRAM_H

#define PY_SSIZE_T_CLEAN
#include "guards/guards.h"

#include "guards/compat.h"

typedef enum { ARG, HELD, DICT, TYPE_DICT, ITEM, INDEX, CELL, FIELD, KEY } Step;
typedef enum { TYPE, IS, EQUALS, LENGTH, KEYS, HAS, LACKS, EMPTY, CODE, LOOKUP, TENSOR, ANY_TENSOR } Kind;

/* Which part of a value a check has read, besides its identity. It is remembered, so that the check need not be
   repeated. Each kind of check is listed here. */
typedef enum { NOTHING, CLASS, CONTENTS, SIZE, DICT_VERSION, CLASS_VERSION, FUNCTION_FIELDS, METADATA } Reads;

static inline Reads reads_of(Kind kind)
{
    switch (kind) {
    case IS:
        return NOTHING;
    case TYPE:
    case ANY_TENSOR:
        return CLASS;
    case EQUALS: /* the value is kept alive */
        return CONTENTS;
    case LENGTH:
        return SIZE;
    case KEYS:
    case HAS:
    case LACKS:
    case EMPTY:
        return DICT_VERSION;
    case LOOKUP:
        return CLASS_VERSION;
    case CODE:
        return FUNCTION_FIELDS;
    case TENSOR: /* compared at every call */
        return METADATA;
    }
    Py_UNREACHABLE();
}

typedef struct {
    Kind kind;
    PyObject *operand;
    PyObject *second;  /* of "lookup": the result, or NULL for none */
    PyTypeObject *kind_of_second, *owner_of_second; /* if it is a class's own descriptor: holding it would hold the class */
    Py_ssize_t number; /* of "length"; of "has" and "lacks": the hash of the key */
    const void *spec;  /* of "tensor" */
    char weak, second_weak; /* is it a borrowed reference? */
} Check;

typedef struct {
    Step step;
    int parent; /* -1: a root */
    int end; /* the index after the last node of its subtree */
    int next; /* of a held root: the next root that is an argument */
    int grouped; /* is it in a group or pair, and not an argument itself? */
    int tensor;  /* which of the program's tensors it is, or -1 */
    int reads_type, reads_slot, reads_dict, reads_items, reads_size;
    int first_check, check_count;
    int first_word, first_live;
    WatchedDict *held; /* keeps the word of that version, if dicts have no version tag */
    WatchedDict *watched; /* the dict whose version it has read; NULL: not watched */
    unsigned skipped; /* which of its first words are not live, as a bit mask */
    int changes; /* how often that version has changed, up to RESTLESS */
    int known; /* do the words of the whole subtree stand for its checks, for its current value? */
    PyTypeObject *type; /* of its value; only for comparisons */
    PyObject *operand;
    char weak; /* is it a borrowed reference? */
    Py_ssize_t number;
    Py_hash_t hash;
    PyObject *kept;
} Node;

typedef struct {
    const uintptr_t *address;
    uintptr_t expected;
} Word;

/* Functions and classes are held weakly: a program is useless when one of them is gone, and another object may then be
   at its address. The object that the weak references call outlives the program. */
typedef struct {
    PyObject_HEAD
    Program *program; /* NULL: gone */
} Watch;

/* Nodes whose values must be different objects. Arguments differ at every call. The other nodes hardly ever change,
   and are kept in a hash set for comparison with them. */
typedef struct {
    int count, argument_count;
    int *members; /* arguments first */
    PyObject **table;
    size_t mask;
} Group;

struct Program {
    PyObject *watch;  /* made with the first weak reference */
    PyObject **mortals, **references;
    int mortal_count, dead;
    PyObject *owner; /* borrowed: whose program this is; program_died() is told */
    int count, word_count, check_count, tensor_count, arg_tensor_count, pair_count, group_count;
    int arg_pair_count, arg_group_count; /* those with arguments come first */
    int uses_tensors; /* does it use tensors, even without a specification? Then the thread's dispatch keys matter */
    int busy;
    int warm; /* are the skipped dicts unchanged? Cleared by the first change */
    int disturbed; /* has a version changed in this call? */
    int quiet, patience; /* undisturbed calls so far, and the number needed to get warm; patience 0: never */
    unsigned long long warm_calls;
    int counts_setters; /* are words of classes and addresses of dicts skipped? */
    unsigned long long setters_seen; /* the count when all words were compared */
    unsigned long long setters_heard; /* the count when it was last read */
    int alarms; /* how often the count has risen shortly after it had risen, up to RESTLESS */
    unsigned long long alarmed_at; /* the warm call in which it last rose */
    int forgotten; /* may there be a held root whose checks must be repeated? */
    int regroup; /* has a member of a group or pair changed since the hash sets were filled? */
    unsigned long long entered;
    unsigned long long generation; /* how often a node that is not an argument has changed its value */
    Node *nodes;
    PyObject **values;
    Check *checks;
    Word *words, *live;
    int *owners, *live_owners; /* the node of each word */
    TensorCheck *tensors; /* arguments first */
    int (*pairs)[3];
    Group *groups;
    unsigned long long thread_keys[2];
};

/* How often the word of a dict may change in successive calls before it is no longer relied on. */
#define RESTLESS 8
#define LAST_PATIENCE 4096
#define FIRST_PATIENCE 4

extern const TensorApi *tensor_api;

/* ---- loads.c -------------------------------------------------------------------------------------------- */

int same_constant(PyObject *a, PyObject *b);
PyObject *dict_item(PyObject *dict, PyObject *key, Py_hash_t hash);
PyObject **items_of(PyObject *value);
PyObject **field_of(PyObject *value, const Node *node);

/* What a node loads from the value of its parent: borrowed, or NULL. */
PyObject *load(const Node *node, PyObject *from);

/* ---- checks.c ------------------------------------------------------------------------------------------- */

int check_holds(const Check *check, PyObject *value);

/* ---- words.c -------------------------------------------------------------------------------------------- */

extern const uintptr_t no_word; /* the target of a word that stands for nothing */

/* The word of a node that reads a dict: the dict's version. */
static inline Word *version_word(const Program *p, const Node *node)
{
    return p->words + node->first_word + node->reads_type + node->reads_slot;
}

static inline unsigned version_bit(const Node *node)
{
    return 1u << (node->reads_type + node->reads_slot);
}

static inline int is_same_version(uintptr_t version, uintptr_t other)
{
    return ((version ^ other) & ~WATCHER_BITS) == 0;
}

void stop_watching(Program *p, Node *node);
void remember(Program *p, Node *node, PyObject *value);
int count_words(Program *p, const Node *node);

/* ---- warm.c --------------------------------------------------------------------------------------------- */

int only_watchers_changed(Program *p, int owner, Word *word);
void refresh_live(Program *p, const Node *node);
int setters_rest(Program *p, unsigned long long count);
void warm_up(Program *p, int holds);

/* ---- lifetime.c ----------------------------------------------------------------------------------------- */

/* An object that a program uses: a new reference, or a borrowed one if it is watched. NULL with an exception. */
PyObject *hold(Program *p, PyObject *object, char *weak);

/* The result of a lookup. -1 with an exception. */
int hold_found(Program *p, Check *check, PyObject *found);
int is_mortal(PyObject *object);

#endif
