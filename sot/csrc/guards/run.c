/* Runs the guard program of an entry: checks the conditions for reuse without making Python objects.

   In: a tree of nodes, in preorder. A node is a place that a value is loaded from (an argument, an object that the
   entry holds, an item or a field of its parent, ...), and checks on that value. In addition there are pairs and
   groups of nodes that must be the same object, or different ones.
   Out: yes or no, and the value of every node.

   It is cheap because a value that was checked once need not be checked again while nothing that the checks have read
   has changed. So each node keeps the words that its checks and the loads of its children have read: the version tag
   of a dict, an object's class, the address of its dict, the contents of a cell. A call compares words from the top
   down. While the words above are unchanged, the memory below is still the same, and safe to read. Where a word
   differs, its node is checked again, and those of its children that are different objects now.

   Most words are versions of dicts. Where CPython reports changes of dicts (guards/dicts.c), they need not even be
   compared. A program that has been undisturbed for some calls gets warm: its dicts are watched, and it compares only
   the other words, the live ones, until a dict reports a change. Where assignments to classes and dicts of objects are
   counted (guards/setters.c), these words are not live either. If the count has risen, all words are compared. A dict
   that changes again and again is no longer watched, and a count that rises again and again is no longer used. A
   program that is disturbed soon after it got warm takes longer to get warm again. So nothing costs more than
   comparing all words.

   Words contain addresses, and another object may have come to an address meanwhile. That is harmless if the words
   cover everything that the checks depend on. A check of the contents of a constant keeps the constant alive instead.
   Tensors have no words: their metadata is compared at every call.

   Nothing here runs Python code. Loads read dicts, lists and fields and ignore overrides. guard_program.py in
   sot/guards makes a node only of what is equivalent to the Python expression. */

#include "guards/program.h"

static int visit_node(Program *p, int i, PyObject *value, int all);

/* Checks a node and those of its children that are different objects than before. For a child at the same address all
   words are compared, because it may be another object. */
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
        p->warm &= node->skipped == 0;
    }
    if (node->tensor >= 0) {
        p->tensors[node->tensor].value = value;
    }
    for (int c = 0; c < node->check_count; c++) {
        const Check *check = p->checks + node->first_check + c;
        if (!check_holds(check, value)) {
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
    if (p->warm) {
        refresh_live(p, node);
    }
    node->known = 1;
    return 1;
}

/* The first node from here to the end with a changed word (of all words, or of the live ones); the end if there is
   none. */
static int first_changed(Program *p, int start, int end, int all)
{
    const Node *from = p->nodes + start, *to = p->nodes + end;
    int live = p->warm && !all;
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

/* A node in which something did not hold is not known, and neither are its ancestors. */
static void forget(Program *p, int i)
{
    for (; i >= 0; i = p->nodes[i].parent) {
        p->nodes[i].known = 0;
        p->forgotten |= p->nodes[i].step == HELD;
    }
}

/* The nodes from here to the end are known for their values: are their words unchanged? */
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

/* The class at the address of the old value may differ. If that is no word, it is compared here. */
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

/* Are the members that are not arguments different objects? */
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

/* Do the members that are arguments differ from each other and from the other members? */
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

/* The held roots of a warm program are known, and are compared together. */
static int visit_roots(Program *p, PyObject *const *args, Py_ssize_t count, int all)
{
    for (int i = 0; i < p->count;) {
        const Node *root = p->nodes + i;
        if (root->step == HELD && p->warm && !all) {
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
        if (p->values[i] != value) { /* a different object: what is known belongs to the old one */
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
    if (p->busy || p->dead) { /* a key with a __hash__ in Python has called this function again */
        return 0;
    }
    p->busy = 1;
    p->disturbed = 0;
    unsigned long long setters = p->warm && p->counts_setters ? setters_count() : p->setters_seen;
    int all = !setters_rest(p, setters) || p->forgotten;
    int holds = run(p, args, count, all);
    p->setters_seen = holds ? setters : p->setters_seen;
    p->forgotten &= !holds;
    warm_up(p, holds);
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

int program_is_dead(const Program *p)
{
    return p->dead;
}

PyObject *program_statistics(Program *p)
{
    int skipped = p->warm ? p->word_count - p->nodes[p->count].first_live : 0;
    return Py_BuildValue("{s:i,s:i,s:i,s:i,s:K}", "nodes", p->count, "words", p->word_count, "skipped", skipped,
                         "tensors", p->tensor_count, "entered", p->entered);
}
