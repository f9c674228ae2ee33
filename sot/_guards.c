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
   other words, the live ones, until a dict tells. A dict that changes again and again is not watched any more, and a
   program that is disturbed soon after it settled takes longer to settle again, so that nothing costs more than
   comparing all words does.

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

typedef enum { TYPE, IS, EQUALS, LENGTH, KEYS, HAS, LACKS, EMPTY, CODE, LOOKUP, TENSOR } Kind;
static const char *const KINDS[] = {"type", "is", "equals", "length", "keys", "has", "lacks", "empty", "code",
                                    "lookup", "tensor", NULL};

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
    int end; /* the nodes of its subtree are those up to here */
    int grouped; /* is it in a group, and not an argument itself? */
    int tensor;  /* which of the program's tensors it is, or -1 */
    int reads_type, reads_slot, reads_dict, reads_items, reads_size;
    int first_check, check_count;
    int first_word, first_live;
    WatchedDict *watched; /* the dict whose version it has read; NULL: not watched */
    int skipped; /* is that version none of the live words? */
    int changes; /* how often that version was another one, up to RESTLESS */
    int known; /* do the words of the whole subtree stand for its checks, for the value it has? */
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
    int busy;
    int settled; /* are the dicts that are skipped as they were? Cleared by the first that changes */
    int disturbed; /* has a version been another one in this call? */
    int quiet, patience; /* undisturbed calls so far, and how many it takes to settle; patience 0: never */
    unsigned long long settled_calls;
    int regroup; /* has a member of a group another value than when the hash sets were filled? */
    unsigned long long entered;
    Node *nodes;
    PyObject **values;
    Check *checks;
    Word *words, *live;
    int *owners, *live_owners; /* the node of each word */
    TensorCheck *tensors; /* arguments first */
    int (*pairs)[3];
    Group *groups; /* the first is of all tensors */
    unsigned long long thread_keys[2];
};

/* A program of fewer dicts never settles: it would gain little, and writes to what is watched cost a call. */
#define WORTH_WATCHING 16
#define FIRST_PATIENCE 4
#define LAST_PATIENCE 4096
#define RESTLESS 8

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

/* ---- words ---------------------------------------------------------------------------------------------- */

/* NULL stands for what has no word: look at it every time. */
static Word *put(Word *word, const void *address)
{
    *word = address != NULL ? (Word){address, *(const uintptr_t *)address} : (Word){&zero, ~(uintptr_t)0};
    return word + 1;
}

/* Of the words of a node that reads a dict: its version. */
static Word *version_word(const Program *p, const Node *node)
{
    return p->words + node->first_word + node->reads_type + node->reads_slot;
}

static int is_same_version(uintptr_t version, uintptr_t other)
{
    return ((version ^ other) & ~WATCHER_BITS) == 0;
}

static void stop_watching(Program *p, Node *node)
{
    if (node->watched != NULL) {
        dict_unwatch(node->watched, &p->settled);
        node->watched = NULL;
    }
}

static Word *put_version(Program *p, Node *node, PyObject *dict, Word *word)
{
    const void *address = word_of_dict_version(dict);
    int is_same_dict = address != NULL && word->address == address;
    int changed = !is_same_dict || !is_same_version(*word->address, word->expected);
    if (changed && node->changes < RESTLESS) {
        node->changes++;
        p->disturbed = 1;
    }
    if (!is_same_dict || node->changes == RESTLESS) {
        stop_watching(p, node);
    }
    return put(word, address);
}

static Word *put_items(Program *p, const Node *node, PyObject *value, Word *word)
{
    word = put(word, &((PyVarObject *)value)->ob_size);
    if (PyList_Check(value)) {
        word = put(word, &((PyListObject *)value)->ob_item);
    }
    const Node *end = p->nodes + node->end;
    for (const Node *child = node + 1; child < end; child = p->nodes + child->end) {
        if (child->step == INDEX) {
            word = put(word, items_of(value) + child->number);
        }
    }
    return word;
}

static Word *put_code(PyFunctionObject *f, Word *word)
{
    word = put(word, &f->func_code);
    word = put(word, &f->func_defaults);
    return put(word, &f->func_kwdefaults);
}

