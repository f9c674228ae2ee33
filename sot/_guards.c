/* The guard program of an entry: what must hold for captured code to be run again, without Python objects.

   In: a tree of nodes, in preorder. A node is a place that a value is loaded from (an argument, an object that the
   entry holds, an item, a field ... of its parent) and checks on that value. Beside it pairs and groups of nodes that
   must be one object, or different ones.
   Out: yes or no, and the value of every node.

   What makes it cheap is that a value which was checked once need not be checked again while nothing that the checks
   have read has changed. So each node keeps the words that its checks and the loads of its children have read: the
   version tag of a dict, an object's class, the address of its dict, a cell's contents. A call compares words, from
   the top down: as long as the words above are as they were, the memory below is still what it was, and safe to read.
   Where a word differs, the node that it belongs to is checked for real, and those of its children that are other
   objects now.

   Most words are versions of dicts, and where CPython tells of changes of dicts (_dicts.c) they need not even be
   compared: a program that has been undisturbed for some calls settles. It has its dicts watched then, and compares the
   other words, the live ones, until a dict tells. Nor are the classes of objects in such dicts live, and the addresses of
   their own dicts, where assignments to them are counted (_setters.c): all words are compared when there has been one,
   anywhere. A dict that changes again and again is not watched any more, neither is the count relied on if it rises again
   and again, and a program that is disturbed soon after it settled takes longer to settle again, so that nothing costs
   more than comparing all words does.

   Words hold addresses, and another object may have come to an address meanwhile. That is harmless where the words
   say all that the checks depend on. What compares the contents of constants keeps the constant alive instead.
   Tensors have no words: their metadata is compared at every call.

   Nothing here runs Python code: loads read dicts, lists and fields past all overrides, and sot/program.py makes a
   node only of what means the same as the Python expression. */

#define PY_SSIZE_T_CLEAN
#include "_guards.h"

#include "_guards_compat.h"

typedef enum { ARG, HELD, DICT, TYPE_DICT, ITEM, INDEX, CELL, FIELD, KEY } Step;
static const char *const STEPS[] = {"arg", "held", "dict", "type_dict", "item", "index", "cell", "field", "key", NULL};

typedef enum { TYPE, IS, EQUALS, LENGTH, KEYS, HAS, LACKS, EMPTY, CODE, LOOKUP, TENSOR, ANY_TENSOR } Kind;
static const char *const KINDS[] = {"type", "is", "equals", "length", "keys", "has", "lacks", "empty", "code",
                                    "lookup", "tensor", "any_tensor", NULL};

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
    int settled; /* are the dicts that are skipped as they were? Cleared by the first that changes */
    int disturbed; /* has a version been another one in this call? */
    int quiet, patience; /* undisturbed calls so far, and how many it takes to settle; patience 0: never */
    unsigned long long settled_calls;
    int counts_setters; /* are words of classes and addresses of dicts skipped? */
    unsigned long long setters_seen; /* the count when all words were compared */
    unsigned long long setters_heard; /* and when it was asked for */
    int alarms; /* how often it has risen, soon after it had, up to RESTLESS */
    unsigned long long alarmed_at; /* in which settled call it did */
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

/* A program of fewer dicts never settles: it would gain little, and writes to what is watched cost a call. */
#define WORTH_WATCHING 16
#define FIRST_PATIENCE 4
#define LAST_PATIENCE 4096
#define RESTLESS 8
#define SOON 64

static const uintptr_t zero = 0;
static const TensorApi *tensor_api;

/* ---- constants ------------------------------------------------------------------------------------------ */

static int same_float(double a, double b)
{
    return memcmp(&a, &b, sizeof(double)) == 0 || (a != a && b != b);
}

/* One type and one value: 1, 1.0 and True are three constants, and so are 0.0 and -0.0. */
static int same_constant(PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    if (Py_TYPE(a) != Py_TYPE(b)) {
        return 0;
    }
    if (PyFloat_CheckExact(a)) {
        return same_float(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    }
    if (PyComplex_CheckExact(a)) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return same_float(x.real, y.real) && same_float(x.imag, y.imag);
    }
    if (PyTuple_Check(a)) {
        Py_ssize_t size = PyTuple_GET_SIZE(a);
        int same = size == PyTuple_GET_SIZE(b);
        for (Py_ssize_t i = 0; same && i < size; i++) {
            same = same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        }
        return same;
    }
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0) {
        PyErr_Clear();
    }
    return same == 1;
}

