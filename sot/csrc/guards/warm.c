/* Compares fewer words while nothing changes. A program is warm after some undisturbed calls: its dicts are watched,
   and it compares only the words whose change no dict reports, the live ones. */

#include "guards/program.h"

#define SOON 64

/* A word differs: is it the version of a dict that has only got another watcher? */
int only_watchers_changed(Program *p, int owner, Word *word)
{
    const Node *node = p->nodes + owner;
    if (!node->reads_dict || version_word(p, node)->address != word->address
        || !is_same_version(*word->address, word->expected)) {
        return 0;
    }
    word->expected = *word->address;
    return 1;
}

/* Will the dict report changes, so that its version need not be compared? */
static int can_skip_version(Program *p, Node *node)
{
    const void *address = node->reads_dict ? version_word(p, node)->address : &no_word;
    if (address == &no_word || node->changes == RESTLESS) {
        return 0;
    }
    if (node->watched != NULL && !dict_will_tell(node->watched, dict_of_word(address))) {
        stop_watching(p, node);
    }
    if (node->watched == NULL) {
        node->watched = dict_watch(dict_of_word(address), &p->warm);
    }
    return node->watched != NULL && dict_will_tell(node->watched, dict_of_word(address));
}

static int is_put(const Program *p, const Node *node, int word)
{
    return p->words[node->first_word + word].address != &no_word;
}

/* Is the version of the dict that a node reads compared, or does the dict report changes? */
static int has_version_word(const Program *p, const Node *node)
{
    return node->reads_dict && is_put(p, node, node->reads_type + node->reads_slot);
}

/* Is the value of a node the same object while the words above it are the same? An unchanged dict still holds the same
   objects, so no other object has come to the address. Where that is not so, all words below are compared. */
static int stays(const Program *p, const Node *node)
{
    return node->step == HELD || ((node->step == ITEM || node->step == KEY) && has_version_word(p, p->nodes + node->parent));
}

/* Can the `__dict__` of a node's value end only by a call of its setter, or with a report? */
static int dict_tells(const Program *p, const Node *node)
{
    const Node *end = p->nodes + node->end;
    for (const Node *child = node + 1; child < end; child = p->nodes + child->end) {
        if (child->step == DICT) {
            return (child->skipped & version_bit(child)) != 0
                || (DICTS_END_BY_SETTERS_ONLY && has_version_word(p, child));
        }
    }
    return 0;
}

/* The words of a node, besides its version, that need not be compared while no setter is called. The class of an
   object and the address of its dict are words of one object. They are live if another object may come to the place,
   even at the same address. If CPython may end the dict without a call of the setter, the dict must be watched. */
static unsigned skippable(const Program *p, const Node *node)
{
    if (!p->counts_setters || !stays(p, node)) {
        return 0;
    }
    unsigned found = node->reads_type && is_put(p, node, 0);
    if (node->reads_slot && is_put(p, node, node->reads_type) && dict_tells(p, node)
        && setters_tell_of_dict(node->type)) {
        found |= 1u << node->reads_type;
    }
    return found;
}

/* The words of a node that are compared while its program is warm. Returns their number. */
static int copy_live(Program *p, const Node *node)
{
    Word *live = p->live + node->first_live;
    int count = 0;
    for (int i = node->first_word; i < node[1].first_word; i++) {
        int number = i - node->first_word;
        if (number > 2 || !(node->skipped >> number & 1)) {
            live[count++] = p->words[i];
        }
    }
    return count;
}

/* Its words have changed. */
void refresh_live(Program *p, const Node *node)
{
    copy_live(p, node);
    if (node->skipped & version_bit(node) && node->watched == NULL) {
        p->warm = 0;
    }
}

/* Are the words of a node unchanged? They are compared from the top down, so the memory is safe to read. Values
   without a word are compared in every call, and do not count here. */
static int node_is_unchanged(Program *p, int i)
{
    Word *end = p->words + p->nodes[i + 1].first_word;
    for (Word *word = p->words + p->nodes[i].first_word; word < end; word++) {
        if (*word->address != word->expected && word->address != &no_word && !only_watchers_changed(p, i, word)) {
            return 0;
        }
    }
    return 1;
}

/* Finds the live words, and where they are. */
static void choose_live(Program *p)
{
    int live = 0;
    for (int i = 0; i < p->count; i++) {
        Node *node = p->nodes + i;
        node->skipped |= skippable(p, node);
        node->first_live = live;
        for (int count = copy_live(p, node); count > 0; count--) {
            p->live_owners[live++] = i;
        }
    }
    p->nodes[p->count].first_live = live;
}

/* All guards have just held. No Python code runs, so they still hold when all dicts are watched. But the checks
   themselves may have changed something that was read before them. */
static void get_warm(Program *p)
{
    int was_calm = p->warm_calls > (unsigned long long)p->patience * 16;
    p->counts_setters = p->alarms < RESTLESS && setters_tell();
    p->setters_seen = p->setters_heard = setters_count();
    p->quiet = 0;
    for (int i = 0; i < p->count; i++) {
        Node *node = p->nodes + i;
        if (!node_is_unchanged(p, i)) {
            return;
        }
        node->changes = was_calm && node->changes < RESTLESS ? 0 : node->changes;
        node->skipped = can_skip_version(p, node) ? version_bit(node) : 0;
    }
    choose_live(p);
    p->patience = was_calm ? FIRST_PATIENCE : Py_MIN(p->patience * 2, LAST_PATIENCE);
    p->warm_calls = p->alarmed_at = 0;
    p->warm = 1;
}

static int can_get_warm(Program *p)
{
    if (p->live == NULL && (dicts_can_be_watched() || setters_tell())) {
        p->live = PyMem_Calloc(p->word_count + 1, sizeof(Word));
        p->live_owners = PyMem_Calloc(p->word_count + 1, sizeof(int));
    }
    return p->live != NULL && p->live_owners != NULL;
}

/* Before a call of a warm program: is the count of setters the same as when all words were compared? A count that
   rises again and again is no longer used. */
int setters_rest(Program *p, unsigned long long count)
{
    if (count != p->setters_heard) {
        p->alarms = p->warm_calls - p->alarmed_at < SOON ? p->alarms + 1 : 1;
        p->alarmed_at = p->warm_calls;
        p->setters_heard = count;
        if (p->alarms >= RESTLESS) {
            p->warm = 0;
        }
    }
    return count == p->setters_seen;
}

/* After a call. */
void warm_up(Program *p, int holds)
{
    if (p->warm) {
        p->warm_calls++;
    } else if (p->disturbed) {
        p->quiet = 0;
    } else if (holds && p->patience > 0 && ++p->quiet >= p->patience) {
        if (can_get_warm(p)) {
            get_warm(p);
        } else {
            p->patience = 0;
        }
    }
}