/* What the checks of a node and the loads of its children have read. `count_words` says how much room there is. */
static void remember(Program *p, Node *node, PyObject *value)
{
    Word *word = p->words + node->first_word, *end = p->words + node[1].first_word;
    if (node->reads_type) {
        word = put(word, &value->ob_type);
    }
    if (node->reads_slot) {
        word = put(word, _PyObject_GetDictPtr(value));
    }
    if (node->reads_dict) {
        word = put_version(p, node, value, word);
    }
    if (node->reads_items) {
        word = put_items(p, node, value, word);
    } else if (node->reads_size && !PyDict_Check(value)) {
        word = put(word, PyAnySet_Check(value) ? (void *)&((PySetObject *)value)->used
                                                : (void *)&((PyVarObject *)value)->ob_size);
    } else if (node->reads_size) {
        word = put(word, word_of_dict_version(value));
    }
    for (int i = 0; i < node->check_count; i++) {
        const Check *check = p->checks + node->first_check + i;
        if (check->kind == CODE) {
            word = put_code((PyFunctionObject *)value, word);
        } else if (check->kind == EQUALS) {
            Py_XSETREF(node->kept, Py_NewRef(value));
        }
    }
    if (node->step == HELD && PyType_Check(value)) {
        word = put(word, word_of_type_version((PyTypeObject *)value));
    }
    const Node *last = p->nodes + node->end;
    for (const Node *child = node + 1; child < last; child = p->nodes + child->end) {
        if (child->step == FIELD) {
            word = put(word, field_of(value, child));
        } else if (child->step == CELL) {
            word = put(word, &((PyCellObject *)value)->ob_ref);
        }
    }
    for (; word < end; word++) {
        *word = (Word){&zero, 0};
    }
}

static int child_words(const Node *child)
{
    return child->step == FIELD || child->step == CELL || child->step == INDEX;
}

/* How many words `remember` writes at most. */
static int count_words(Program *p, const Node *node)
{
    int count = node->reads_type + node->reads_slot + node->reads_dict + (node->reads_items ? 2 : node->reads_size);
    for (int i = 0; i < node->check_count; i++) {
        count += p->checks[node->first_check + i].kind == CODE ? 3 : 0;
    }
    count += node->step == HELD && PyType_Check(node->operand);
    const Node *end = p->nodes + node->end;
    for (const Node *child = node + 1; child < end; child = p->nodes + child->end) {
        count += child_words(child);
    }
    return count;
}

/* ---- settling ------------------------------------------------------------------------------------------- */

/* A word differs: is it the version of a dict that has only got another watcher? */
static int only_watchers_changed(Program *p, int owner, Word *word)
{
    const Node *node = p->nodes + owner;
    if (!node->reads_dict || version_word(p, node)->address != word->address
        || !is_same_version(*word->address, word->expected)) {
        return 0;
    }
    word->expected = *word->address;
    return 1;
}

/* Will the dict tell, so that its version need not be compared? */
static int can_skip_version(Program *p, Node *node)
{
    const void *address = node->reads_dict ? version_word(p, node)->address : &zero;
    if (address == &zero || node->changes == RESTLESS) {
        return 0;
    }
    if (node->watched != NULL && !dict_will_tell(node->watched, dict_of_word(address))) {
        stop_watching(p, node);
    }
    if (node->watched == NULL) {
        node->watched = dict_watch(dict_of_word(address), &p->settled);
    }
    return node->watched != NULL && dict_will_tell(node->watched, dict_of_word(address));
}

/* The words of a node to be compared as long as its program is settled. */
static void copy_live(Program *p, const Node *node)
{
    const Word *skipped = node->skipped ? version_word(p, node) : NULL, *end = p->words + node[1].first_word;
    Word *live = p->live + node->first_live;
    for (const Word *word = p->words + node->first_word; word < end; word++) {
        if (word != skipped) {
            *live++ = *word;
        }
    }
}

/* Its words are others now. */
static void refresh_live(Program *p, const Node *node)
{
    copy_live(p, node);
    if (node->skipped && node->watched == NULL) {
        p->settled = 0;
    }
}

/* Are the words of a node what they were? From the top down: the memory is safe to read. What has no word is looked
   at in every call, and says nothing here. */
static int node_is_unchanged(Program *p, int i)
{
    Word *end = p->words + p->nodes[i + 1].first_word;
    for (Word *word = p->words + p->nodes[i].first_word; word < end; word++) {
        if (*word->address != word->expected && word->address != &zero && !only_watchers_changed(p, i, word)) {
            return 0;
        }
    }
    return 1;
}

