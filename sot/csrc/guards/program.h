/* A guard program, from the inside. */

#ifndef SOT_GUARDS_PROGRAM_H
#define SOT_GUARDS_PROGRAM_H

#define PY_SSIZE_T_CLEAN
#include "guards/guards.h"

#include "guards/compat.h"

typedef enum { ARG, HELD, DICT, TYPE_DICT, ITEM, INDEX, CELL, FIELD, KEY } Step;
typedef enum { TYPE, IS, EQUALS, LENGTH, KEYS, HAS, LACKS, EMPTY, CODE, LOOKUP, TENSOR, ANY_TENSOR } Kind;

/* What a check has read of a value besides which object it is: what is remembered so that the check need not be made
   again. Each kind says so here. */
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
    PyObject *second;  /* of "lookup": what is found, or NULL for nothing */
    PyTypeObject *kind_of_second, *owner_of_second; /* if it is a class's own descriptor: holding it would hold the class */
    Py_ssize_t number; /* of "length"; of "has" and "lacks": the hash of the key */
    const void *spec;  /* of "tensor" */
    char weak, second_weak; /* is it not this program's to release? */
} Check;

typedef struct {
    Step step;
    int parent; /* -1: a root */
    int end; /* the nodes of its subtree are those up to here */
    int next; /* of a held root: the next root that is an argument */
    int grouped; /* is it in a group or pair, and not an argument itself? */
    int tensor;  /* which of the program's tensors it is, or -1 */
    int reads_type, reads_slot, reads_dict, reads_items, reads_size;
    int first_check, check_count;
    int first_word, first_live;
    WatchedDict *held; /* keeps the word of that version, where dicts have none of their own */
    WatchedDict *watched; /* the dict whose version it has read; NULL: not watched */
    unsigned skipped; /* which of its first words are not live: a bit for each */
    int changes; /* how often that version was another one, up to RESTLESS */
    int known; /* do the words of the whole subtree stand for its checks, for the value it has? */
    PyTypeObject *type; /* of its value: only to be compared with */
    PyObject *operand;
    char weak; /* is it not this program's to release? */
    Py_ssize_t number;
    Py_hash_t hash;
    PyObject *kept;
} Node;

typedef struct {
    const uintptr_t *address;
    uintptr_t expected;
} Word;

/* Functions and classes are held weakly: a program that works with one is of no use when it is gone, and another object
   may be at its address then. What the weak references call outlives the program. */
typedef struct {
    PyObject_HEAD
    Program *program; /* NULL: gone */
} Watch;

/* Nodes whose values must be different objects. Those that are arguments are others at every call; the rest hardly ever
   change, and wait in a hash set for them. */
typedef struct {
    int count, argument_count;
    int *members; /* arguments first */
    PyObject **table;
    size_t mask;
} Group;

struct Program {
    PyObject *watch;  /* made with the first of them */
    PyObject **mortals, **references;
    int mortal_count, dead;
    PyObject *owner; /* borrowed: whose program this is; program_died() is told */
    int count, word_count, check_count, tensor_count, arg_tensor_count, pair_count, group_count;
    int arg_pair_count, arg_group_count; /* those with arguments come first */
    int uses_tensors; /* also those without a specification? Then the thread counts */
    int busy;
    int warm; /* are the dicts that are skipped as they were? Cleared by the first that changes */
    int disturbed; /* has a version been another one in this call? */
    int quiet, patience; /* undisturbed calls so far, and how many it takes to get warm; patience 0: never */
    unsigned long long warm_calls;
    int counts_setters; /* are words of classes and addresses of dicts skipped? */
    unsigned long long setters_seen; /* the count when all words were compared */
    unsigned long long setters_heard; /* and when it was asked for */
    int alarms; /* how often it has risen, soon after it had, up to RESTLESS */
    unsigned long long alarmed_at; /* in which warm call it did */
    int forgotten; /* may there be a held root that is not known? */
    int regroup; /* has a member of a group or pair another value than when the hash sets were filled? */
    unsigned long long entered;
    unsigned long long generation; /* how often a node that is no argument has got another value */
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

/* How many words of a dict's that is another one at each call it takes until it is not relied on any more. */
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

extern const uintptr_t no_word; /* where a word points to that stands for nothing */

/* Of the words of a node that reads a dict: its version. */
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

/* What a program works with: a new reference, or a borrowed one to what it watches. NULL with an exception. */
PyObject *hold(Program *p, PyObject *object, char *weak);

/* What a lookup finds. -1 with an exception. */
int hold_found(Program *p, Check *check, PyObject *found);
int is_mortal(PyObject *object);

#endif
