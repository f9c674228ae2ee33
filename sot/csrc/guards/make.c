/* How a program is made from the description that sot/guards/guard_program.py gives. */

#include "guards/program.h"

static const char *const STEPS[] = {"arg", "held", "dict", "type_dict", "item", "index", "cell", "field", "key", NULL};

static const char *const KINDS[] = {"type", "is", "equals", "length", "keys", "has", "lacks", "empty", "code",
                                    "lookup", "tensor", "any_tensor", NULL};

/* A program with fewer dicts never gets warm: it would gain little, and each write to a watched dict costs a call. */
#define WORTH_WATCHING 16

static int index_of(const char *name, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    PyErr_Format(PyExc_ValueError, "a guard program does not support %s", name);
    return -1;
}

static int make_tensor_check(Program *p, Check *check)
{
    if (check->kind == TENSOR) {
        check->spec = PyCapsule_GetPointer(check->operand, TENSOR_SPEC_NAME);
        if (check->spec == NULL) {
            return -1;
        }
        p->tensor_count++;
    }
    tensor_api->thread_keys(p->thread_keys);
    p->uses_tensors = 1;
    return 0;
}

/* What a kind of check needs besides its operand. -1 with an exception. */
static int complete_check(Program *p, const Node *node, Check *check, PyObject *operand, PyObject *second)
{
    switch (check->kind) {
    case LENGTH:
        check->number = PyLong_AsSsize_t(operand);
        break;
    case HAS:
    case LACKS:
        check->number = PyObject_Hash(operand);
        break;
    case LOOKUP:
        if (node->step != HELD || !PyType_Check(node->operand)) {
            PyErr_SetString(PyExc_ValueError, "a guard program looks up attributes of held classes only");
            return -1;
        }
        return Py_IsNone(second) ? 0 : hold_found(p, check, PyTuple_GET_ITEM(second, 0));
    case TENSOR:
    case ANY_TENSOR:
        return make_tensor_check(p, check);
    case TYPE:
    case IS:
    case EQUALS:
    case KEYS:
    case EMPTY:
    case CODE:
        break;
    }
    return PyErr_Occurred() ? -1 : 0;
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
    node->reads_size |= reads_of(check->kind) == SIZE;
    node->reads_dict |= reads_of(check->kind) == DICT_VERSION;
    return complete_check(p, node, check, operand, second);
}

/* Does a check of this kind still hold for the same object after its class has changed? */
static int settles_class(Kind kind)
{
    switch (kind) {
    case TYPE: /* of a class that objects cannot leave */
    case ANY_TENSOR:
    case IS:
    case EQUALS:
    case EMPTY:
    case TENSOR:
        return 1;
    case LENGTH:
    case KEYS:
    case HAS:
    case LACKS:
    case CODE:
    case LOOKUP:
        return 0;
    }
    Py_UNREACHABLE();
}

/* May the class of a value differ while the words above the node are the same? */
static int reads_type(Program *p, const Node *node)
{
    if (node->step == HELD) {
        return PyType_HasFeature(Py_TYPE(node->operand), Py_TPFLAGS_HEAPTYPE) || PyModule_Check(node->operand);
    }
    if (node->step == DICT || node->step == TYPE_DICT) {
        return 0;
    }
    int reads = 1;
    for (int i = 0; i < node->check_count && (node->step == ITEM || node->step == KEY); i++) {
        const Check *check = p->checks + node->first_check + i;
        PyTypeObject *type = (PyTypeObject *)check->operand;
        if (reads_of(check->kind) == CLASS && (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type == &PyModule_Type)) {
            return 1;
        }
        reads &= !settles_class(check->kind);
    }
    return reads;
}

/* A node is (step, parent, operand, number, checks). Parents come before children, and subtrees are contiguous. */
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
    node->parent = parent;
    node->end = i + 1;
    node->tensor = -1;
    node->first_check = p->check_count;
    node->operand = step == FIELD && Py_IsNone(operand) ? NULL : step == HELD ? hold(p, operand, &node->weak)
        : Py_NewRef(operand);
    if (node->operand == NULL && step != FIELD) {
        return -1;
    }
    if (step == FIELD && node->operand != NULL) { /* (None,): a missing field reads as None */
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
    for (int i = p->count - 1, next = p->count; i >= 0; i--) {
        p->nodes[i].next = next;
        next = p->nodes[i].step == ARG ? i : next;
    }
    p->patience = dicts >= WORTH_WATCHING ? FIRST_PATIENCE : 0;
    p->warm_calls = LAST_PATIENCE;
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

/* A node is in a pair or group. Is it an argument? */
static int relate(Program *p, int node)
{
    int is_argument = p->nodes[node].step == ARG;
    p->nodes[node].grouped |= !is_argument;
    return is_argument;
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
        if (relate(p, pair[0]) | relate(p, pair[1])) {
            int first[3];
            memcpy(first, p->pairs[p->arg_pair_count], sizeof(first));
            memcpy(p->pairs[p->arg_pair_count++], pair, sizeof(first));
            memcpy(pair, first, sizeof(first));
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
    int is_argument = relate(p, node), first_other = group->argument_count;
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
    for (int i = 0; i < p->group_count; i++) {
        if (p->groups[i].argument_count > 0) {
            Group first = p->groups[p->arg_group_count];
            p->groups[p->arg_group_count++] = p->groups[i];
            p->groups[i] = first;
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