/* ---- loads ---------------------------------------------------------------------------------------------- */

static PyObject *dict_item(PyObject *dict, PyObject *key, Py_hash_t hash)
{
    PyObject *found = _PyDict_GetItem_KnownHash(dict, key, hash);
    if (found == NULL && PyErr_Occurred()) {
        PyErr_Clear();
    }
    return found;
}

static PyObject *nth_key(PyObject *dict, Py_ssize_t index)
{
    PyObject *key;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, NULL)) {
        if (index-- == 0) {
            return key;
        }
    }
    return NULL;
}

static PyObject **items_of(PyObject *value)
{
    return PyList_Check(value) ? ((PyListObject *)value)->ob_item : ((PyTupleObject *)value)->ob_item;
}

static PyObject **field_of(PyObject *value, const Node *node)
{
    return (PyObject **)((char *)value + node->number);
}

/* Borrowed, or NULL. An object without a dict so far gets one, as if Python asked for it. */
static PyObject *dict_of_object(PyObject *object)
{
    PyObject **slot = _PyObject_GetDictPtr(object);
    if (slot != NULL && *slot == NULL) {
        PyObject *made = PyObject_GenericGetDict(object, NULL);
        if (made == NULL) {
            PyErr_Clear();
        }
        Py_XDECREF(made);
        slot = _PyObject_GetDictPtr(object);
    }
    return slot != NULL ? *slot : NULL;
}

/* Borrowed, or NULL. */
static PyObject *load(const Node *node, PyObject *from)
{
    switch (node->step) {
    case HELD:
        return node->operand;
    case DICT:
        return dict_of_object(from);
    case TYPE_DICT:
        return PyType_Check(from) ? dict_of_type((PyTypeObject *)from) : NULL;
    case ITEM:
        return PyDict_Check(from) ? dict_item(from, node->operand, node->hash) : NULL;
    case KEY:
        return PyDict_CheckExact(from) ? nth_key(from, node->number) : NULL;
    case INDEX:
        return (PyList_Check(from) || PyTuple_Check(from)) && node->number < Py_SIZE(from)
            ? items_of(from)[node->number] : NULL;
    case CELL:
        return PyCell_Check(from) ? PyCell_GET(from) : NULL;
    case FIELD: /* its parent's type is checked; NULL is None in some fields, and missing in others */
        return *field_of(from, node) != NULL ? *field_of(from, node) : node->operand;
    default:
        return NULL;
    }
}

/* ---- checks --------------------------------------------------------------------------------------------- */

static Py_ssize_t length_of(PyObject *value)
{
    if (PyList_Check(value) || PyTuple_Check(value)) {
        return Py_SIZE(value);
    }
    if (PyDict_Check(value)) {
        return PyDict_GET_SIZE(value);
    }
    return PyAnySet_Check(value) ? PySet_GET_SIZE(value) : -1;
}