/* All has just held. No Python code runs, so that it still does when all dicts are watched; what the checks have run
   may have changed what was read before them. */
static void settle(Program *p)
{
    int live = 0, was_calm = p->settled_calls > (unsigned long long)p->patience * 16;
    for (int i = 0; i < p->count; i++) {
        Node *node = p->nodes + i;
        if (!node_is_unchanged(p, i)) {
            p->quiet = 0;
            return;
        }
        node->changes = was_calm && node->changes < RESTLESS ? 0 : node->changes;
        node->skipped = can_skip_version(p, node);
        node->first_live = live;
        for (int words = node[1].first_word - node->first_word - node->skipped; words > 0; words--) {
            p->live_owners[live++] = i;
        }
        copy_live(p, node);
    }
    p->nodes[p->count].first_live = live;
    p->patience = was_calm ? FIRST_PATIENCE : Py_MIN(p->patience * 2, LAST_PATIENCE);
    p->settled_calls = 0;
    p->quiet = 0;
    p->settled = 1;
}

static int can_settle(Program *p)
{
    if (p->live == NULL && dicts_can_be_watched()) {
        p->live = PyMem_Calloc(p->word_count + 1, sizeof(Word));
        p->live_owners = PyMem_Calloc(p->word_count + 1, sizeof(int));
    }
    return p->live != NULL && p->live_owners != NULL;
}

/* After a call. */
static void settle_in_time(Program *p, int holds)
{
    if (p->settled) {
        p->settled_calls++;
    } else if (p->disturbed) {
        p->quiet = 0;
    } else if (holds && p->patience > 0 && ++p->quiet >= p->patience) {
        if (can_settle(p)) {
            settle(p);
        } else {
            p->patience = 0;
        }
    }
}

/* ---- running -------------------------------------------------------------------------------------------- */

static int visit_node(Program *p, int i, PyObject *value);