static int has_keys(PyObject *dict, PyObject *keys)
{
    PyObject *key;
    Py_ssize_t position = 0, i = 0;
    if (!PyDict_CheckExact(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) {
        return 0;
    }
    while (PyDict_Next(dict, &position, &key, NULL)) {
        if (!same_constant(PyTuple_GET_ITEM(keys, i++), key)) {
            return 0;
        }
    }
    return 1;
}

static int has_code(PyObject *value, PyObject *code_and_defaults)
{
    if (!PyFunction_Check(value)) {
        return 0;
    }
    PyFunctionObject *f = (PyFunctionObject *)value;
    PyObject *found[] = {f->func_code, f->func_defaults, f->func_kwdefaults};
    for (int i = 0; i < 3; i++) {
        if ((found[i] != NULL ? found[i] : Py_None) != PyTuple_GET_ITEM(code_and_defaults, i)) {
            return 0;
        }
    }
    return 1;
}

/* A class makes its own descriptors once: what has the address, the kind and the owner of one is that one. */
static int is_found(const Check *check, PyObject *found)
{
    return found == check->second
        && (check->owner_of_second == NULL
            || (Py_IS_TYPE(found, check->kind_of_second) && PyDescr_TYPE(found) == check->owner_of_second));
}

static int holds(const Check *check, PyObject *value)
{
    switch (check->kind) {
    case TYPE:
    case ANY_TENSOR: /* of a class; nothing has been made of its metadata */
        return (PyObject *)Py_TYPE(value) == check->operand;
    case IS:
        return value == check->operand;
    case EQUALS:
        return same_constant(check->operand, value);
    case LENGTH:
        return length_of(value) == check->number;
    case KEYS:
        return has_keys(value, check->operand);
    case HAS:
    case LACKS:
        return PyDict_Check(value)
            && (dict_item(value, check->operand, check->number) != NULL) == (check->kind == HAS);
    case EMPTY:
        return PyDict_Check(value) && PyDict_GET_SIZE(value) == 0;
    case CODE:
        return has_code(value, check->operand);
    case LOOKUP:
        return PyType_Check(value) && is_found(check, _PyType_Lookup((PyTypeObject *)value, check->operand));
    case TENSOR: /* all of them are checked together */
        return 1;
    }
    return 0;
}

#include "_guards_words.h"

/* ---- running -------------------------------------------------------------------------------------------- */

static int visit_node(Program *p, int i, PyObject *value, int all);

/* Checks a node and, as far as they are other objects than before, its children. Of a child that is at the same
   address, all words are compared: it may be another object there. */
static int enter(Program *p, int i, PyObject *value)
{
    Node *node = p->nodes + i;
    node->known = 0;
    p->entered++;
    p->regroup |= node->grouped && p->values[i] != value;
    p->generation += node->step != ARG && p->values[i] != value;
    p->values[i] = value;
    if (node->type != Py_TYPE(value)) {
        node->type = Py_TYPE(value);
        p->settled &= node->skipped == 0;
    }
    if (node->tensor >= 0) {
        p->tensors[node->tensor].value = value;
    }
    for (int c = 0; c < node->check_count; c++) {
        const Check *check = p->checks + node->first_check + c;
        if (!holds(check, value)) {
            return 0;
        }
    }
    for (int child = i + 1; child < node->end; child = p->nodes[child].end) {
        PyObject *found = load(p->nodes + child, value);
        if (found == NULL || !visit_node(p, child, found, 1)) {
            return 0;
        }
    }
    remember(p, node, value);
    if (p->settled) {
        refresh_live(p, node);
    }
    node->known = 1;
    return 1;
}

/* The first node from here to the end with a word (of all, or of the live ones) that is another one now; the end, if
   there is none. */
static int first_changed(Program *p, int start, int end, int all)
{
    const Node *from = p->nodes + start, *to = p->nodes + end;
    int live = p->settled && !all;
    Word *words = live ? p->live : p->words;
    const int *owners = live ? p->live_owners : p->owners;
    Word *word = words + (live ? from->first_live : from->first_word);
    Word *last = words + (live ? to->first_live : to->first_word);
    for (; word < last; word++) {
        if (*word->address != word->expected && !only_watchers_changed(p, owners[word - words], word)) {
            return owners[word - words];
        }
    }
    return end;
}

/* A node in which something did not hold is not known, nor is what it is a part of. */
static void forget(Program *p, int i)
{
    for (; i >= 0; i = p->nodes[i].parent) {
        p->nodes[i].known = 0;
        p->forgotten |= p->nodes[i].step == HELD;
    }
}

/* The nodes from here to the end are known for the values they have: are their words as they were? */
static int unchanged(Program *p, int i, int end, int all)
{
    while ((i = first_changed(p, i, end, all)) < end) {
        if (!enter(p, i, p->values[i])) {
            forget(p, i);
            return 0;
        }
        i = p->nodes[i].end;
    }
    return 1;
}

/* What is at the address of the value before may be of another class; where that is no word, it is asked here. */
static int visit_node(Program *p, int i, PyObject *value, int all)
{
    const Node *node = p->nodes + i;
    int is_known = node->known && p->values[i] == value && node->type == Py_TYPE(value);
    return is_known ? unchanged(p, i, node->end, all) : enter(p, i, value);
}

static size_t place_in_table(const Group *group, PyObject *value)
{
    size_t place = ((uintptr_t)value >> 4) * (size_t)0x9E3779B97F4A7C15u >> 20 & group->mask;
    while (group->table[place] != NULL && group->table[place] != value) {
        place = (place + 1) & group->mask;
    }
    return place;
}

/* Are the members that are no arguments different objects? */
static int fill_table(const Program *p, const Group *group)
{
    memset(group->table, 0, (group->mask + 1) * sizeof(PyObject *));
    for (int i = group->argument_count; i < group->count; i++) {
        PyObject *value = p->values[group->members[i]];
        size_t place = place_in_table(group, value);
        if (group->table[place] != NULL) {
            return 0;
        }
        group->table[place] = value;
    }
    return 1;
}

static int fill_tables(Program *p)
{
    for (int g = 0; g < p->group_count; g++) {
        if (!fill_table(p, p->groups + g)) {
            return 0;
        }
    }
    p->regroup = 0;
    return 1;
}

/* Are the members that are arguments different objects, and none of the others? */
static int arguments_differ(const Program *p, const Group *group)
{
    for (int i = 0; i < group->argument_count; i++) {
        PyObject *value = p->values[group->members[i]];
        if (group->table[place_in_table(group, value)] != NULL) {
            return 0;
        }
        for (int other = 0; other < i; other++) {
            if (p->values[group->members[other]] == value) {
                return 0;
            }
        }
    }
    return 1;
}

static int relations_hold(Program *p)
{
    int pairs = p->regroup ? p->pair_count : p->arg_pair_count;
    for (int i = 0; i < pairs; i++) {
        int *pair = p->pairs[i];
        if ((p->values[pair[0]] == p->values[pair[1]]) != pair[2]) {
            return 0;
        }
    }
    if (p->regroup && !fill_tables(p)) {
        return 0;
    }
    for (int g = 0; g < p->arg_group_count; g++) {
        if (!arguments_differ(p, p->groups + g)) {
            return 0;
        }
    }
    return 1;
}

static int thread_keys_are_the_same(const Program *p)
{
    unsigned long long keys[2];
    tensor_api->thread_keys(keys);
    return keys[0] == p->thread_keys[0] && keys[1] == p->thread_keys[1];
}

/* The held roots of a program that is settled are known, and looked at together. */
static int visit_roots(Program *p, PyObject *const *args, Py_ssize_t count, int all)
{
    for (int i = 0; i < p->count;) {
        const Node *root = p->nodes + i;
        if (root->step == HELD && p->settled && !all) {
            if (!unchanged(p, i, root->next, 0)) {
                return 0;
            }
            i = root->next;
            continue;
        }
        PyObject *value = root->step == HELD ? root->operand : root->number < count ? args[root->number] : NULL;
        if (value == NULL || !visit_node(p, i, value, all)) {
            forget(p, i);
            return 0;
        }
        i = root->end;
    }
    return 1;
}

static int run(Program *p, PyObject *const *args, Py_ssize_t count, int all)
{
    if (p->uses_tensors && !thread_keys_are_the_same(p)) {
        return 0;
    }
    for (int t = 0; t < p->arg_tensor_count; t++) {
        int i = p->tensors[t].node;
        if (p->nodes[i].number >= count) {
            return 0;
        }
        PyObject *value = args[p->nodes[i].number];
        if (p->values[i] != value) { /* another object: what is known is of the old one */
            p->nodes[i].known = 0;
            p->values[i] = p->tensors[t].value = value;
        }
    }
    if (p->arg_tensor_count > 0 && !tensor_api->all_match(p->tensors, p->arg_tensor_count)) {
        return 0; /* what differs most often */
    }
    if (!visit_roots(p, args, count, all)) {
        return 0;
    }
    int others = p->tensor_count - p->arg_tensor_count;
    return (others == 0 || tensor_api->all_match(p->tensors + p->arg_tensor_count, others))
        && relations_hold(p);
}

int program_holds(Program *p, PyObject *const *args, Py_ssize_t count)
{
    if (p->busy || p->dead) { /* a key with a hash of somebody else's has come back here */
        return 0;
    }
    p->busy = 1;
    p->disturbed = 0;
    unsigned long long setters = p->settled && p->counts_setters ? setters_count() : p->setters_seen;
    int all = !setters_rest(p, setters) || p->forgotten;
    int holds = run(p, args, count, all);
    p->setters_seen = holds ? setters : p->setters_seen;
    p->forgotten &= !holds;
    settle_in_time(p, holds);
    p->busy = 0;
    return holds;
}

PyObject *const *program_values(Program *p)
{
    return p->values;
}

int program_is_argument(const Program *p, int node)
{
    return p->nodes[node].step == ARG;
}

unsigned long long program_generation(const Program *p)
{
    return p->generation;
}

int program_size(Program *p)
{
    return p->count;
}

PyObject *program_statistics(Program *p)
{
    int skipped = p->settled ? p->word_count - p->nodes[p->count].first_live : 0;
    return Py_BuildValue("{s:i,s:i,s:i,s:i,s:K}", "nodes", p->count, "words", p->word_count, "skipped", skipped,
                         "tensors", p->tensor_count, "entered", p->entered);
}

#include "_guards_making.h"