/* Checks a node and, as far as they are other objects than before, its children. */
static int enter(Program *p, int i, PyObject *value)
{
    Node *node = p->nodes + i;
    node->known = 0;
    p->entered++;
    p->regroup |= node->grouped && p->values[i] != value;
    p->values[i] = value;
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
        if (found == NULL || !visit_node(p, child, found)) {
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

/* The first node from here to the end with a word that is another one now; the end, if there is none. */
static int first_changed(Program *p, int start, int end)
{
    const Node *from = p->nodes + start, *to = p->nodes + end;
    Word *words = p->settled ? p->live : p->words;
    const int *owners = p->settled ? p->live_owners : p->owners;
    Word *word = words + (p->settled ? from->first_live : from->first_word);
    Word *last = words + (p->settled ? to->first_live : to->first_word);
    for (; word < last; word++) {
        if (*word->address != word->expected && !only_watchers_changed(p, owners[word - words], word)) {
            return owners[word - words];
        }
    }
    return end;
}

/* The node is known for the value it has: are its words, and those below it, as they were? */
static int unchanged(Program *p, int i)
{
    int end = p->nodes[i].end;
    while ((i = first_changed(p, i, end)) < end) {
        if (!enter(p, i, p->values[i])) {
            return 0;
        }
        i = p->nodes[i].end;
    }
    return 1;
}

static int visit_node(Program *p, int i, PyObject *value)
{
    return p->nodes[i].known && p->values[i] == value ? unchanged(p, i) : enter(p, i, value);
}

/* A subtree in which something did not hold is not known, nor is what it is a part of. */
static void forget(Program *p, int root)
{
    for (int i = root; i < p->nodes[root].end; i++) {
        p->nodes[i].known = 0;
    }
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
    for (int i = 0; i < p->pair_count; i++) {
        int *pair = p->pairs[i];
        if ((p->values[pair[0]] == p->values[pair[1]]) != pair[2]) {
            return 0;
        }
    }
    if (p->regroup && !fill_tables(p)) {
        return 0;
    }
    for (int g = 0; g < p->group_count; g++) {
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

static int run(Program *p, PyObject *const *args, Py_ssize_t count)
{
    if (p->tensor_count > 0 && !thread_keys_are_the_same(p)) {
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
    for (int i = 0; i < p->count; i = p->nodes[i].end) {
        const Node *root = p->nodes + i;
        PyObject *value = root->step == HELD ? root->operand : root->number < count ? args[root->number] : NULL;
        if (value == NULL || !visit_node(p, i, value)) {
            forget(p, i);
            return 0;
        }
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
    int holds = run(p, args, count);
    settle_in_time(p, holds);
    p->busy = 0;
    return holds;
}

PyObject *const *program_values(Program *p)
{
    return p->values;
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

/* ---- what a program does not keep alive ---------------------------------------------------------------- */

static PyObject *watched_died(PyObject *self, PyObject *Py_UNUSED(reference))
{
    Program *program = ((Watch *)self)->program;
    if (program != NULL && !program->dead) {
        program->dead = 1;
        entry_died(program->owner);
    }
    Py_RETURN_NONE;
}

static PyMethodDef watched_method = {"died", watched_died, METH_O, NULL};

static PyTypeObject WatchType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Watch",
    .tp_basicsize = sizeof(Watch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

static int is_mortal(PyObject *object)
{
    return PyFunction_Check(object)
        || (PyType_Check(object) && PyType_HasFeature((PyTypeObject *)object, Py_TPFLAGS_HEAPTYPE));
}

/* The callback of weak references: of this program's alone. A new reference. */
static PyObject *watcher(Program *p)
{
    if (p->watch == NULL) {
        if (PyType_Ready(&WatchType) < 0) {
            return NULL;
        }
        p->watch = (PyObject *)PyObject_New(Watch, &WatchType);
        if (p->watch == NULL) {
            return NULL;
        }
        ((Watch *)p->watch)->program = p;
    }
    return PyCFunction_New(&watched_method, p->watch);
}

static int watch(Program *p, PyObject *object)
{
    for (int i = 0; i < p->mortal_count; i++) {
        if (p->mortals[i] == object) {
            return 0;
        }
    }
    PyObject *callback = watcher(p);
    PyObject *reference = callback != NULL ? PyWeakref_NewRef(object, callback) : NULL;
    Py_XDECREF(callback);
    int count = p->mortal_count + 1;
    PyObject **mortals = reference != NULL ? PyMem_Realloc(p->mortals, count * sizeof(PyObject *)) : NULL;
    p->mortals = mortals != NULL ? mortals : p->mortals;
    PyObject **references = mortals != NULL ? PyMem_Realloc(p->references, count * sizeof(PyObject *)) : NULL;
    p->references = references != NULL ? references : p->references;
    if (references == NULL) {
        Py_XDECREF(reference);
        return -1;
    }
    p->mortals[count - 1] = object;
    p->references[count - 1] = reference;
    p->mortal_count = count;
    return 0;
}

/* What a program works with: a new reference, or a borrowed one to what it watches. NULL with an exception. */
static PyObject *hold(Program *p, PyObject *object, char *weak)
{
    *weak = is_mortal(object);
    if (!*weak) {
        return Py_NewRef(object);
    }
    return watch(p, object) == 0 ? object : NULL;
}

/* What a lookup finds. -1 with an exception. */
static int hold_found(Program *p, Check *check, PyObject *found)
{
    int is_own = Py_IS_TYPE(found, &PyGetSetDescr_Type) || Py_IS_TYPE(found, &PyMemberDescr_Type);
    if (is_own && is_mortal((PyObject *)PyDescr_TYPE(found))) {
        check->second = found;
        check->second_weak = 1;
        check->kind_of_second = Py_TYPE(found);
        check->owner_of_second = PyDescr_TYPE(found);
        return watch(p, (PyObject *)PyDescr_TYPE(found));
    }
    check->second = hold(p, found, &check->second_weak);
    return check->second != NULL ? 0 : -1;
}

static void unwatch(Program *p)
{
    for (int i = 0; i < p->mortal_count; i++) {
        Py_DECREF(p->references[i]);
    }
    if (p->watch != NULL) {
        ((Watch *)p->watch)->program = NULL;
        Py_DECREF(p->watch);
    }
    PyMem_Free(p->mortals);
    PyMem_Free(p->references);
}

/* ---- making --------------------------------------------------------------------------------------------- */

static int index_of(const char *name, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    PyErr_Format(PyExc_ValueError, "a guard program knows no %s", name);
    return -1;
}

static int make_tensor_check(Program *p, Check *check)
{
    if (tensor_api == NULL) {
        tensor_api = PyCapsule_Import(TENSOR_API_NAME, 0);
    }
    check->spec = tensor_api != NULL ? PyCapsule_GetPointer(check->operand, TENSOR_SPEC_NAME) : NULL;
    if (check->spec == NULL) {
        return -1;
    }
    tensor_api->thread_keys(p->thread_keys);
    p->tensor_count++;
    return 0;
}

/* A check is (kind, operand, second). */
static int make_check(Program *p, Node *node, PyObject *spec)
{
    Check *check = p->checks + p->check_count;
    const char *name;
    PyObject *operand, *second;
    if (!PyArg_ParseTuple(spec, "sOO:check", &name, &operand, &second)) {
        return -1;
    }
    int kind = index_of(name, KINDS);
    if (kind < 0) {
        return -1;
    }
    *check = (Check){.kind = kind};
    check->operand = hold(p, operand, &check->weak);
    if (check->operand == NULL) {
        return -1;
    }
    p->check_count++;
    node->check_count++;
    switch (check->kind) {
    case LENGTH:
        check->number = PyLong_AsSsize_t(operand);
        node->reads_size = 1;
        break;
    case HAS:
    case LACKS:
        check->number = PyObject_Hash(operand);
        node->reads_dict = 1;
        break;
    case KEYS:
    case EMPTY:
        node->reads_dict = 1;
        break;
    case LOOKUP:
        return Py_IsNone(second) ? 0 : hold_found(p, check, PyTuple_GET_ITEM(second, 0));
    case TENSOR:
        return make_tensor_check(p, check);
    default:
        break;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* May the class of a value be another one while the words above the node are the same? */
static int reads_type(Program *p, const Node *node)
{
    if (node->step == HELD) {
        return PyType_HasFeature(Py_TYPE(node->operand), Py_TPFLAGS_HEAPTYPE) || PyModule_Check(node->operand);
    }
    if (node->step == DICT || node->step == TYPE_DICT) {
        return 0;
    }
    for (int i = 0; i < node->check_count && (node->step == ITEM || node->step == KEY); i++) {
        const Check *check = p->checks + node->first_check + i;
        PyTypeObject *type = (PyTypeObject *)check->operand;
        if (check->kind == TYPE && !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && type != &PyModule_Type) {
            return 0;
        }
        if (check->kind == IS || check->kind == TENSOR || check->kind == EQUALS || check->kind == EMPTY) {
            return 0; /* whatever its class */
        }
    }
    return 1;
}

/* A node is (step, parent, operand, number, checks); parents come first, and subtrees are together. */
static int make_node(Program *p, int i, PyObject *spec)
{
    Node *node = p->nodes + i;
    const char *name;
    int parent;
    PyObject *operand, *checks;
    if (!PyArg_ParseTuple(spec, "siOnO!:node", &name, &parent, &operand, &node->number, &PyTuple_Type, &checks)) {
        return -1;
    }
    int step = index_of(name, STEPS);
    if (step < 0) {
        return -1;
    }
    node->step = step;
    node->end = i + 1;
    node->tensor = -1;
    node->first_check = p->check_count;
    node->operand = step == FIELD && Py_IsNone(operand) ? NULL : step == HELD ? hold(p, operand, &node->weak)
        : Py_NewRef(operand);
    if (node->operand == NULL && step != FIELD) {
        return -1;
    }
    if (step == FIELD && node->operand != NULL) { /* (None,): what is missing reads as None */
        Py_SETREF(node->operand, Py_NewRef(Py_None));
    }
    if (step == ITEM && (node->hash = PyObject_Hash(operand)) == -1) {
        return -1;
    }
    for (Py_ssize_t c = 0; c < PyTuple_GET_SIZE(checks); c++) {
        if (make_check(p, node, PyTuple_GET_ITEM(checks, c)) < 0) {
            return -1;
        }
    }
    if ((step == ARG || step == HELD) != (parent < 0) || parent >= i) {
        PyErr_SetString(PyExc_ValueError, "a guard program is a tree in preorder");
        return -1;
    }
    if (parent >= 0) {
        Node *above = p->nodes + parent;
        above->reads_slot |= step == DICT;
        above->reads_dict |= step == ITEM || step == KEY;
        above->reads_items |= step == INDEX;
        for (; parent >= 0; parent = p->owners[parent]) { /* until there are words, the parents of nodes */
            p->nodes[parent].end = i + 1;
        }
    }
    return 0;
}

static const void *tensor_spec(Program *p, const Node *node)
{
    for (int c = 0; c < node->check_count; c++) {
        if (p->checks[node->first_check + c].kind == TENSOR) {
            return p->checks[node->first_check + c].spec;
        }
    }
    return NULL;
}

static int make_tensors(Program *p)
{
    p->tensors = PyMem_Calloc(p->tensor_count + 1, sizeof(TensorCheck));
    if (p->tensors == NULL) {
        return -1;
    }
    int count = 0;
    for (int arguments = 1; arguments >= 0; arguments--) {
        for (int i = 0; i < p->count; i++) {
            const void *spec = tensor_spec(p, p->nodes + i);
            if (spec != NULL && (p->nodes[i].step == ARG) == arguments) {
                p->nodes[i].tensor = count;
                p->tensors[count++] = (TensorCheck){.spec = spec, .node = i};
                p->arg_tensor_count += arguments;
            }
        }
    }
    return 0;
}

static int make_words(Program *p)
{
    int dicts = 0;
    for (int i = 0; i < p->count; i++) {
        Node *node = p->nodes + i;
        node->reads_type = reads_type(p, node);
        node->first_word = p->word_count;
        p->word_count += count_words(p, node);
        dicts += node->reads_dict;
    }
    p->patience = dicts >= WORTH_WATCHING ? FIRST_PATIENCE : 0;
    p->settled_calls = LAST_PATIENCE;
    p->nodes[p->count].first_word = p->word_count;
    PyMem_Free(p->owners);
    p->words = PyMem_Calloc(p->word_count + 1, sizeof(Word));
    p->owners = PyMem_Calloc(p->word_count + 1, sizeof(int));
    if (p->words == NULL || p->owners == NULL) {
        return -1;
    }
    for (int i = 0; i < p->count; i++) {
        for (int word = p->nodes[i].first_word; word < p->nodes[i + 1].first_word; word++) {
            p->owners[word] = i;
        }
    }
    return 0;
}

static int make_pairs(Program *p, PyObject *pairs)
{
    p->pairs = PyMem_Calloc(PyList_GET_SIZE(pairs) + 1, sizeof(*p->pairs));
    if (p->pairs == NULL) {
        return -1;
    }
    for (; p->pair_count < PyList_GET_SIZE(pairs); p->pair_count++) {
        int *pair = p->pairs[p->pair_count];
        if (!PyArg_ParseTuple(PyList_GET_ITEM(pairs, p->pair_count), "iip:pair", &pair[0], &pair[1], &pair[2])) {
            return -1;
        }
    }
    return 0;
}

static int add_member(Program *p, Group *group, int node)
{
    if (node < 0 || node >= p->count) {
        PyErr_SetString(PyExc_ValueError, "a group has no such node");
        return -1;
    }
    int is_argument = p->nodes[node].step == ARG, first_other = group->argument_count;
    p->nodes[node].grouped |= !is_argument;
    group->members[group->count++] = is_argument ? group->members[first_other] : node;
    if (is_argument) {
        group->members[first_other] = node;
        group->argument_count++;
    }
    return 0;
}

/* Room for a group of this size. NULL without memory. */
static Group *begin_group(Program *p, Py_ssize_t size)
{
    Group *group = p->groups + p->group_count++;
    group->mask = 15;
    while (group->mask < (size_t)size * 2) {
        group->mask = group->mask * 2 + 1;
    }
    group->members = PyMem_Calloc(size + 1, sizeof(int));
    group->table = PyMem_Calloc(group->mask + 1, sizeof(PyObject *));
    return group->members != NULL && group->table != NULL ? group : NULL;
}

static int make_group(Program *p, PyObject *members)
{
    Group *group = begin_group(p, PyTuple_GET_SIZE(members));
    for (Py_ssize_t i = 0; group != NULL && i < PyTuple_GET_SIZE(members); i++) {
        if (add_member(p, group, (int)PyLong_AsLong(PyTuple_GET_ITEM(members, i))) < 0) {
            return -1;
        }
    }
    return group != NULL ? 0 : -1;
}

static int make_groups(Program *p, PyObject *groups)
{
    p->groups = PyMem_Calloc(PyList_GET_SIZE(groups) + 1, sizeof(Group));
    Group *tensors = p->groups != NULL ? begin_group(p, p->tensor_count) : NULL;
    if (tensors == NULL) {
        return -1;
    }
    for (int i = 0; i < p->tensor_count; i++) {
        if (add_member(p, tensors, p->tensors[i].node) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(groups); i++) {
        if (make_group(p, PyList_GET_ITEM(groups, i)) < 0) {
            return -1;
        }
    }
    p->regroup = 1;
    return 0;
}

static int make(Program *p, PyObject *nodes, PyObject *pairs, PyObject *groups)
{
    Py_ssize_t checks = 0;
    p->count = (int)PyList_GET_SIZE(nodes);
    for (int i = 0; i < p->count; i++) {
        PyObject *node = PyList_GET_ITEM(nodes, i);
        if (!PyTuple_Check(node) || PyTuple_GET_SIZE(node) != 5 || !PyTuple_Check(PyTuple_GET_ITEM(node, 4))) {
            PyErr_SetString(PyExc_TypeError, "a node is (step, parent, operand, number, checks)");
            return -1;
        }
        checks += PyTuple_GET_SIZE(PyTuple_GET_ITEM(node, 4));
    }
    p->nodes = PyMem_Calloc(p->count + 1, sizeof(Node));
    p->values = PyMem_Calloc(p->count + 1, sizeof(PyObject *));
    p->checks = PyMem_Calloc(checks + 1, sizeof(Check));
    p->owners = PyMem_Calloc(p->count + 1, sizeof(int));
    if (p->nodes == NULL || p->values == NULL || p->checks == NULL || p->owners == NULL) {
        return -1;
    }
    for (int i = 0; i < p->count; i++) {
        PyObject *node = PyList_GET_ITEM(nodes, i);
        p->owners[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(node, 1));
        if (make_node(p, i, node) < 0) {
            return -1;
        }
    }
    return make_tensors(p) < 0 || make_words(p) < 0 || make_pairs(p, pairs) < 0 ? -1 : make_groups(p, groups);
}

int program_is_dead(const Program *p)
{
    return p->dead;
}

Program *program_new(PyObject *owner, PyObject *nodes, PyObject *pairs, PyObject *groups)
{
    Program *p = PyMem_Calloc(1, sizeof(Program));
    if (p != NULL) {
        p->owner = owner;
    }
    if (p != NULL && make(p, nodes, pairs, groups) == 0) {
        return p;
    }
    if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    program_free(p);
    return NULL;
}

void program_free(Program *p)
{
    if (p == NULL) {
        return;
    }
    for (int i = 0; p->nodes != NULL && i < p->count; i++) {
        if (!p->nodes[i].weak) {
            Py_XDECREF(p->nodes[i].operand);
        }
        Py_XDECREF(p->nodes[i].kept);
        stop_watching(p, p->nodes + i);
    }
    for (int i = 0; i < p->check_count; i++) {
        if (!p->checks[i].weak) {
            Py_XDECREF(p->checks[i].operand);
        }
        if (!p->checks[i].second_weak) {
            Py_XDECREF(p->checks[i].second);
        }
    }
    unwatch(p);
    for (int i = 0; i < p->group_count; i++) {
        PyMem_Free(p->groups[i].members);
        PyMem_Free(p->groups[i].table);
    }
    void *parts[] = {p->nodes, p->values, p->checks, p->words, p->owners, p->live, p->live_owners, p->tensors,
                     p->pairs, p->groups};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        PyMem_Free(parts[i]);
    }
    PyMem_Free(p);
}

int program_traverse(Program *p, visitproc visit, void *arg)
{
    for (int i = 0; i < p->count; i++) {
        if (!p->nodes[i].weak) {
            Py_VISIT(p->nodes[i].operand);
        }
        Py_VISIT(p->nodes[i].kept);
    }
    for (int i = 0; i < p->check_count; i++) {
        if (!p->checks[i].weak) {
            Py_VISIT(p->checks[i].operand);
        }
        if (!p->checks[i].second_weak) {
            Py_VISIT(p->checks[i].second);
        }
    }
    return 0;
}
